"""Decodes one message into a record, or into the reason why it is bad. Pure.

The snapshot stays the bytes that came: only its syntax is checked and its search keys are read.
"""

import re
from datetime import UTC, date, datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET

from history.documents import jsonb
from history.documents.exactjson import is_deeper
from history.documents.jsonb import may_have_nul, to_store
from history.documents.record import ChangeType, Record
from history.kinds.entities import BY_TOPIC, EntityKind
from history.store.days.window import Window
from history.store.search_index.keys import LOOKUPS, UNREADABLE, DecodedValues
from ingest.messages.envelope import (
    RULES,
    TYPE_RULE,
    EmptyValueMeaning,
    Envelope,
    EnvelopeError,
    EnvelopeParser,
    EnvelopeParsers,
    explain_field_error,
    explain_syntax_error,
    name_declared_field,
)
from ingest.messages.forms import DECLARED_PARSERS
from ingest.messages.message import Message

MAX_NESTING = 500


class Reason(StrEnum):
    """Why a message is in quarantine."""

    EMPTY = "empty_value"
    NOT_JSON = "not_json"
    BAD_FIELD = "bad_field"
    BAD_TYPE = "bad_type"
    BAD_TIME = "bad_updated_at"
    BAD_DATA = "bad_data"
    NO_APPLICATION = "no_product_instance_id"
    TOO_DEEP = "nested_too_deep"
    TOO_LARGE = "too_large"
    FUTURE = "in_the_future"
    UNKNOWN_TOPIC = "unknown_topic"
    BAD_TEXT = "text_not_storable"
    BAD_NUMBER = "number_out_of_range"
    NOT_STORABLE = "not_storable"
    DIVERGENT = "divergent_duplicate"
    NO_PARTITION = "no_partition"


