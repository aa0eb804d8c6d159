"""What a document calls itself, out of the fields that usually say it."""

from history.exactjson import Json

KEYS = ("fullName", "name", "title", "brand", "type")
LONGEST = 120


def headline(data: object) -> str:
    """The first of KEYS that says something, with the number or model where there is one; empty
    where nothing does."""
    if not isinstance(data, dict):
        return ""
    name = next((text for key in KEYS if (text := _words(data.get(key)))), "")
    extra = data.get("number") or (data.get("model") if "brand" in data else None)
    return " ".join(part for part in (name, _words(extra)) if part)[:LONGEST]


def _words(value: Json) -> str:
    if isinstance(value, dict):
        return next((text for text in value.values() if isinstance(text, str) and text), "")
    return value if isinstance(value, str) else ""
