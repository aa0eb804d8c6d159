"""The envelope of a snapshot: the fields of the contract, and what is wrong with one. Pure."""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Final, NamedTuple, Protocol, TypeAlias, get_type_hints

import msgspec
import msgspec.inspect
from msgspec import UNSET, Meta, Raw, UnsetType

from history.documents.json_pointer import PointerLookup, as_pointer, split_pointer
from history.documents.record import (
    AUTHOR_LENGTH,
    CLIENT_ID_LENGTH,
    ID_LENGTH,
    MAX_VERSION,
)
from ingest.messages.explanations import Code, Explanation, Fault
from ingest.messages.message import Message
from ingest.messages.rejection import Reason, RejectedMessage

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


_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Envelope)}
_TYPES = get_type_hints(Envelope, include_extras=True)


RawIdentity: TypeAlias = tuple[Raw | UnsetType, Raw | UnsetType]
# The id of the application and the time, both as texts; None for what cannot be read.
RawPlace: TypeAlias = tuple[str | None, str | None]


class EmptyValueMeaning(Enum):
    """What it means that a message has no value."""

    BAD = "bad"
    REPEATED = "repeated"  # it says nothing that the message before it did not say
    READ = "read"  # its headers say all


class EnvelopeParser(Protocol):
    """Parses the envelopes of one topic."""

    pointers: Mapping[str, str]  # where the contract's fields are, for explanations

    def without_value(self, message: Message, /) -> EmptyValueMeaning: ...

    def read(self, message: Message, /) -> Envelope:
        """Return the envelope of a message.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: The JSON cannot be read.
            RejectedMessage: A field is missing or wrong, or anything else.
        """

    def name(self, message: Message, /) -> RawIdentity:
        """Return the raw values of id and version, whatever they are.

        Raises:
            msgspec.ValidationError: Something around them is not an object.
            msgspec.DecodeError, UnicodeDecodeError, RecursionError, RejectedMessage: See `read`.
        """

    def client_id(self, message: Message, /) -> object:
        """Return what is in the place of the clientId, whatever it is.

        Returns:
            The service that is declared for all messages, if one is; None without either. Raises as
            `name` does.
        """

    def id_of_key(self, key: bytes | None, /) -> str:
        """Return the id that the key of a message names, or an empty text if it names none."""

    def place(self, message: Message, /) -> RawPlace:
        """Return the application and the updatedAt that a message names. Raises as `name` does."""


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
        value = message.value or b""
        try:
            values = self._lookup(value)
        except msgspec.ValidationError:
            explanation = explain_wrong_fields(value, self.pointers, _FIELD_TYPES)
            raise RejectedMessage(Reason.BAD_FIELD, explanation) from None
        fields = {
            name: field
            for name, field in zip(self._names, values, strict=True)
            if field is not UNSET
        }
        for name, pointer in self.pointers.items():
            if _FIELDS[name].required and _FIELDS[name].name not in fields:
                raise make_missing_field(name, pointer)
        return Envelope(**fields)

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


class _FieldType(NamedTuple):
    """The values that a field of the contract may have."""

    kinds: frozenset[str]
    shortest: int | None = None  # of a text
    longest: int | None = None
    least: int | None = None  # of a number
    most: int | None = None


_KINDS: Final[Mapping[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.IntType: Fault.INTEGER,
    msgspec.inspect.StrType: Fault.TEXT,
    msgspec.inspect.NoneType: Fault.NULL,
}


def _describe_type(info: msgspec.inspect.Type) -> _FieldType:
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    described = _FieldType(frozenset(_KINDS[type(member)] for member in members))
    for member in members:
        if isinstance(member, msgspec.inspect.StrType):
            described = described._replace(shortest=member.min_length, longest=member.max_length)
        elif isinstance(member, msgspec.inspect.IntType):
            described = described._replace(least=member.ge, most=member.le)
    return described


_FIELD_TYPES: Final[Mapping[str, _FieldType]] = {
    name: _describe_type(msgspec.inspect.type_info(_TYPES[field.name]))
    for name, field in _FIELDS.items()
    if name != "data"
}
_AT_BYTE: Final = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)", re.DOTALL)
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)


def make_missing_field(name: str, pointer: str | None = None) -> RejectedMessage:
    """Return the error of a message without a field. `pointer`: its place, if it is declared."""
    place = {} if pointer is None else {"pointer": pointer}
    explanation = Explanation(Code.WRONG_FIELD, fault=Fault.MISSING, field=name, **place)
    return RejectedMessage(Reason.BAD_FIELD, explanation)


def explain_wrong_fields(
    text: bytes | Raw,
    pointers: Mapping[str, str] | None,
    checked: Container[str] = (),
    at: str = "",
) -> Explanation:
    """Explain why a text has no fields that msgspec accepts, by looking at them one by one.

    As msgspec does, it stops at the first wrong value: what follows need not be JSON.

    Args:
        text: A text that msgspec refused with a ValidationError.
        pointers: Where a declared envelope has the contract's fields. None: the contract's
            envelope, with all of its fields checked.
        checked: The fields with a type to check; of others only the objects around them count.
        at: The pointer to the text itself.
    """
    document, explanation = bytes(text).decode("utf-8", "surrogateescape").lstrip(), None
    try:
        if not document.startswith("{"):
            explanation = _explain_no_object(_decode_first_value(document), at)
        elif pointers is None:
            explanation = _find_wrong_contract_field(document)
        else:
            places = {name: tuple(split_pointer(place)) for name, place in pointers.items()}
            explanation = _find_wrong_value(_scan_members(document), places, checked, at)
    except (ValueError, IndexError, RecursionError):
        pass
    return explanation or Explanation(Code.UNCLEAR_FIELD)


