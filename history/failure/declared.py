"""What is wrong with a file of declarations, in words: msgspec names the types of Python. Pure."""

from __future__ import annotations

import re
from typing import Final

_KINDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
    "date": "a day",
    "datetime": "a day with a time",
}
_WRONG: Final = (
    (r"Object missing required field `(?P<name>[^`]+)`", "{name} is missing"),
    (r"Object contains unknown field `(?P<name>[^`]+)`", "{name} is no known field"),
    (r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`", "must be {wanted}, and is {got}"),
    (r"Expected `\w+` of length >= (?P<low>\d+).*", "must have {low} or more"),
    (r"Expected `\w+` of length <= (?P<high>\d+).*", "must have {high} at most"),
    (r"Expected `(?P<wanted>\w+)` >= (?P<low>\S+)", "must be {wanted} of at least {low}"),
    (r"Expected `(?P<wanted>\w+)` <= (?P<high>\S+)", "must be {wanted} of at most {high}"),
    (r"Expected .*", "is of another form"),
    (r"Invalid enum value (?P<value>.*)", "has no value {value}"),
)
_JSON: Final = re.compile(r"JSON is malformed: .* \(byte (?P<byte>\d+)\)", re.DOTALL)


def of_declaration(error: Exception, form: str) -> str:
    """The sentence about what msgspec cannot read as its type. form: what the text is, as `JSON`.
    Quotes no value but that of a choice."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not text in UTF-8 (byte {error.start + 1} is wrong)"
    if isinstance(error, RecursionError):
        return f"it is not {form} that can be read: it is nested too deep"
    text = str(error)
    if "truncated" in text:
        return f"it is not {form}: it ends too early, or is empty"
    if found := _JSON.fullmatch(text):
        return f"it is not {form} from byte {int(found['byte']) + 1} on"
    what, _, path = text.partition(" - at `$")
    where = _place(path.rstrip("`").lstrip("."))
    for pattern, words in _WRONG:
        if wrong := re.fullmatch(pattern, what, re.DOTALL):
            given = {name: _kind(name, value) for name, value in wrong.groupdict().items()}
            said = words.format(**given)
            if "missing" in said or "known" in said:
                return f"{where}: {said}" if where else said
            return f"{where or ('a value in it' if path else 'the whole')} {said}"
    return f"it is not {form}: {text}"


def _kind(name: str, value: str) -> str:
    if name not in ("wanted", "got"):
        return value
    return " or ".join(_KINDS.get(each, each) for each in value.split(" | "))


def _place(path: str) -> str:
    """`provider[0].roles[...]` as `provider 1, roles`."""
    path = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", path)
    names = path.replace("[...]", "").replace("key` in `", "").split(".")
    text = ", ".join(each.strip() for each in names if each.strip())
    return f"entry {text}" if text[:1].isdigit() else text
