"""The headline and the status of a document, from the fields that usually have them."""

from history import masking
from history.admin.parts.field_names import Fields
from history.documents.exactjson import Json

KEYS = ("fullName", "name", "title", "brand", "type")
STATUS_KEYS = ("stage", "status", "state")
MAX_LENGTH = 120


def headline(data: object) -> str:
    """The first of KEYS that has a text, with the number or model where there is one; empty where
    none has. A masked text does not count."""
    if not isinstance(data, dict):
        return ""
    name = next((text for key in KEYS if (text := _words(data.get(key)))), "")
    extra = data.get("number") or (data.get("model") if "brand" in data else None)
    return " ".join(part for part in (name, _words(extra)) if part)[:MAX_LENGTH]


def status(data: object, fields: Fields) -> str:
    """The first of STATUS_KEYS that has a text, as the catalogue names it; empty where none has."""
    if isinstance(data, dict):
        for key in STATUS_KEYS:
            value = data.get(key)
            if isinstance(value, str) and value and not masking.is_token(value):
                return fields.word(f"/{key}", value) or value
    return ""


def _words(value: Json) -> str:
    if isinstance(value, dict):
        value = next((text for text in value.values() if isinstance(text, str) and text), "")
    return value if isinstance(value, str) and not masking.is_token(value) else ""