_JSON_DECODER: Final = json.JSONDecoder()
_JSON_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _decode_first_value(document: str) -> object:
    """Return the value that a text begins with; of a list only that it is one."""
    return [] if document.startswith("[") else _JSON_DECODER.raw_decode(document)[0]


def _scan_members(document: str) -> Iterator[tuple[str, object]]:
    """Yield the members of the object that a text begins with, in order.

    Raises:
        ValueError, IndexError: The text is not JSON from here on.
    """

    def skip(place: int, expected: str = "") -> int:
        """Return the place after white space, and after the character that must follow it."""
        place = _JSON_SPACE.match(document, place).end()  # type: ignore[union-attr] # matches
        if not document.startswith(expected, place):
            raise ValueError
        return _JSON_SPACE.match(document, place + len(expected)).end()  # type: ignore[union-attr]

    place = skip(0, "{")
    while document[place] != "}":
        key, place = _JSON_DECODER.raw_decode(document, place)
        value, place = _JSON_DECODER.raw_decode(document, skip(place, ":"))
        yield key, value
        place = skip(place)
        if document[place] != "}":
            place = skip(place, ",")


def _find_wrong_contract_field(document: str) -> Explanation | None:
    names = set()
    for name, value in _scan_members(document):
        names.add(name)
        wrong = _find_fault(name, value) if name in _FIELD_TYPES else None
        if wrong is not None:
            return Explanation(Code.WRONG_FIELD, field=name, **wrong)
    for name, field in _FIELDS.items():
        if field.required and name not in names:
            return make_missing_field(name).explanation
    return None


def _find_wrong_value(
    members: Iterable[tuple[str, object]],
    places: Mapping[str, tuple[str, ...]],
    checked: Container[str],
    at: str,
) -> Explanation | None:
    """Return the first value that is not an object, or a wrong field, in the order of the text."""
    for key, value in members:
        pointer = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
        inner = {name: rest[1:] for name, rest in places.items() if rest[:1] == (key,)}
        deeper = {name: rest for name, rest in inner.items() if rest}
        # Null stands for an absent value, but not for one that is read itself and looked into.
        if value is None and (not deeper or len(deeper) == len(inner)):
            continue
        if deeper:
            if not isinstance(value, dict):
                return _explain_no_object(value, pointer)
            explanation = _find_wrong_value(value.items(), deeper, checked, pointer)
            if explanation is not None:
                return explanation
        for name, rest in inner.items():
            wrong = _find_fault(name, value) if not rest and name in checked else None
            if wrong is not None:
                return Explanation(Code.WRONG_FIELD, field=name, pointer=pointer, **wrong)
    return None


def _explain_no_object(value: object, pointer: str) -> Explanation:
    place = {"pointer": pointer} if pointer else {}
    return Explanation(Code.WRONG_FIELD, fault=Fault.of_value(value), **place)


def explain_wrong_value(name: str, value: object, pointer: str) -> Explanation:
    """Explain why the contract does not allow a value for a field."""
    fault = _find_fault(name, value)
    if fault is None:
        return Explanation(Code.UNCLEAR_FIELD)
    return Explanation(Code.WRONG_FIELD, field=name, pointer=pointer, **fault)


def _find_fault(name: str, value: object) -> dict[str, str | int] | None:
    """Return the fault of a field's value with its limit, as parameters; None if it is right."""
    allowed, kind = _FIELD_TYPES[name], Fault.of_value(value)
    if kind not in allowed.kinds:
        return {"fault": kind}
    if isinstance(value, str):
        if allowed.shortest and not value:
            return {"fault": Fault.EMPTY}
        if allowed.longest is not None and len(value) > allowed.longest:
            return {"fault": Fault.TOO_LONG, "n": allowed.longest}
    if isinstance(value, int):
        if allowed.least is not None and value < allowed.least:
            return {"fault": Fault.TOO_SMALL, "n": allowed.least}
        if allowed.most is not None and value > allowed.most:
            return {"fault": Fault.TOO_LARGE, "n": allowed.most}
    return None


def explain_syntax_error(error: Exception, value: bytes) -> Explanation:
    """Explain why a value cannot be read as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return Explanation(Code.NOT_UTF8)
    if _LONE_SURROGATE.search(value):
        return Explanation(Code.LONE_SURROGATE)
    # msgspec gives the place of a mistake only in its text. Nothing depends on it but the words.
    match = _AT_BYTE.fullmatch(str(error))
    if match is None:
        return Explanation(Code.TRUNCATED)
    return Explanation(Code.MALFORMED, what=match[1], n=int(match[2]))
