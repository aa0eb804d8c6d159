"""The envelopes of topics that differ from the contract's."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history.documents.json_pointer import PointerLookup, split_pointer
from history.documents.record import MAX_VERSION
from history.kinds import EnvelopeDeclaration as Declared
from history.kinds import EnvelopeForm
from history.kinds.entities import BY_TOPIC, EntityKind
from ingest.messages.envelope import (
    PARENT,
    ContractEnvelope,
    EmptyValueMeaning,
    Envelope,
    EnvelopeParser,
    EnvelopeParsers,
    RawIdentity,
    RawPlace,
    explain_wrong_fields,
    explain_wrong_value,
    json_text,
    key_text,
    make_missing_field,
)
from ingest.messages.explanations import Code, Explanation, Fault
from ingest.messages.message import Message
from ingest.messages.rejection import Reason, RejectedMessage
from ingest.messages.unavailable import DEFAULT_PLACEHOLDER, Placeholder

_NULL: Final = b"null"
# Microseconds in a unit; of a nanosecond the other way round.
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - written without an offset, which is UTC
_FIELDS: Final = {field.encode_name: field.name for field in msgspec.structs.fields(Envelope)}
_TYPES: Final = get_type_hints(Envelope, include_extras=True)
_IDS: Final = ("id", PARENT)


class PlainEnvelope:
    """Parses any JSON: the fields are where the declaration says.
    pointers: by the contract's names."""

    def __init__(self, declared: Declared) -> None:
        self.pointers: Mapping[str, str] = dict(declared.places)
        self._types = dict(declared.types)
        self._unit = declared.time_unit
        self._client = declared.client
        self._lookup = JsonLookup(self.pointers)

    def without_value(self, _: Message) -> EmptyValueMeaning:
        return EmptyValueMeaning.BAD

    def read(self, message: Message) -> Envelope:
        values = _look_up_fields(self._lookup, message.value or b"")
        return self._build_envelope(values, values.get("data", UNSET))

    def name(self, message: Message) -> RawIdentity:
        return _get_identity(self._lookup(self._get_json(message)))

    def client_id(self, message: Message) -> object:
        if self._client is not None:
            return self._client
        return self._decode_client(self._lookup(self._get_json(message)))

    def _decode_client(self, values: Mapping[str, Raw]) -> object:
        return msgspec.json.decode(values.get("clientId", _NULL))

    def id_of_key(self, key: bytes | None) -> str:
        """Return the id that a key is: its text."""
        return key_text(key)

    def place(self, message: Message) -> RawPlace:
        values = self._lookup(self._get_json(message))
        return self._read_text(PARENT, values), self._read_text("updatedAt", values)

    def _read_text(self, name: str, values: Mapping[str, Raw]) -> str | None:
        """Return the text of a field, or None where it is missing or breaks its rule."""
        value = values.get(name)
        if value is None or bytes(value) == _NULL:
            return None
        try:
            return str(self._convert_value(name, value))
        except (msgspec.MsgspecError, RejectedMessage):
            return None

    def _get_json(self, message: Message) -> bytes:
        """What the pointers are into."""
        return message.value or b""

    def _build_envelope(self, values: Mapping[str, Raw], data: Raw | UnsetType) -> Envelope:
        """Return the envelope of these values, by the contract's names; null is absent.

        Raises:
            msgspec.DecodeError, RejectedMessage: See `EnvelopeParser.read`.
        """
        fields: dict[str, Any] = {"data": data, "type": None}
        for name, value in values.items():
            if name == "data" or bytes(value) == _NULL:
                continue
            fields[_FIELDS[name]] = self._convert_value(name, value)
        if self._client is not None:
            fields["client_id"] = self._client
        for name in ("id", "version", "updatedAt", "clientId"):
            if _FIELDS[name] not in fields:
                raise make_missing_field(name, self.pointers.get(name, name))
        return Envelope(**fields)

    def _parse_change_type(self, spelling: object) -> str:
        """Return CREATE, UPDATE or DELETE. Raises RejectedMessage."""
        change = None if isinstance(spelling, bool) else self._types.get(str(spelling))
        if change is None:
            words = ", ".join(self._types)
            raise RejectedMessage(
                Reason.BAD_TYPE, Explanation(Code.UNKNOWN_CHANGE_TYPE, words=words)
            )
        return change

    def _convert_value(self, name: str, value: Raw) -> Any:
        plain = msgspec.json.decode(value)
        if name == "type":
            return self._parse_change_type(plain)
        if name == "updatedAt" and self._unit is not None:
            return _format_time(plain, self._unit)
        if name in _IDS and isinstance(plain, int) and not isinstance(plain, bool):
            plain = str(plain)
        if name == "version" and isinstance(plain, str) and plain.isascii() and plain.isdigit():
            plain = int(_cut_digits(plain, 11))
        try:
            return msgspec.convert(plain, _TYPES[_FIELDS[name]])
        except msgspec.ValidationError:
            pointer = self.pointers.get(name, f"/{name}")
            raise RejectedMessage(
                Reason.BAD_FIELD, explain_wrong_value(name, plain, pointer)
            ) from None