class RejectedMessage(Exception):
    """Raised for a message that breaks the contract. `detail` quotes nothing of the document."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class RepeatedMessage(RejectedMessage):
    """Raised for a message that says nothing new, in an envelope where that is usual."""


class ExpiredVersion(Exception):
    """Raised for a version that is older than the window. It is stored if its day exists."""

    def __init__(self, record: Record) -> None:
        super().__init__("older than the window")
        self.record = record


class DecodedMessage(msgspec.Struct, frozen=True, gc=False):
    """A message with what its decoding gave: a record, a reason why it is bad, or neither."""

    message: Message
    size: int  # bytes of key, value and headers
    record: Record | None = None  # None if the message is bad or says nothing new
    search_keys: DecodedValues | None = None  # what the record has at its search keys, if looked up
    is_expired: bool = False  # the record is older than the window
    reason: Reason | None = None  # why the message is bad
    detail: str = ""  # a sentence for the quarantine, without content of the document


_DECODER = msgspec.json.Decoder(Envelope)
_TYPES: dict[int | str | None, int] = {
    spelling: int(kind)
    for kind in ChangeType
    for spelling in (kind.name, int(kind), str(int(kind)))
}
_TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?",
    re.ASCII,
)
_BRACE, _BACKSLASH, _SPACE = ord("{"), ord("\\"), ord(" ")
_DATA, _NO_DATA = b'"data":', b'"data":null}'
# The length of the shortest envelope with all required fields, without its data.
_SHORTEST = len('{"id":"1","version":1,"type":1,"updatedAt":"2026-01-01","clientId":"1"')
_NOT_A_TIME = (
    "`updatedAt` must look like 2025-07-03T11:42:48.510186035, then Z, an offset such as +03:00, or"
    " nothing"
)
_NO_SUCH_TIME = (
    "`updatedAt` is a time that does not exist: its year, month, day, hour, minute or second is out"
    " of range"
)
_AHEAD = (
    "`updatedAt` is after {} in UTC, the last day that is accepted; check the clock and the offset"
    " of the service"
)
_NO_VALUE = "the message has no value; a deletion is a message whose `type` is DELETE"
_NO_TYPE = f"`type` is missing or another word; it must be {TYPE_RULE}"
_NO_APPLICATION = "`{field}` is missing or empty; it must be " + RULES["productInstanceId"]
_NUL = "`id`, `clientId`, `author` or `productInstanceId` has a NUL character; only `data` may"
_NO_DATA_RULE = f"`data` is missing or no object; it must be {RULES['data']}"
_TOO_DEEP = f"the message is nested deeper than {MAX_NESTING} levels"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - compared with naive UTC
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# Nearly all times look like 2025-07-03T11:42:48.510186035, with or without Z. For these
# fromisoformat() accepts the right ones; other forms are checked by the regular expression.
LONGEST_FRACTION = 9


class Decoder:
    """Decodes messages.

    Args:
        shapes: The parsers of topics whose envelope differs from the contract.
    """

    def __init__(self, shapes: EnvelopeParsers = DECLARED_PARSERS) -> None:
        self._shapes = shapes

    def __call__(self, message: Message, window: Window) -> Record:
        """Return the record of a message.

        Raises:
            RejectedMessage: With the first rule that the message breaks.
            RepeatedMessage: The message says nothing new.
            ExpiredVersion: The message is good, but older than the window.
        """
        return self.decode_with_keys(message, window)[0]

    def decode_with_keys(
        self, message: Message, window: Window
    ) -> tuple[Record, DecodedValues | None]:
        """Return the record and the values of its search keys for `NewKeys.add`.

        The values are None if they were not looked up. Raises the same errors as a call.
        """
        topic, value = message.topic, message.value
        entity = BY_TOPIC.get(topic)
        if entity is None:
            raise RejectedMessage(
                Reason.UNKNOWN_TOPIC, f"no kind of entity is declared for topic {topic}"
            )
        shape = self._shapes.get(topic)
        if not value:
            value = _check_empty_value(message, shape)
        parts = _split_message(value, entity) if shape is None else None
        if parts is None:
            envelope, found = _decode_envelope(message, value, shape), None
            data = None if envelope.data is UNSET else memoryview(envelope.data)
        else:
            envelope, data, found = parts
        kind = _TYPES.get(envelope.rev_type if envelope.type is None else envelope.type)
        if kind is None:
            raise RejectedMessage(Reason.BAD_TYPE, _name_declared_field(_NO_TYPE, shape))
        application = None
        if entity.parent is not None:
            application = envelope.product_instance_id
            if not application:
                raise RejectedMessage(
                    Reason.NO_APPLICATION, _NO_APPLICATION.format(field=entity.parent)
                )
        updated_at = parse_time(envelope.updated_at, shape)
        has_nul = may_have_nul(value)
        record = Record(
            entity.name,
            envelope.id,
            envelope.version,
            kind,
            updated_at,
            envelope.client_id,
            envelope.author or None,
            application,
            _check_snapshot(data, kind, value, has_nul, shape),
        )
        if has_nul and "\0" in f"{record.id}{record.client_id}{application}{record.author}":
            raise RejectedMessage(Reason.BAD_TEXT, _NUL)
        if updated_at >= window.end:
            raise RejectedMessage(
                Reason.FUTURE, _name_declared_field(_AHEAD.format(window.newest), shape)
            )
        if updated_at < window.start:
            raise ExpiredVersion(record)
        return record, found


# With the contract's envelopes.
decode = Decoder()


def decode_message(message: Message, window: Window) -> DecodedMessage:
    """Decode a message without raising. `window`: the days that are accepted."""
    size = message.size
    try:
        record, search_keys = decode.decode_with_keys(message, window)
    except RepeatedMessage:
        return DecodedMessage(message, size)
    except RejectedMessage as error:
        return DecodedMessage(message, size, reason=error.reason, detail=error.detail)
    except ExpiredVersion as error:
        return DecodedMessage(message, size, error.record, is_expired=True)
    return DecodedMessage(message, size, record, search_keys)


def parse_time(text: str, shape: EnvelopeParser | None = None) -> int:
    """Return the microseconds since the epoch of an ISO 8601 time, truncated.

    A time without an offset is UTC. Raises RejectedMessage.

    Args:
        shape: The parser of the declared envelope in which the time came.
    """
    separators = text[4:20:3]
    if separators == "--T::.":
        fraction = text[20:].removesuffix("Z")
        plain = fraction.isdigit() and len(fraction) <= LONGEST_FRACTION and text.isascii()
    else:
        plain = separators == "--T::"
    if not plain and _TIME.fullmatch(text) is None:
        raise RejectedMessage(Reason.BAD_TIME, _name_declared_field(_NOT_A_TIME, shape))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        wrong = _NOT_A_TIME if _TIME.fullmatch(text) is None else _NO_SUCH_TIME
        raise RejectedMessage(Reason.BAD_TIME, _name_declared_field(wrong, shape)) from None
    elapsed = parsed - (_EPOCH if parsed.tzinfo is None else _EPOCH_UTC)
    return (elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds


def _split_message(
    value: bytes, entity: EntityKind
) -> tuple[Envelope, memoryview, DecodedValues] | None:
    """Split a message that ends with its snapshot, in one pass; None if it does not."""
    lookup = LOOKUPS[entity.name]
    name = value.find(_DATA, _SHORTEST)
    if lookup is None or name < 0 or value[name - 1] == _BACKSLASH or value[-2:] != b"}}":
        return None
    start = name + len(_DATA)
    if value[start] == _SPACE:
        start += 1
    if value[start] != _BRACE:
        return None
    data = memoryview(value)[start:-1]
    try:
        return _DECODER.decode(value[:name] + _NO_DATA), data, lookup.decode(data)
    except UNREADABLE:
        return None


def _name_declared_field(sentence: str, shape: EnvelopeParser | None) -> str:
    """Return the sentence with the field's name in the envelope of its topic."""
    return sentence if shape is None else name_declared_field(sentence, shape.pointers)


