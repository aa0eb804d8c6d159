"""Says in one sentence what is wrong with a message's JSON or fields, and what is right. Pure.

msgspec names the types of Python. Nothing of the document is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from history.json_pointer import segments
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION

TYPE_RULE: Final = "CREATE, UPDATE or DELETE, or 0, 1 or 2"
# What each field must be.
RULES: Final[Mapping[str, str]] = {
    "id": f"a text of 1 to {ID_LENGTH} characters",
    "version": f"a whole number from 0 to {MAX_VERSION}, written in digits without quotes",
    "type": TYPE_RULE,
    "revType": TYPE_RULE,
    "updatedAt": "a text with an ISO 8601 date and time, as 2025-07-03T11:42:48.510186Z",
    "clientId": f"a text of 1 to {CLIENT_ID_LENGTH} characters",
    "author": f"a text of up to {AUTHOR_LENGTH} characters, null or absent",
    "productInstanceId": f"the application's id, a text of 1 to {ID_LENGTH} characters",
    "data": "an object, or null if `type` is DELETE",
}
_KINDS: Final = {
    "int": "a whole number",
    "float": "a number with a fraction or an exponent",
    "str": "a text",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_ERROR: Final = re.compile(
    r"(?:Object missing required field `(?P<missing>\w+)`"
    r"|Object has nothing at `(?P<pointer>[^`]*)`, the (?P<name>\w+)"
    r"|Expected `[^`]+`(?:, got `(?P<got>\w+)`"
    r"| of length (?P<size>>=|<=) (?P<length>\d+)"
    r"| (?P<bound>>=|<=) (?P<limit>-?\d+)))"
    r"(?: - at `\$\.?(?P<path>.*)`)?",
    re.DOTALL,
)
_BEGINS_WITH_FIELD: Final = re.compile(r"`(\w+)`(?= is )")
_AT_BYTE: Final = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)
_STARTS: Final = (
    (b"\xef\xbb\xbf", "begins with a byte order mark: send UTF-8 without it"),
    (
        b"\0",
        "begins with a zero byte, as the messages of a schema registry do: send the JSON text"
        " alone",
    ),
    (b"\xff\xfe", "is UTF-16: send UTF-8"),
    (b"\xfe\xff", "is UTF-16: send UTF-8"),
)
_NO_NUMBER: Final = re.compile(rb"-?(NaN|Infinity)")


def field(error: str, pointers: Mapping[str, str] | None = None) -> str:
    """The sentence for the text of a msgspec.ValidationError about an envelope. pointers: where a
    declared envelope has the contract's fields."""
    found = _ERROR.fullmatch(error)
    if found is None:
        return "a field is missing or wrong"
    place = found["missing"] or found["path"] or ""
    if found["pointer"]:
        name, called = found["name"], f"`{found['pointer']}`, the {found['name']},"
    elif pointers is None or not place:
        name, called = place, f"`{place}`" if place else "the message"
    else:
        name = _declared(place, pointers)
        at = pointers.get(name, "/" + place.replace(".", "/"))
        called = f"`{at}`" + (f", the {name}," if name else "")
    return f"{called} {_fault(found)}; it must be {RULES.get(name, _rest(place))}"


def placed(sentence: str, pointers: Mapping[str, str]) -> str:
    """A sentence that begins with a field of the contract, with the place that a declared envelope
    has for it; any other sentence as it is."""
    found = _BEGINS_WITH_FIELD.match(sentence)
    pointer = pointers.get(found[1]) if found else None
    if found is None or not pointer or pointer == f"/{found[1]}":
        return sentence
    return f"`{pointer}`, the {found[1]},{sentence[found.end() :]}"


def syntax(error: Exception, value: bytes) -> str:
    """The sentence for what cannot be read as JSON."""
    for start, what in _STARTS:
        if value.startswith(start):
            return f"the message {what}"
    if isinstance(error, UnicodeDecodeError):
        return "a text has bytes that are not UTF-8; the message must be JSON in UTF-8"
    found = _AT_BYTE.fullmatch(str(error))
    if found and _NO_NUMBER.match(value, int(found[2])):
        return f"NaN or Infinity at byte {found[2]}, which JSON does not have; send null or a text"
    if _LONE_SURROGATE.search(value):
        return "a text has half of a surrogate pair, as \\ud800, which is no character"
    if found is None:
        return "the message ends before its JSON does; it was cut off"
    what = found[1].removeprefix("JSON is malformed: ")
    return f"the message is not JSON: {what} at byte {found[2]}, counted from 0"


def _declared(place: str, pointers: Mapping[str, str]) -> str:
    """The field at a place of msgspec's, empty if none is. The place begins at the message, or at
    the object that is read after the message because it is wanted as a whole too."""
    for name, pointer in pointers.items():
        if f".{'.'.join(segments(pointer))}".endswith(f".{place}"):
            return name
    return ""


def _rest(place: str) -> str:
    """What something that is no field must be: the message, or what a field is in."""
    return "an object" if place else "a JSON object with the fields of the contract"


def _fault(found: re.Match[str]) -> str:
    if found["missing"] or found["pointer"]:
        return "is missing"
    if found["got"]:
        return f"is {_KINDS.get(found['got'], 'something else')}"
    if found["size"] == ">=":
        return "is empty"
    if found["size"]:
        return f"is longer than {found['length']} characters"
    return f"is {'less' if found['bound'] == '>=' else 'more'} than {found['limit']}"