class CloudEventsEnvelope(PlainEnvelope):
    """CloudEvents 1.0 in Kafka: structured mode as JSON, and binary mode, whose attributes are
    headers and whose value is the data. An event without data has null instead."""

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        wanted = {**self.pointers, "specversion": "/specversion", "base64": "/data_base64"}
        self._lookup = JsonLookup(wanted)
        names = {split_pointer(at)[0] for at in wanted.values()} - {"data", "data_base64"}
        self._headers = {f"ce_{name}": name for name in names}

    def without_value(self, message: Message) -> EmptyValueMeaning:
        return EmptyValueMeaning.READ if _is_binary(message) else EmptyValueMeaning.BAD

    def read(self, message: Message) -> Envelope:
        try:
            values = _look_up_fields(self._lookup, self._get_json(message))
        except RejectedMessage as error:
            if error.explanation.parameters.get("pointer") != "/data":
                raise
            explanation = Explanation(Code.DATA_NOT_AN_OBJECT, field="data")
            raise RejectedMessage(Reason.BAD_DATA, explanation) from None
        if bytes(values.pop("specversion", _NULL)) != b'"1.0"':
            raise RejectedMessage(
                Reason.BAD_FIELD, Explanation(Code.OTHER_SPECVERSION, field="specversion")
            )
        if values.pop("base64", None) is not None:
            raise RejectedMessage(Reason.BAD_DATA, Explanation(Code.BASE64_DATA))
        return self._build_envelope(values, values.get("data", Raw(_NULL)))

    def _get_json(self, message: Message) -> bytes:
        """The event in structured mode. Raises msgspec.DecodeError, UnicodeDecodeError."""
        value = message.value or b""
        if not _is_binary(message):
            return value
        data = msgspec.json.decode(value, type=Raw) if value else None
        attributes = {
            self._headers[name]: text.decode()
            for name, text in message.headers
            if name in self._headers and text is not None
        }
        return msgspec.json.encode({"data": data, **attributes})


class _DebeziumEvent(msgspec.Struct, gc=False):
    op: str | None = None
    before: Raw | UnsetType = UNSET
    after: Raw | UnsetType = UNSET
    source: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET


_DECODER: Final = msgspec.json.Decoder(_DebeziumEvent)


