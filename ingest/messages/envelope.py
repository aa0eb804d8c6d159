"""The envelope of a snapshot: the fields of the contract, and explanations of wrong fields.

`EnvelopeParser` is the protocol of all parsers. `ContractEnvelopeParser` and the parsers in
forms.py implement it. No function here reads a clock, a file or a database.
"""

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
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import Reason, RejectedMessageError

PARENT: Final = "productInstanceId"
Identifier = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH)]


class Envelope(msgspec.Struct, gc=False, rename="camel"):
    """The fields that the contract defines for a message. Other fields are ignored."""

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


class RawIdentity(NamedTuple):
    """The id and the version of a message as JSON. A value that is absent is UNSET."""

    id: Raw | UnsetType
    version: Raw | UnsetType


class RawParentAndTime(NamedTuple):
    """The id of the application and updatedAt as texts. A text that cannot be read is None."""

    application: str | None
    updated_at: str | None


class EmptyValueMeaning(Enum):
    """The meaning of a message without a value. It depends on the form of the topic's envelope."""

    BAD = "bad"  # it breaks the contract
    REPEATED = "repeated"  # it repeats the message before it, and brings no version
    READ = "read"  # it is read from its headers, which have all fields


class EnvelopeParser(Protocol):
    """Parses the envelopes of one topic.

    `parse_envelope` checks the contract. The `get` methods are for the quarantine: they read single
    fields of a message that may be bad.
    """

    pointers: Mapping[str, str]  # JSON pointers of the contract's fields, for explanations

    def parse_envelope(self, message: KafkaMessage, /) -> Envelope:
        """Return the envelope of a message.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError, RecursionError: The JSON cannot be read.
            RejectedMessageError: A field is missing or wrong, or another rule is broken.
        """

    def get_empty_value_meaning(self, message: KafkaMessage, /) -> EmptyValueMeaning:
        """Return the meaning of a message without a value."""

    def get_identity(self, message: KafkaMessage, /) -> RawIdentity:
        """Return the id and the version, without a check of their types.

        Raises:
            msgspec.ValidationError: A value that should contain these fields is not an object.
            msgspec.DecodeError, UnicodeDecodeError, RecursionError, RejectedMessageError: See
                `parse_envelope`.
        """

    def get_client_id(self, message: KafkaMessage, /) -> object:
        """Return the clientId without a check of its type, or None if the message has none.

        If the kind declares one service for all messages, return the name of that service.

        Raises:
            msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError,
            RejectedMessageError: See `get_identity`.
        """

    def get_parent_and_time(self, message: KafkaMessage, /) -> RawParentAndTime:
        """Return the application and the updatedAt that a message names.

        Raises:
            msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError,
            RejectedMessageError: See `get_identity`.
        """

    def parse_key_id(self, key: bytes | None, /) -> str:
        """Return the id in the key of a message, or an empty text if the key has none."""


EnvelopeParsers: TypeAlias = Mapping[str, EnvelopeParser]


class ContractEnvelopeParser:
    """Parses envelopes that follow the contract, except for the field with the application's id.

    Args:
        parent: The name of the field with the application's id, or a JSON pointer to it.
    """

    def __init__(self, parent: str) -> None:
        self.pointers: Mapping[str, str] = {
            name: as_pointer(parent if name == PARENT else name) for name in _FIELDS
        }
        self._attributes = [field.name for field in _FIELDS.values()]
        self._lookup = PointerLookup(
            [
                (pointer, Raw if name == "data" else _TYPES[_FIELDS[name].name])
                for name, pointer in self.pointers.items()
            ]
        )
        self._identity_lookup = PointerLookup([("/id", Raw), ("/version", Raw)])
        self._client_lookup = PointerLookup([("/clientId", Raw)])
        self._parent_lookup = PointerLookup([(self.pointers[PARENT], Raw), ("/updatedAt", Raw)])

    def parse_envelope(self, message: KafkaMessage) -> Envelope:
        """Return the envelope of a message. See `EnvelopeParser.parse_envelope`."""
        text = message.value or b""
        try:
            values = self._lookup(text)
        except msgspec.ValidationError:
            explanation = explain_wrong_fields(text, self.pointers, _FIELD_TYPES)
            raise RejectedMessageError(Reason.BAD_FIELD, explanation) from None
        attributes = {
            attribute: value
            for attribute, value in zip(self._attributes, values, strict=True)
            if value is not UNSET
        }
        for name, pointer in self.pointers.items():
            if _FIELDS[name].required and _FIELDS[name].name not in attributes:
                raise make_missing_field(name, pointer)
        return Envelope(**attributes)

    def get_empty_value_meaning(self, _: KafkaMessage) -> EmptyValueMeaning:
        """Return BAD: a message without a value has no fields, so it breaks the contract."""
        return EmptyValueMeaning.BAD

    def get_identity(self, message: KafkaMessage) -> RawIdentity:
        """Return id and version. See `EnvelopeParser.get_identity`."""
        return RawIdentity(*self._identity_lookup(message.value or b""))

    def get_client_id(self, message: KafkaMessage) -> object:
        """Return the clientId. See `EnvelopeParser.get_client_id`."""
        (value,) = self._client_lookup(message.value or b"")
        return None if value is UNSET else msgspec.json.decode(value)

    def get_parent_and_time(self, message: KafkaMessage) -> RawParentAndTime:
        """Return the application and the time. See `EnvelopeParser.get_parent_and_time`."""
        application, updated_at = self._parent_lookup(message.value or b"")
        return RawParentAndTime(parse_text(application), parse_text(updated_at))

    def parse_key_id(self, key: bytes | None) -> str:
        """Return the id in the key of a message. See `EnvelopeParser.parse_key_id`."""
        return parse_key_text(key)


