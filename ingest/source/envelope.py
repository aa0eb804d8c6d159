"""The envelope of a snapshot: the contract's fields, or declared ones. Pure."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Final, Protocol, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from history.documents.json_pointer import PointerLookup, as_pointer, segments
from history.record import AUTHOR_LENGTH, CLIENT_ID_LENGTH, ID_LENGTH, MAX_VERSION
from ingest.source.message import Message

PARENT: Final = "productInstanceId"
Identifier = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]


class Envelope(msgspec.Struct, gc=False, rename="camel"):
    """The message's fields; unknown ones are ignored."""

    id: Identifier
    version: Annotated[int, Meta(ge=0, le=MAX_VERSION)]
    updated_at: str
    client_id: Annotated[str, Meta(min_length=1, max_length=CLIENT_ID_LENGTH)]
    data: Raw | UnsetType = UNSET
    type: int | str | None = None
    rev_type: int | str | None = None
    author: Annotated[str, Meta(max_length=AUTHOR_LENGTH)] | None = None
    product_instance_id: Annotated[str, Meta(max_length=ID_LENGTH)] | None = None


_FIELDS = {each.encode_name: each for each in msgspec.structs.fields(Envelope)}
_TYPES = get_type_hints(Envelope, include_extras=True)


Name: TypeAlias = tuple[Raw | UnsetType, Raw | UnsetType]
# The id of the application and the time as a text; None for what cannot be read.
Place: TypeAlias = tuple[str | None, str | None]


class WithoutValue(Enum):
    """What a message without a value is."""

    BAD = "bad"
    REPEATED = "repeated"  # it says nothing that the message before it did not say
    READ = "read"  # its headers say all


class EnvelopeError(ValueError):
    """A message is not in its envelope. reason: a value of decode.Reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Reader(Protocol):
    """Reads the envelopes of one topic. pointers: of the contract's fields, for sentences."""

    pointers: Mapping[str, str]

    def without_value(self, message: Message, /) -> WithoutValue: ...

    def read(self, message: Message, /) -> Envelope:
        """Raises msgspec.ValidationError that names the missing or wrong field,
        msgspec.DecodeError, UnicodeDecodeError, RecursionError, EnvelopeError."""

    def name(self, message: Message, /) -> Name:
        """What is where id and version should be, whatever it is. Raises as read() does."""

    def client_id(self, message: Message, /) -> object:
        """Return what is where the clientId should be, or the one that is declared for all
        messages; None where there is none. Raises as read() does."""

    def id_of_key(self, key: bytes | None, /) -> str:
        """Return the id that the key of a message names; empty where it names none."""

    def place(self, message: Message, /) -> Place:
        """Return the application that a message names and its updatedAt, as far as each can be
        read. Raises as read() does."""


Shapes: TypeAlias = Mapping[str, Reader]


class _JsonKey(msgspec.Struct):
    """The key of a message that was written as a JSON object."""

    id: str


class Shape:
    """The contract's envelope with another field that names the application. parent: that field, or
    a JSON pointer to it. pointers: of all the contract's fields."""

    def __init__(self, parent: str) -> None:
        self.pointers: Mapping[str, str] = {
            name: as_pointer(parent if name == PARENT else name) for name in _FIELDS
        }
        self._names = [_FIELDS[name].name for name in _FIELDS]
        self._lookup = PointerLookup(
            [
                (pointer, Raw if name == "data" else _TYPES[_FIELDS[name].name])
                for name, pointer in self.pointers.items()
            ]
        )
        self._name_lookup = PointerLookup([("/id", Raw), ("/version", Raw)])
        self._client_lookup = PointerLookup([("/clientId", Raw)])
        self._place_lookup = PointerLookup([(self.pointers[PARENT], Raw), ("/updatedAt", Raw)])

    def without_value(self, _: Message) -> WithoutValue:
        """What a message without a value is."""
        return WithoutValue.BAD

    def read(self, message: Message) -> Envelope:
        """The envelope of one message. Raises msgspec.ValidationError that names the missing or
        wrong field, msgspec.DecodeError, RecursionError."""
        found = zip(self._names, self._lookup(message.value or b""), strict=True)
        there = {name: each for name, each in found if each is not UNSET}
        for name, pointer in self.pointers.items():
            field = _FIELDS[name]
            if field.required and field.name not in there:
                raise msgspec.ValidationError(f"Object has nothing at `{pointer}`, the {name}")
        return Envelope(**there)

    def name(self, message: Message) -> Name:
        """What is in id and version. Raises msgspec.DecodeError, RecursionError."""
        id, version = self._name_lookup(message.value or b"")
        return id, version

    def client_id(self, message: Message) -> object:
        """Return what is in clientId. Raises msgspec.DecodeError, RecursionError."""
        (found,) = self._client_lookup(message.value or b"")
        return None if found is UNSET else msgspec.json.decode(found)

    def id_of_key(self, key: bytes | None) -> str:
        """Return the id that a key is: its text."""
        return key_text(key)

    def place(self, message: Message) -> Place:
        """Return the application and updatedAt. Raises msgspec.DecodeError, RecursionError."""
        application, updated_at = self._place_lookup(message.value or b"")
        return json_text(application), json_text(updated_at)


def key_text(key: bytes | None) -> str:
    """Return the text of a key; empty where it is not UTF-8.

    A key that was written as JSON is the text in it: `"A1"`, or the `id` of `{"id": "A1"}`. Taken
    as it is, it would name a document that never was, and nobody would be told of the message.
    """
    try:
        text = (key or b"").decode()
        if text[:1] == '"':
            return msgspec.json.decode(text, type=str)
        if text[:1] == "{":
            return msgspec.json.decode(text, type=_JsonKey).id
    except UnicodeDecodeError:
        return ""
    except (msgspec.MsgspecError, RecursionError):
        pass
    return text


def json_text(value: Raw | UnsetType) -> str | None:
    """Return the text that a JSON value is, or None where it is another value."""
    if not isinstance(value, Raw):
        return None
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


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
_BEGINS_WITH_FIELD: Final = re.compile(r"`(\w+)`(?= (?:is|must) )")
_AT_BYTE: Final = re.compile(r"(.*) \(byte (\d+)\)", re.DOTALL)
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)


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
    if isinstance(error, UnicodeDecodeError):
        return "a text has bytes that are not UTF-8; the message must be JSON in UTF-8"
    found = _AT_BYTE.fullmatch(str(error))
    if _LONE_SURROGATE.search(value):
        return "a text has half of a surrogate pair, as \\ud800, which is no character"
    if found is None:
        return "the message ends before its JSON does; it was cut off"
    what = found[1].removeprefix("JSON is malformed: ")
    return f"the message is not JSON in UTF-8: {what} at byte {found[2]}, counted from 0"


def _declared(place: str, pointers: Mapping[str, str]) -> str:
    """The field at a place of msgspec's, empty if none is."""
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