class DebeziumEnvelope(PlainEnvelope):
    """Debezium's change events as JSON, with or without `schema` and `payload`. Pointers are into
    the row; time and source are the event's where the row has none.

    A DELETE has the row as it was before, so its version is one more, and its time and source are
    the event's; who deleted it is not known. A tombstone says nothing new.
    """

    def __init__(self, declared: Declared) -> None:
        super().__init__(declared)
        of_source = {
            name: at
            for name, at in {"updatedAt": "/ts_ms", "clientId": "/name"}.items()
            if name not in self.pointers and (name != "clientId" or declared.client is None)
        }
        if "updatedAt" in of_source:
            self._unit = "ms"
        self._placeholder = Placeholder(declared.placeholder or DEFAULT_PLACEHOLDER)
        self._of_source = JsonLookup(of_source)
        self._of_deletion = JsonLookup({"updatedAt": "/ts_ms", "clientId": "/name"})
        self.pointers = {
            **self.pointers,
            **{name: f"/source{at}" for name, at in of_source.items()},
        }

    def without_value(self, _: Message) -> EmptyValueMeaning:
        return EmptyValueMeaning.REPEATED

    def read(self, message: Message) -> Envelope:
        event, change, row = self._split_event(message)
        if self._placeholder.is_in(bytes(row)):
            raise RejectedMessage(Reason.BAD_DATA, Explanation(Code.ROW_LACKS_VALUE))
        values = _look_up_fields(self._lookup, row)
        if change == "DELETE" and bytes(values.get("version", _NULL)) == _NULL:
            raise RejectedMessage(Reason.BAD_FIELD, Explanation(Code.ROW_IS_ONLY_KEY))
        if isinstance(event.source, Raw) and bytes(event.source) != _NULL:
            values |= _look_up_fields(self._of_source, event.source, at="/source")
        envelope = self._build_envelope(values, row)
        envelope.type = change
        if change == "DELETE":
            if envelope.version == MAX_VERSION:
                raise RejectedMessage(Reason.BAD_FIELD, Explanation(Code.DELETION_OUT_OF_RANGE))
            envelope.version += 1
            self._set_origin_of_deletion(envelope, event.source)
        return envelope

    def _set_origin_of_deletion(self, envelope: Envelope, source: Raw | UnsetType) -> None:
        """Set what the event of a deletion knows of it, and nothing of the change before."""
        values = (
            _look_up_fields(self._of_deletion, source, at="/source")
            if isinstance(source, Raw)
            else {}
        )
        at, name = (
            msgspec.json.decode(values.get(field, _NULL)) for field in ("updatedAt", "clientId")
        )
        if not isinstance(at, int) or not isinstance(name, str):
            raise RejectedMessage(
                Reason.BAD_FIELD, Explanation(Code.DELETION_WITHOUT_SOURCE, field="source")
            )
        envelope.author = None
        envelope.updated_at = _format_time(at, "ms")
        envelope.client_id = self._client or self._convert_value("clientId", values["clientId"])

    def name(self, message: Message) -> RawIdentity:
        _, change, row = self._split_event(message)
        id, version = _get_identity(self._lookup(row))
        digits = bytes(version) if isinstance(version, Raw) else b""
        # No more of them than a version can have: Python makes no number of thousands.
        if change == "DELETE" and digits.isdigit() and len(digits) <= len(str(MAX_VERSION)):
            version = Raw(str(int(digits) + 1).encode())
        return id, version

    def client_id(self, message: Message) -> object:
        if self._client is not None:
            return self._client
        event, _, row = self._split_event(message)
        values = self._lookup(row)
        if isinstance(event.source, Raw) and bytes(event.source) != _NULL:
            values |= self._of_source(event.source)
        return self._decode_client(values)

    def place(self, message: Message) -> RawPlace:
        event, change, row = self._split_event(message)
        values = self._lookup(row)
        application = self._read_text(PARENT, values)
        if isinstance(event.source, Raw) and bytes(event.source) != _NULL:
            values |= self._of_source(event.source)
        # The row of a deletion has the time of the change before it.
        updated_at = None if change == "DELETE" else self._read_text("updatedAt", values)
        return application, updated_at

    def id_of_key(self, key: bytes | None) -> str:
        """Return the id that the key of an event names, with or without `schema` and `payload`;
        empty where it names none."""
        try:
            event = _DECODER.decode(key or b"")
            row = event.payload if isinstance(event.payload, Raw) else (key or b"")
            id, _ = _get_identity(self._lookup(row))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return ""
        return json_text(id) or ""

    def _split_event(self, message: Message) -> tuple[_DebeziumEvent, str, Raw]:
        """Return the event, its type of change and its row."""
        event = _decode_event(message.value or b"")
        if event.op is None and isinstance(event.payload, Raw):
            event = _decode_event(event.payload, at="/payload")
        change = self._parse_change_type(event.op)
        row = event.before if change == "DELETE" else event.after
        if isinstance(row, Raw) and bytes(row).startswith(b"{"):
            return event, change, row
        explanation = (
            Explanation(Code.NO_ROW_BEFORE, field="before")
            if change == "DELETE"
            else Explanation(Code.NO_ROW, field="after")
        )
        raise RejectedMessage(Reason.BAD_DATA, explanation)