def parse_key_text(key: bytes | None) -> str:
    """Return the text of a message's key, or an empty text if the key is not UTF-8.

    Some producers write the key as JSON: `"A1"` or `{"id": "A1"}`. For both, the text is A1, by
    which the pages of the document A1 find its messages.
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


class _JsonKey(msgspec.Struct):
    """A message key that is a JSON object."""

    id: str


def parse_text(value: Raw | UnsetType) -> str | None:
    """Return the text in a JSON string, or None if the value is absent or is not a string."""
    if not isinstance(value, Raw):
        return None
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class _FieldType(NamedTuple):
    """The values that a field of the contract may have."""

    faults_of_types: frozenset[str]  # the allowed types, each named by the Fault for this type
    min_length: int | None = None  # of a text
    max_length: int | None = None
    min_value: int | None = None  # of a number
    max_value: int | None = None


_FAULT_BY_TYPE: Final[Mapping[type[msgspec.inspect.Type], str]] = {
    msgspec.inspect.IntType: Fault.INTEGER,
    msgspec.inspect.StrType: Fault.TEXT,
    msgspec.inspect.NoneType: Fault.NULL,
}


def _describe_type(info: msgspec.inspect.Type) -> _FieldType:
    members = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    field_type = _FieldType(frozenset(_FAULT_BY_TYPE[type(member)] for member in members))
    for member in members:
        if isinstance(member, msgspec.inspect.StrType):
            field_type = field_type._replace(
                min_length=member.min_length, max_length=member.max_length
            )
        elif isinstance(member, msgspec.inspect.IntType):
            field_type = field_type._replace(min_value=member.ge, max_value=member.le)
    return field_type


_FIELD_TYPES: Final[Mapping[str, _FieldType]] = {
    name: _describe_type(msgspec.inspect.type_info(_TYPES[field.name]))
    for name, field in _FIELDS.items()
    if name != "data"
}


def make_missing_field(name: str, pointer: str | None = None) -> RejectedMessageError:
    """Return the error for a message without a field.

    Args:
        pointer: Where a declared envelope has the field. None: the contract's envelope.
    """
    parameters = {} if pointer is None else {"pointer": pointer}
    explanation = Explanation(Code.WRONG_FIELD, fault=Fault.MISSING, field=name, **parameters)
    return RejectedMessageError(Reason.BAD_FIELD, explanation)


def explain_wrong_fields(
    text: bytes | Raw,
    pointers: Mapping[str, str] | None,
    checked: Container[str] = (),
    at: str = "",
) -> Explanation:
    """Explain which field made msgspec refuse a text.

    The fields are checked in the order of the text, up to the first wrong field. The text after
    this field is not read, because msgspec did not check whether it is JSON.

    Args:
        text: A text that msgspec refused with a ValidationError.
        pointers: The JSON pointer of each field in a declared envelope. None for the contract's
            envelope: then all fields are checked.
        checked: The fields of a declared envelope with values that must follow the contract. Other
            fields can have any value. Every JSON value that encloses a field must be an object,
            even if the field is not in `checked`.
        at: The JSON pointer of `text` in the message, if `text` is only a part of the message.
    """
    json_text, explanation = bytes(text).decode("utf-8", "surrogateescape").lstrip(), None
    try:
        if not json_text.startswith("{"):
            explanation = _explain_no_object(_decode_first_value(json_text), at)
        elif pointers is None:
            explanation = _find_wrong_contract_field(json_text)
        else:
            paths = {name: tuple(split_pointer(pointer)) for name, pointer in pointers.items()}
            explanation = _find_wrong_value(_scan_members(json_text), paths, checked, at)
    except (ValueError, IndexError, RecursionError):
        pass
    return explanation or Explanation(Code.UNCLEAR_FIELD)


_JSON_DECODER: Final = json.JSONDecoder()
_JSON_SPACE: Final = re.compile(r"[ \t\n\r]*")


def _decode_first_value(json_text: str) -> object:
    """Return the JSON value at the start of a text, or [] if the value is a list."""
    return [] if json_text.startswith("[") else _JSON_DECODER.raw_decode(json_text)[0]


def _scan_members(json_text: str) -> Iterator[tuple[str, object]]:
    """Yield name and value of each member of the object at the start of a text, in order.

    Raises:
        ValueError, IndexError: The text after the last member that was yielded is not JSON.
    """

    def skip(index: int, expected: str = "") -> int:
        """Skip white space, the expected character, and white space; return the next index."""
        index = _JSON_SPACE.match(json_text, index).end()  # type: ignore[union-attr] # matches
        if not json_text.startswith(expected, index):
            raise ValueError
        return _JSON_SPACE.match(json_text, index + len(expected)).end()  # type: ignore[union-attr]

    index = skip(0, "{")
    while json_text[index] != "}":
        name, index = _JSON_DECODER.raw_decode(json_text, index)
        value, index = _JSON_DECODER.raw_decode(json_text, skip(index, ":"))
        yield name, value
        index = skip(index)
        if json_text[index] != "}":
            index = skip(index, ",")


def _find_wrong_contract_field(json_text: str) -> Explanation | None:
    """Explain the first wrong field of the contract's envelope, or else the first missing one."""
    names = set()
    for name, value in _scan_members(json_text):
        names.add(name)
        fault = _find_fault(name, value) if name in _FIELD_TYPES else None
        if fault is not None:
            return Explanation(Code.WRONG_FIELD, field=name, **fault)
    for name, field in _FIELDS.items():
        if field.required and name not in names:
            return make_missing_field(name).explanation
    return None


