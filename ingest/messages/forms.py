"""Parses envelopes that differ from the contract's: other JSON, CloudEvents, Debezium.

Begin with `create_parser`. Each class below is an `EnvelopeParser` (envelope.py) for one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.documents.json_pointer import PointerLookup, split_pointer
from history.documents.record import MAX_VERSION
from history.kinds import EnvelopeDeclaration, EnvelopeForm
from history.kinds.entities import BY_TOPIC, EntityKind
from ingest.messages.debezium_placeholder import DEFAULT_PLACEHOLDER, Placeholder
from ingest.messages.envelope import (
    PARENT,
    ContractEnvelopeParser,
    EmptyValueMeaning,
    Envelope,
    EnvelopeParser,
    EnvelopeParsers,
    RawIdentity,
    RawParentAndTime,
    explain_wrong_fields,
    explain_wrong_value,
    make_missing_field,
    parse_key_text,
    parse_text,
)
from ingest.messages.explanations import Code, Explanation, Fault
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import Reason, RejectedMessageError

_NULL: Final = b"null"
# The attribute of Envelope for each field of the contract, and the types of these attributes.
_ATTRIBUTES: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Envelope)}
_TYPES: Final = get_type_hints(Envelope, include_extras=True)
_ID_FIELDS: Final = ("id", PARENT)


def create_parser(declaration: EnvelopeDeclaration) -> EnvelopeParser:
    """Return the parser of the envelopes that a kind declares."""
    match declaration.form:
        case EnvelopeForm.PLAIN:
            return JsonEnvelopeParser(declaration)
        case EnvelopeForm.CLOUDEVENTS:
            return CloudEventsParser(declaration)
        case EnvelopeForm.DEBEZIUM:
            return DebeziumParser(declaration)


class JsonEnvelopeParser:
    """Parses JSON of any form. The kind declares JSON pointers to the fields of the contract.

    Attributes:
        pointers: The JSON pointer of each declared field, by the field's name in the contract.
    """

    def __init__(self, declaration: EnvelopeDeclaration) -> None:
        self.pointers: Mapping[str, str] = dict(declaration.pointers)
        self._change_types = dict(declaration.types)
        self._time_unit = declaration.time_unit
        self._declared_client = declaration.client
        self._lookup = FieldLookup(self.pointers)

    def parse_envelope(self, message: KafkaMessage) -> Envelope:
        """Return the envelope of a message. See `EnvelopeParser.parse_envelope`."""
        values = _look_up_fields(self._lookup, message.value or b"")
        return self._build_envelope(values, values.get("data", UNSET))

    def get_empty_value_meaning(self, _: KafkaMessage) -> EmptyValueMeaning:
        """Return BAD: without its value, a message has no fields."""
        return EmptyValueMeaning.BAD

    def get_identity(self, message: KafkaMessage) -> RawIdentity:
        """Return the raw id and version. See `EnvelopeParser.get_identity`."""
        return _get_identity(self._lookup.find_values(self._get_json(message)))

    def get_client_id(self, message: KafkaMessage) -> object:
        """Return the client id. See `EnvelopeParser.get_client_id`."""
        if self._declared_client is not None:
            return self._declared_client
        return _decode_client_id(self._lookup.find_values(self._get_json(message)))

    def get_parent_and_time(self, message: KafkaMessage) -> RawParentAndTime:
        """Return the application and the time. See `EnvelopeParser.get_parent_and_time`."""
        values = self._lookup.find_values(self._get_json(message))
        return RawParentAndTime(
            self._read_text(PARENT, values), self._read_text("updatedAt", values)
        )

    def parse_key_id(self, key: bytes | None) -> str:
        """Return the id in the key of a message. See `EnvelopeParser.parse_key_id`."""
        return parse_key_text(key)

    def _get_json(self, message: KafkaMessage) -> bytes:
        """Return the JSON text in which the fields of the envelope are looked up."""
        return message.value or b""

    def _read_text(self, name: str, values: Mapping[str, Raw]) -> str | None:
        """Return the text of a field, or None if the field is missing or breaks its rule."""
        value = values.get(name)
        if value is None or bytes(value) == _NULL:
            return None
        try:
            return str(self._convert_value(name, value))
        except (msgspec.MsgspecError, RejectedMessageError):
            return None

    def _build_envelope(self, values: Mapping[str, Raw], data: Raw | UnsetType) -> Envelope:
        """Make an envelope from raw values. A null counts as absent.

        Args:
            values: The values by the names of their fields in the contract.
            data: The snapshot.

        Raises:
            msgspec.DecodeError, RejectedMessageError: See `EnvelopeParser.parse_envelope`.
        """
        attributes: dict[str, Any] = {"data": data, "type": None}
        for name, value in values.items():
            if name == "data" or bytes(value) == _NULL:
                continue
            attributes[_ATTRIBUTES[name]] = self._convert_value(name, value)
        if self._declared_client is not None:
            attributes["client_id"] = self._declared_client
        for name in ("id", "version", "updatedAt", "clientId"):
            if _ATTRIBUTES[name] not in attributes:
                raise make_missing_field(name, self.pointers.get(name, name))
        return Envelope(**attributes)

    def _convert_value(self, name: str, raw_value: Raw) -> Any:
        """Convert a value of a declared envelope to the form that the contract demands.

        Raises:
            msgspec.DecodeError, RejectedMessageError: See `EnvelopeParser.parse_envelope`.
        """
        value = msgspec.json.decode(raw_value)
        if name == "type":
            return self._parse_change_type(value)
        if name == "updatedAt" and self._time_unit is not None:
            return _format_time(value, self._time_unit)
        if name in _ID_FIELDS and isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if name == "version" and isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(_truncate_digits(value, 11))
        try:
            return msgspec.convert(value, _TYPES[_ATTRIBUTES[name]])
        except msgspec.ValidationError:
            pointer = self.pointers.get(name, f"/{name}")
            raise RejectedMessageError(
                Reason.BAD_FIELD, explain_wrong_value(name, value, pointer)
            ) from None

    def _parse_change_type(self, spelling: object) -> str:
        """Return the change type: CREATE, UPDATE or DELETE.

        Raises:
            RejectedMessageError: The kind does not declare this spelling.
        """
        change_type = None if isinstance(spelling, bool) else self._change_types.get(str(spelling))
        if change_type is None:
            words = ", ".join(self._change_types)
            raise RejectedMessageError(
                Reason.BAD_TYPE, Explanation(Code.UNKNOWN_CHANGE_TYPE, words=words)
            )
        return change_type


class CloudEventsParser(JsonEnvelopeParser):
    """Parses CloudEvents 1.0, in both modes of the specification for Kafka.

    In structured mode the value is the event as JSON. In binary mode the headers have the event's
    attributes, and the value has its data. Missing data counts as null.
    """

    def __init__(self, declaration: EnvelopeDeclaration) -> None:
        super().__init__(declaration)
        pointers = {**self.pointers, "specversion": "/specversion", "base64": "/data_base64"}
        self._lookup = FieldLookup(pointers)
        attributes = {split_pointer(pointer)[0] for pointer in pointers.values()}
        self._attributes_by_header = {
            f"ce_{attribute}": attribute for attribute in attributes - {"data", "data_base64"}
        }

    def parse_envelope(self, message: KafkaMessage) -> Envelope:
        """Return the envelope of a message. See `EnvelopeParser.parse_envelope`."""
        try:
            values = _look_up_fields(self._lookup, self._get_json(message))
        except RejectedMessageError as error:
            if error.explanation.parameters.get("pointer") != "/data":
                raise
            explanation = Explanation(Code.DATA_NOT_AN_OBJECT, field="data")
            raise RejectedMessageError(Reason.BAD_DATA, explanation) from None
        if bytes(values.pop("specversion", _NULL)) != b'"1.0"':
            raise RejectedMessageError(
                Reason.BAD_FIELD, Explanation(Code.OTHER_SPECVERSION, field="specversion")
            )
        if values.pop("base64", None) is not None:
            raise RejectedMessageError(Reason.BAD_DATA, Explanation(Code.BASE64_DATA))
        return self._build_envelope(values, values.get("data", Raw(_NULL)))

    def get_empty_value_meaning(self, message: KafkaMessage) -> EmptyValueMeaning:
        """Return READ if a message without a value is a CloudEvent in binary mode, otherwise BAD.

        READ tells the caller to decode the message: in binary mode, its headers have all fields of
        the envelope.
        """
        return EmptyValueMeaning.READ if _is_in_binary_mode(message) else EmptyValueMeaning.BAD

    def _get_json(self, message: KafkaMessage) -> bytes:
        """Return the CloudEvent as JSON in structured mode. Convert it if it is in binary mode.

        Raises:
            msgspec.DecodeError, UnicodeDecodeError: The value or a header cannot be read.
        """
        value = message.value or b""
        if not _is_in_binary_mode(message):
            return value
        data = msgspec.json.decode(value, type=Raw) if value else None
        attributes = {
            self._attributes_by_header[header]: text.decode()
            for header, text in message.headers
            if header in self._attributes_by_header and text is not None
        }
        return msgspec.json.encode({"data": data, **attributes})


def _is_in_binary_mode(message: KafkaMessage) -> bool:
    """Return whether a message is a CloudEvent in binary mode.

    By the specification, a content type of CloudEvents means structured mode.
    """
    has_version = False
    for name, value in message.headers:
        if name.lower() == "content-type":
            if (value or b"").lower().startswith(b"application/cloudevents"):
                return False
        elif name == "ce_specversion":
            has_version = True
    return has_version


class DebeziumParser(JsonEnvelopeParser):
    """Parses Debezium's change events in JSON.

    An event can be wrapped in an object with `schema` and `payload`. It contains a row of the
    source database. Fields are looked up in this row. If the declaration has no pointer for the
    time or the client id, the event's `source` has the value.

    The event of a DELETE has the row as it was before the deletion. So the version of the deletion
    is the version in this row plus one. The time and the client id of the deletion come from
    `source`, and the author is not known. The tombstone that follows a deletion counts as repeated.
    """

    def __init__(self, declaration: EnvelopeDeclaration) -> None:
        super().__init__(declaration)
        source_pointers = {
            name: pointer
            for name, pointer in _SOURCE_POINTERS.items()
            if name not in self.pointers and (name != "clientId" or declaration.client is None)
        }
        if "updatedAt" in source_pointers:
            self._time_unit = "ms"
        self._placeholder = Placeholder(declaration.placeholder or DEFAULT_PLACEHOLDER)
        self._source_lookup = FieldLookup(source_pointers)
        self._deletion_lookup = FieldLookup(_SOURCE_POINTERS)
        self.pointers = {
            **self.pointers,
            **{name: f"/source{pointer}" for name, pointer in source_pointers.items()},
        }

    def parse_envelope(self, message: KafkaMessage) -> Envelope:
        """Return the envelope of a message. See `EnvelopeParser.parse_envelope`."""
        event, change_type, row = self._split_event(message)
        if self._placeholder.is_in(bytes(row)):
            raise RejectedMessageError(Reason.BAD_DATA, Explanation(Code.ROW_LACKS_VALUE))
        values = _look_up_fields(self._lookup, row)
        is_deletion = change_type == "DELETE"
        if is_deletion and bytes(values.get("version", _NULL)) == _NULL:
            raise RejectedMessageError(Reason.BAD_FIELD, Explanation(Code.ROW_IS_ONLY_KEY))
        source = event.get_source()
        if source is not None:
            values |= _look_up_fields(self._source_lookup, source, pointer="/source")
        envelope = self._build_envelope(values, row)
        envelope.type = change_type
        if is_deletion:
            if envelope.version == MAX_VERSION:
                raise RejectedMessageError(
                    Reason.BAD_FIELD, Explanation(Code.DELETION_OUT_OF_RANGE)
                )
            envelope.version += 1
            self._set_origin_of_deletion(envelope, event.source)
        return envelope

    def get_empty_value_meaning(self, _: KafkaMessage) -> EmptyValueMeaning:
        """Return REPEATED: a message without a value is the tombstone after a deletion message."""
        return EmptyValueMeaning.REPEATED

    def get_identity(self, message: KafkaMessage) -> RawIdentity:
        """Return the raw id and version. See `EnvelopeParser.get_identity`."""
        _, change_type, row = self._split_event(message)
        id, version = _get_identity(self._lookup.find_values(row))
        digits = bytes(version) if isinstance(version, Raw) else b""
        # Python refuses to convert thousands of digits, so the length is checked first.
        if change_type == "DELETE" and digits.isdigit() and len(digits) <= len(str(MAX_VERSION)):
            version = Raw(str(int(digits) + 1).encode())
        return RawIdentity(id, version)

    def get_client_id(self, message: KafkaMessage) -> object:
        """Return the client id. See `EnvelopeParser.get_client_id`."""
        if self._declared_client is not None:
            return self._declared_client
        event, _, row = self._split_event(message)
        return _decode_client_id(self._find_row_and_source_values(event, row))

    def get_parent_and_time(self, message: KafkaMessage) -> RawParentAndTime:
        """Return the application and the time. See `EnvelopeParser.get_parent_and_time`."""
        event, change_type, row = self._split_event(message)
        application = self._read_text(PARENT, self._lookup.find_values(row))
        values = self._find_row_and_source_values(event, row)
        if change_type == "DELETE":  # the row has the time of the change before the deletion
            return RawParentAndTime(application, None)
        return RawParentAndTime(application, self._read_text("updatedAt", values))

    def parse_key_id(self, key: bytes | None) -> str:
        """Return the id in the key of an event's message, or an empty text if the key has none.

        The key can be wrapped in an object with `schema` and `payload`.
        """
        try:
            event = _EVENT_DECODER.decode(key or b"")
            row = event.payload if isinstance(event.payload, Raw) else (key or b"")
            id = _get_identity(self._lookup.find_values(row)).id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ""
        return parse_text(id) or ""

    def _split_event(self, message: KafkaMessage) -> _SplitEvent:
        """Return the event in a message, with its change type and its row.

        Raises:
            msgspec.DecodeError, RejectedMessageError: See `EnvelopeParser.parse_envelope`.
        """
        event = _decode_event(message.value or b"")
        if event.op is None and isinstance(event.payload, Raw):
            event = _decode_event(event.payload, pointer="/payload")
        change_type = self._parse_change_type(event.op)
        row = event.before if change_type == "DELETE" else event.after
        if isinstance(row, Raw) and bytes(row).startswith(b"{"):
            return _SplitEvent(event, change_type, row)
        explanation = (
            Explanation(Code.NO_ROW_BEFORE, field="before")
            if change_type == "DELETE"
            else Explanation(Code.NO_ROW, field="after")
        )
        raise RejectedMessageError(Reason.BAD_DATA, explanation)

    def _find_row_and_source_values(self, event: _DebeziumEvent, row: Raw) -> dict[str, Raw]:
        """Return the raw values of the declared fields, without a check of their types."""
        values = self._lookup.find_values(row)
        source = event.get_source()
        if source is not None:
            values |= self._source_lookup.find_values(source)
        return values

    def _set_origin_of_deletion(self, envelope: Envelope, source: Raw | UnsetType) -> None:
        """Set the time and client id of a deletion from `source`, and clear the author.

        The deleted row has the author, time and client id of an older change.

        Args:
            source: The field `source` of Debezium's change event.

        Raises:
            RejectedMessageError: `source` has no time or no client id.
        """
        values = (
            _look_up_fields(self._deletion_lookup, source, pointer="/source")
            if isinstance(source, Raw)
            else {}
        )
        time = msgspec.json.decode(values.get("updatedAt", _NULL))
        client_id = msgspec.json.decode(values.get("clientId", _NULL))
        if not isinstance(time, int) or not isinstance(client_id, str):
            raise RejectedMessageError(
                Reason.BAD_FIELD, Explanation(Code.DELETION_WITHOUT_SOURCE, field="source")
            )
        envelope.author = None
        envelope.updated_at = _format_time(time, "ms")
        envelope.client_id = self._declared_client or self._convert_value(
            "clientId", values["clientId"]
        )


# The JSON pointers in the `source` of a Debezium event, by field of the contract.
_SOURCE_POINTERS: Final[Mapping[str, str]] = {"updatedAt": "/ts_ms", "clientId": "/name"}


class _DebeziumEvent(msgspec.Struct, gc=False):
    """A change event with undecoded rows, or an object that has the event as its `payload`."""

    op: str | None = None  # the type of change
    before: Raw | UnsetType = UNSET  # the row before the change
    after: Raw | UnsetType = UNSET  # the row after the change
    source: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET

    def get_source(self) -> Raw | None:
        """Return `source`, or None if it is absent or null."""
        return self.source if isinstance(self.source, Raw) and bytes(self.source) != _NULL else None


class _SplitEvent(NamedTuple):
    event: _DebeziumEvent
    change_type: str  # CREATE, UPDATE or DELETE
    row: Raw  # the row before the change for a DELETE, otherwise the row after the change


_EVENT_DECODER: Final = msgspec.json.Decoder(_DebeziumEvent)


def _decode_event(text: bytes | Raw, pointer: str = "") -> _DebeziumEvent:
    """Decode a change event, but not its rows.

    Args:
        pointer: The JSON pointer of this text in the message.

    Raises:
        msgspec.DecodeError, RejectedMessageError: See `EnvelopeParser.parse_envelope`.
    """
    try:
        return _EVENT_DECODER.decode(text)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(text)
        if isinstance(fields, dict):
            fault = Fault.from_value(fields.get("op"))
            explanation = Explanation(Code.WRONG_FIELD, field="op", fault=fault)
        else:
            explanation = explain_wrong_fields(text, {}, at=pointer)
        raise RejectedMessageError(Reason.BAD_FIELD, explanation) from None


class FieldLookup:
    """Finds the raw values of fields in a JSON text.

    Args:
        pointers: The JSON pointers by field. Several fields may have the same pointer.
    """

    def __init__(self, pointers: Mapping[str, str]) -> None:
        self.pointers: Mapping[str, str] = dict(pointers)
        self._distinct_pointers = tuple(dict.fromkeys(pointers.values()))
        self._lookup = PointerLookup(
            [(pointer, Raw) for pointer in self._distinct_pointers or ("",)]
        )

    def find_values(self, text: bytes | Raw) -> dict[str, Raw]:
        """Return the values of the fields by name, without the fields that the text lacks.

        Raises:
            msgspec.ValidationError: A value that should contain a field is not an object.
            msgspec.DecodeError, RecursionError: The text is not JSON, or is nested too deep.
        """
        values = dict(zip(self._distinct_pointers, self._lookup(text), strict=False))
        return {
            name: value
            for name, pointer in self.pointers.items()
            if (value := values[pointer]) is not UNSET
        }


def _look_up_fields(lookup: FieldLookup, text: bytes | Raw, pointer: str = "") -> dict[str, Raw]:
    """Return the raw values of fields.

    Args:
        pointer: The JSON pointer of this text in the message.

    Raises:
        RejectedMessageError: A value that should contain a field is not an object. The error names
            this value.
        msgspec.DecodeError, RecursionError: See `EnvelopeParser.parse_envelope`.
    """
    try:
        return lookup.find_values(text)
    except msgspec.ValidationError:
        explanation = explain_wrong_fields(text, lookup.pointers, at=pointer)
        raise RejectedMessageError(Reason.BAD_FIELD, explanation) from None


def _get_identity(values: Mapping[str, Raw]) -> RawIdentity:
    """Return the raw id and version. An id that is a number becomes a text."""
    id = values.get("id", UNSET)
    if isinstance(id, Raw) and bytes(id).isdigit():
        id = Raw(b'"' + bytes(id) + b'"')
    return RawIdentity(id, values.get("version", UNSET))


def _decode_client_id(values: Mapping[str, Raw]) -> object:
    return msgspec.json.decode(values.get("clientId", _NULL))


_MICROSECONDS_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOSECONDS_PER_MICROSECOND: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - written without an offset, which is UTC


def _format_time(value: object, unit: str) -> str:
    """Return the ISO 8601 text of a time since the epoch, truncated to microseconds.

    Args:
        value: A whole number, or a text with its digits.
        unit: s, ms, us or ns.

    Raises:
        RejectedMessageError: The value is not a whole number, or is out of range.
    """
    if isinstance(value, str) and value.removeprefix("-").isdigit() and value.isascii():
        sign = "-" * value.startswith("-")
        value = int(sign + _truncate_digits(value.removeprefix("-"), 25))
    if not isinstance(value, int) or isinstance(value, bool):
        raise RejectedMessageError(Reason.BAD_TIME, Explanation(Code.TIME_NOT_A_NUMBER, unit=unit))
    if unit == "ns":
        microseconds = value // _NANOSECONDS_PER_MICROSECOND
    else:
        microseconds = value * _MICROSECONDS_PER_UNIT[unit]
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        raise RejectedMessageError(
            Reason.BAD_TIME, Explanation(Code.TIME_OUT_OF_RANGE, unit=unit)
        ) from None


def _truncate_digits(digits: str, limit: int) -> str:
    """Return the digits of a number without leading zeros, and at most `limit` of them.

    Python refuses to convert thousands of digits. The caller chooses `limit` so that every number
    of `limit` digits is out of range. So a longer number stays out of range when it is cut.
    """
    return digits.lstrip("0")[:limit] or "0"


def _create_entity_parser(entity: EntityKind) -> EnvelopeParser | None:
    """Return the parser for a kind's envelopes, or None for the envelope of the contract."""
    if entity.envelope is not None:
        return create_parser(entity.envelope)
    return None if entity.parent in (None, PARENT) else ContractEnvelopeParser(entity.parent)


# The parsers by topic. Topics with exactly the contract's envelope are left out, because decode.py
# parses their messages itself.
DECLARED_PARSERS: EnvelopeParsers = {
    topic: parser
    for entity in BY_TOPIC.values()
    if (parser := _create_entity_parser(entity)) is not None
    for topic in entity.topics
}