def _decode_event(text: bytes | Raw, at: str = "") -> _DebeziumEvent:
    """Decode the outer part of an event. Raises as `EnvelopeParser.read` does.

    Args:
        at: The pointer to the text.
    """
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(text)
        if isinstance(fields, dict):
            fault = Fault.of_value(fields.get("op"))
            explanation = Explanation(Code.WRONG_FIELD, field="op", fault=fault)
        else:
            explanation = explain_wrong_fields(text, {}, at=at)
        raise RejectedMessage(Reason.BAD_FIELD, explanation) from None


class JsonLookup:
    """The values at pointers of a JSON text, as JSON. Several names may have one pointer."""

    def __init__(self, pointers: Mapping[str, str]) -> None:
        self.pointers: Mapping[str, str] = dict(pointers)
        self._places = tuple(dict.fromkeys(pointers.values()))
        self._lookup = PointerLookup([(place, Raw) for place in self._places or ("",)])

    def __call__(self, text: bytes | Raw) -> dict[str, Raw]:
        """Return by name what is there. Raises msgspec.DecodeError, RecursionError."""
        values = dict(zip(self._places, self._lookup(text), strict=False))
        return {
            name: value
            for name, place in self.pointers.items()
            if (value := values[place]) is not UNSET
        }


def _look_up_fields(lookup: JsonLookup, text: bytes | Raw, at: str = "") -> dict[str, Raw]:
    """Look up fields. Raises as `EnvelopeParser.read` does.

    Args:
        at: The pointer to the text.
    """
    try:
        return lookup(text)
    except msgspec.ValidationError:
        explanation = explain_wrong_fields(text, lookup.pointers, at=at)
        raise RejectedMessage(Reason.BAD_FIELD, explanation) from None


_READERS: Final = {
    EnvelopeForm.PLAIN: PlainEnvelope,
    EnvelopeForm.CLOUDEVENTS: CloudEventsEnvelope,
    EnvelopeForm.DEBEZIUM: DebeziumEnvelope,
}


def create_parser(declared: Declared) -> EnvelopeParser:
    """What reads the envelopes that a kind declares."""
    return _READERS[declared.form](declared)


def _create_entity_parser(entity: EntityKind) -> EnvelopeParser | None:
    """None for the contract's envelopes."""
    if entity.envelope is not None:
        return create_parser(entity.envelope)
    return None if entity.parent in (None, PARENT) else ContractEnvelope(entity.parent)


def _is_binary(message: Message) -> bool:
    """As the specification tells them apart: by the content type."""
    has_version = False
    for name, value in message.headers:
        if name.lower() == "content-type":
            if (value or b"").lower().startswith(b"application/cloudevents"):
                return False
        elif name == "ce_specversion":
            has_version = True
    return has_version


def _format_time(value: object, unit: str) -> str:
    """An ISO 8601 text of a number since the epoch, truncated to microseconds."""
    if isinstance(value, str) and value.removeprefix("-").isdigit() and value.isascii():
        sign = "-" * value.startswith("-")
        value = int(sign + _cut_digits(value.removeprefix("-"), 25))
    if not isinstance(value, int) or isinstance(value, bool):
        raise RejectedMessage(Reason.BAD_TIME, Explanation(Code.TIME_NOT_A_NUMBER, unit=unit))
    microseconds = value // 1_000 if unit == "ns" else value * _UNITS[unit]
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()
    except OverflowError:
        raise RejectedMessage(
            Reason.BAD_TIME, Explanation(Code.TIME_OUT_OF_RANGE, unit=unit)
        ) from None


def _cut_digits(text: str, limit: int) -> str:
    """A number as text, cut where it is out of range anyway."""
    return text.lstrip("0")[:limit] or "0"


def _get_identity(values: Mapping[str, Raw]) -> RawIdentity:
    """Id and version as JSON, a number that is an id as a text."""
    id = values.get("id", UNSET)
    if isinstance(id, Raw) and bytes(id).isdigit():
        id = Raw(b'"' + bytes(id) + b'"')
    return id, values.get("version", UNSET)


DECLARED_PARSERS: EnvelopeParsers = {
    topic: parser
    for entity in BY_TOPIC.values()
    if (parser := _create_entity_parser(entity)) is not None
    for topic in entity.topics
}