def _find_wrong_value(
    members: Iterable[tuple[str, object]],
    paths: Mapping[str, tuple[str, ...]],
    checked: Container[str],
    at: str,
) -> Explanation | None:
    """Explain the first wrong value in an object. Return None if no value is wrong.

    A value is wrong if the contract does not allow it for the field, or if the value should contain
    a field but is not an object.

    Args:
        members: The members of one object, in the order of the text.
        paths: For each field, the member names that lead from this object to it.
        checked: See `explain_wrong_fields`.
        at: The JSON pointer of this object in the message.
    """
    for member, value in members:
        pointer = f"{at}/{member.replace('~', '~0').replace('/', '~1')}"
        member_paths = {name: path[1:] for name, path in paths.items() if path[:1] == (member,)}
        inner_paths = {name: path for name, path in member_paths.items() if path}
        # A null counts as absent, unless it is itself a field and other fields should be inside.
        if value is None and (not inner_paths or len(inner_paths) == len(member_paths)):
            continue
        if inner_paths:
            if not isinstance(value, dict):
                return _explain_no_object(value, pointer)
            explanation = _find_wrong_value(value.items(), inner_paths, checked, pointer)
            if explanation is not None:
                return explanation
        for name, path in member_paths.items():
            fault = _find_fault(name, value) if not path and name in checked else None
            if fault is not None:
                return Explanation(Code.WRONG_FIELD, field=name, pointer=pointer, **fault)
    return None


def _explain_no_object(value: object, pointer: str) -> Explanation:
    """Return an explanation that says that a value should be an object."""
    parameters = {"pointer": pointer} if pointer else {}
    return Explanation(Code.WRONG_FIELD, fault=Fault.from_value(value), **parameters)


def explain_wrong_value(name: str, value: object, pointer: str) -> Explanation:
    """Explain why the contract does not allow a value for a field."""
    fault = _find_fault(name, value)
    if fault is None:
        return Explanation(Code.UNCLEAR_FIELD)
    return Explanation(Code.WRONG_FIELD, field=name, pointer=pointer, **fault)


def _find_fault(name: str, value: object) -> dict[str, str | int] | None:
    """Return the parameters of an Explanation for a wrong value, or None if it is allowed."""
    allowed, type_of_value = _FIELD_TYPES[name], Fault.from_value(value)
    if type_of_value not in allowed.faults_of_types:
        return {"fault": type_of_value}
    if isinstance(value, str):
        if allowed.min_length and not value:
            return {"fault": Fault.EMPTY}
        if allowed.max_length is not None and len(value) > allowed.max_length:
            return {"fault": Fault.TOO_LONG, "n": allowed.max_length}
    if isinstance(value, int):
        if allowed.min_value is not None and value < allowed.min_value:
            return {"fault": Fault.TOO_SMALL, "n": allowed.min_value}
        if allowed.max_value is not None and value > allowed.max_value:
            return {"fault": Fault.TOO_LARGE, "n": allowed.max_value}
    return None


_AT_BYTE: Final = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)", re.DOTALL)
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89aAbB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2})"
)


def explain_syntax_error(error: Exception, value: bytes) -> Explanation:
    """Explain why a value cannot be read as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return Explanation(Code.NOT_UTF8)
    if _LONE_SURROGATE.search(value):
        return Explanation(Code.LONE_SURROGATE)
    # msgspec names the position of a mistake only in the text of its error. The standard library's
    # JSONDecodeError has the position as a number, but is not a substitute: its decoder accepts
    # NaN, and for a misspelled true it names the first letter. If msgspec's text changes, only this
    # explanation gets worse.
    match = _AT_BYTE.fullmatch(str(error))
    if match is None:
        return Explanation(Code.TRUNCATED)
    return Explanation(Code.MALFORMED, what=match[1], n=int(match[2]))