def _check_empty_value(message: Message, shape: EnvelopeParser | None) -> bytes:
    """Return an empty value if the headers say everything; otherwise raise."""
    meaning = EmptyValueMeaning.BAD if shape is None else shape.without_value(message)
    if meaning is EmptyValueMeaning.READ:
        return b""
    raise (RepeatedMessage if meaning is EmptyValueMeaning.REPEATED else RejectedMessage)(
        Reason.EMPTY, _NO_VALUE
    )


def _decode_envelope(message: Message, value: bytes, shape: EnvelopeParser | None) -> Envelope:
    try:
        return _DECODER.decode(value) if shape is None else shape.read(message)
    except EnvelopeError as error:
        raise RejectedMessage(Reason(error.reason), str(error)) from None
    except msgspec.ValidationError as error:
        pointers = None if shape is None else shape.pointers
        raise RejectedMessage(Reason.BAD_FIELD, explain_field_error(str(error), pointers)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RejectedMessage(Reason.NOT_JSON, explain_syntax_error(error, value)) from None
    except RecursionError:
        raise RejectedMessage(Reason.TOO_DEEP, _TOO_DEEP) from None


def _check_snapshot(
    data: memoryview | None, kind: int, message: bytes, has_nul: bool, shape: EnvelopeParser | None
) -> bytes | memoryview:
    """Return the snapshot as a view of the message, or a copy if it has a NUL character."""
    if data is not None:
        if data[0] == _BRACE:
            if _may_be_deep(message) and is_deeper(bytes(data), MAX_NESTING):
                raise RejectedMessage(Reason.TOO_DEEP, _TOO_DEEP)
            digits = jsonb.count_excess_digits(data)
            if digits:
                raise RejectedMessage(
                    Reason.TOO_LARGE,
                    f"the exponents of the numbers in `data` stand for {digits} digits; at most"
                    f" {jsonb.MAX_DIGITS} can be returned",
                )
            return to_store(bytes(data)) if has_nul else data
        if kind == ChangeType.DELETE and bytes(data) == b"null":
            return data
    raise RejectedMessage(Reason.BAD_DATA, _name_declared_field(_NO_DATA_RULE, shape))


def _may_be_deep(message: bytes) -> bool:
    """Return False if there are too few brackets. Cheap: called for every message."""
    return (
        len(message) > 2 * MAX_NESTING and message.count(b"{") + message.count(b"[") > MAX_NESTING
    )


# How many bytes of a bad message are searched for updatedAt.
SEARCHED_BYTES = 65_536
_UPDATED_AT = re.compile(rb'"updatedAt"\s*:\s*"([^"\\]{10,40})"')


def guess_day(value: bytes | None) -> date | None:
    """Return the UTC day of the first `updatedAt` in the bytes, or None if there is none."""
    match = _UPDATED_AT.search(value or b"", 0, SEARCHED_BYTES)
    if match is None:
        return None
    try:
        moment = datetime.fromisoformat(match[1].decode("ascii"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).date()
    except (ValueError, OverflowError):
        return None
