"""The envelope of a snapshot: the fields of the contract, and sentences about wrong ones. Pure."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Final, Protocol, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from history.documents.json_pointer import PointerLookup, as_pointer, split_pointer
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
)
from ingest.messages.message import Message

PARENT: Final = "productInstanceId"
Identifier = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]


class Envelope(msgspec.Struct, gc=False, rename="camel"):
    """The fields of a message by the contract. Unknown fields are ignored."""

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


RawIdentity: TypeAlias = tuple[Raw | UnsetType, Raw | UnsetType]
# The id of the application and the time, both as texts; None for what cannot be read.
RawPlace: TypeAlias = tuple[str | None, str | None]


class EmptyValueMeaning(Enum):
    """What it means that a message has no value."""

    BAD = "bad"
    REPEATED = "repeated"  # it says nothing that the message before it did not say
    READ = "read"  # its headers say all


class EnvelopeError(ValueError):
    """Raised for a message that is not in its envelope. `reason` is a value of decode.Reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class EnvelopeParser(Protocol):
    """Parses the envelopes of one topic."""

    pointers: Mapping[str, str]  # where the contract's fields are, for sentences

    def without_value(self, message: Message, /) -> EmptyValueMeaning: ...

    def read(self, message: Message, /) -> Envelope:
        """Return the envelope of a message.

        Raises:
            msgspec.ValidationError: A field is missing or wrong; the message names it.
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: The JSON cannot be read.
            EnvelopeError: Anything else.
        """

    def name(self, message: Message, /) -> RawIdentity:
        """Return the raw values of id and version, whatever they are. Raises as `read` does."""

    def client_id(self, message: Message, /) -> object:
        """Return what is in the place of the clientId, whatever it is.

        Returns:
            The service that is declared for all messages, if one is; None without either. Raises as
            `read` does.
        """

    def id_of_key(self, key: bytes | None, /) -> str:
        """Return the id that the key of a message names, or an empty text if it names none."""

    def place(self, message: Message, /) -> RawPlace:
        """Return the application and the updatedAt that a message names. Raises as `read` does."""


EnvelopeParsers: TypeAlias = Mapping[str, EnvelopeParser]


class _JsonKey(msgspec.Struct):
    """The key of a message that was written as a JSON object."""

    id: str


class ContractEnvelope:
    """The contract's envelope with another field that names the application.

    Args:
        parent: The field that names the application, or a JSON pointer to it.
    """

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

    def without_value(self, _: Message) -> EmptyValueMeaning:
        """Return that a message without a value is bad."""
        return EmptyValueMeaning.BAD

    def read(self, message: Message) -> Envelope:
        """Return the envelope of a message. See `EnvelopeParser.read`."""
        found = zip(self._names, self._lookup(message.value or b""), strict=True)
        there = {name: each for name, each in found if each is not UNSET}
        for name, pointer in self.pointers.items():
            field = _FIELDS[name]
            if field.required and field.name not in there:
                raise msgspec.ValidationError(f"Object has nothing at `{pointer}`, the {name}")
        return Envelope(**there)

    def name(self, message: Message) -> RawIdentity:
        """Return the raw values of id and version. See `EnvelopeParser.name`."""
        id, version = self._name_lookup(message.value or b"")
        return id, version

    def client_id(self, message: Message) -> object:
        """Return what is in clientId. Raises msgspec.DecodeError, RecursionError."""
        (value,) = self._client_lookup(message.value or b"")
        return None if value is UNSET else msgspec.json.decode(value)

    def id_of_key(self, key: bytes | None) -> str:
        """Return the id that a key is: its text."""
        return key_text(key)

    def place(self, message: Message) -> RawPlace:
        """Return the application and updatedAt. Raises msgspec.DecodeError, RecursionError."""
        application, updated_at = self._place_lookup(message.value or b"")
        return json_text(application), json_text(updated_at)


def key_text(key: bytes | None) -> str:
    """Return the text of a key, or an empty text if it is not UTF-8.

    Of a key that was written as JSON this is the text in it: `"A1"`, or the `id` of `{"id": "A1"}`.
    Taken as it is, such a key would name a document that never was, and the pages of the real
    document would not tell of the message.
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
# The rule of each field, as it ends a sentence.
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
_MSGSPEC_ERROR: Final = re.compile(
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


def explain_field_error(error: str, pointers: Mapping[str, str] | None = None) -> str:
    """Return a sentence for the text of a msgspec.ValidationError about an envelope.

    Args:
        pointers: Where a declared envelope has the contract's fields.
    """
    match = _MSGSPEC_ERROR.fullmatch(error)
    if match is None:
        return "a field is missing or wrong"
    place = match["missing"] or match["path"] or ""
    if match["pointer"]:
        name, called = match["name"], f"`{match['pointer']}`, the {match['name']},"
    elif pointers is None or not place:
        name, called = place, f"`{place}`" if place else "the message"
    else:
        name = _find_field_at(place, pointers)
        at = pointers.get(name, "/" + place.replace(".", "/"))
        called = f"`{at}`" + (f", the {name}," if name else "")
    rule = RULES.get(name, _describe_container(place))
    return f"{called} {_describe_fault(match)}; it must be {rule}"


def name_declared_field(sentence: str, pointers: Mapping[str, str]) -> str:
    """Return the sentence with the place of its field in a declared envelope.

    A sentence that does not begin with a field of the contract is returned unchanged.
    """
    match = _BEGINS_WITH_FIELD.match(sentence)
    pointer = pointers.get(match[1]) if match else None
    if match is None or not pointer or pointer == f"/{match[1]}":
        return sentence
    return f"`{pointer}`, the {match[1]},{sentence[match.end() :]}"


def explain_syntax_error(error: Exception, value: bytes) -> str:
    """Return a sentence for a value that cannot be read as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return "a text has bytes that are not UTF-8; the message must be JSON in UTF-8"
    match = _AT_BYTE.fullmatch(str(error))
    if _LONE_SURROGATE.search(value):
        return "a text has half of a surrogate pair, as \\ud800, which is no character"
    if match is None:
        return "the message ends before its JSON does; it was cut off"
    problem = match[1].removeprefix("JSON is malformed: ")
    return f"the message is not JSON in UTF-8: {problem} at byte {match[2]}, counted from 0"


def _find_field_at(place: str, pointers: Mapping[str, str]) -> str:
    """Return the contract's field at a place as msgspec names it, or an empty text."""
    for name, pointer in pointers.items():
        if f".{'.'.join(split_pointer(pointer))}".endswith(f".{place}"):
            return name
    return ""


def _describe_container(place: str) -> str:
    """Return the rule for a place that is not a field: the message, or an object around one."""
    return "an object" if place else "a JSON object with the fields of the contract"


def _describe_fault(match: re.Match[str]) -> str:
    if match["missing"] or match["pointer"]:
        return "is missing"
    if match["got"]:
        return f"is {_KINDS.get(match['got'], 'something else')}"
    if match["size"] == ">=":
        return "is empty"
    if match["size"]:
        return f"is longer than {match['length']} characters"
    return f"is {'less' if match['bound'] == '>=' else 'more'} than {match['limit']}"
