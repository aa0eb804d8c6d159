"""Decodes one message into a record, or into the reason why it is bad. Pure. Of the snapshot only
the syntax is checked and its business keys are looked up: it stays the bytes that came."""

import re
from datetime import UTC, date, datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET

from history.daily.window import Window
from history.documents import jsonb
from history.documents.exactjson import is_deeper
from history.documents.jsonb import may_have_nul, to_store
from history.entities import BY_TOPIC, Entity
from history.record import ChangeType, Record
from history.search_index.keys import LOOKUPS, UNREADABLE, Found
from ingest.source.envelope import (
    RULES,
    TYPE_RULE,
    Envelope,
    EnvelopeError,
    Reader,
    Shapes,
    WithoutValue,
    field,
    placed,
    syntax,
)
from ingest.source.forms import DECLARED
from ingest.source.message import Message

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


class Rejected(Exception):
    """The message breaks the contract. detail: a sentence without content of the document."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class Repeated(Rejected):
    """The message says nothing new, in an envelope where that is usual."""


class Expired(Exception):
    """The version is older than the window. It is still stored if its day exists."""

    def __init__(self, record: Record) -> None:
        super().__init__("older than the window")
        self.record = record


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
# No envelope with what is required is shorter without its data.
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
# Nearly all times are 2025-07-03T11:42:48 or 2025-07-03T11:42:48.510186035, maybe with Z: of these
# fromisoformat() accepts the right ones. Longer and other fractions are left to the expression.
LONGEST_FRACTION = 9


class Decode:
    """Decodes messages. shapes: the envelopes of topics that differ from the contract."""

    def __init__(self, shapes: Shapes = DECLARED) -> None:
        self._shapes = shapes

    def __call__(self, message: Message, window: Window) -> Record:
        """The record of a message. Raises Rejected with the first rule that it breaks, Repeated if
        it says nothing new, Expired if it is good but too old; nothing else."""
        return self.read(message, window)[0]

    def read(self, message: Message, window: Window) -> tuple[Record, Found | None]:
        """The record, and what it has at the entity's search keys, for NewKeys.add(); None if that
        was not looked up. Raises as a call does."""
        topic, value = message.topic, message.value
        entity = BY_TOPIC.get(topic)
        if entity is None:
            raise Rejected(Reason.UNKNOWN_TOPIC, f"no kind of entity is declared for topic {topic}")
        shape = self._shapes.get(topic)
        if not value:
            value = _without_value(message, shape)
        parts = _parts(value, entity) if shape is None else None
        if parts is None:
            envelope, found = _envelope(message, value, shape), None
            data = None if envelope.data is UNSET else memoryview(envelope.data)
        else:
            envelope, data, found = parts
        kind = _TYPES.get(envelope.rev_type if envelope.type is None else envelope.type)
        if kind is None:
            raise Rejected(Reason.BAD_TYPE, _placed(_NO_TYPE, shape))
        application = None
        if entity.parent is not None:
            application = envelope.product_instance_id
            if not application:
                raise Rejected(Reason.NO_APPLICATION, _NO_APPLICATION.format(field=entity.parent))
        updated_at = moment(envelope.updated_at, shape)
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
            _snapshot(data, kind, value, has_nul, shape),
        )
        if has_nul and "\0" in f"{record.id}{record.client_id}{application}{record.author}":
            raise Rejected(Reason.BAD_TEXT, _NUL)
        if updated_at >= window.end:
            raise Rejected(Reason.FUTURE, _placed(_AHEAD.format(window.newest), shape))
        if updated_at < window.start:
            raise Expired(record)
        return record, found


# With the contract's envelopes.
decode = Decode()


def moment(text: str, shape: Reader | None = None) -> int:
    """Microseconds since the epoch of an ISO 8601 time, truncated; UTC if it has no offset. shape:
    the declared envelope that it came in. Raises Rejected."""
    separators = text[4:20:3]
    if separators == "--T::.":
        fraction = text[20:].removesuffix("Z")
        plain = fraction.isdigit() and len(fraction) <= LONGEST_FRACTION and text.isascii()
    else:
        plain = separators == "--T::"
    if not plain and _TIME.fullmatch(text) is None:
        raise Rejected(Reason.BAD_TIME, _placed(_NOT_A_TIME, shape))
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        wrong = _NOT_A_TIME if _TIME.fullmatch(text) is None else _NO_SUCH_TIME
        raise Rejected(Reason.BAD_TIME, _placed(wrong, shape)) from None
    since = parsed - (_EPOCH if parsed.tzinfo is None else _EPOCH_UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _parts(value: bytes, entity: Entity) -> tuple[Envelope, memoryview, Found] | None:
    """The parts of a message that ends with its snapshot, in one pass, or None."""
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


def _placed(sentence: str, shape: Reader | None) -> str:
    """The sentence, with the field as the envelope of its topic calls it."""
    return sentence if shape is None else placed(sentence, shape.pointers)


def _without_value(message: Message, shape: Reader | None) -> bytes:
    """The empty value of a message whose headers say all. Raises Rejected, Repeated."""
    what = WithoutValue.BAD if shape is None else shape.without_value(message)
    if what is WithoutValue.READ:
        return b""
    raise (Repeated if what is WithoutValue.REPEATED else Rejected)(Reason.EMPTY, _NO_VALUE)


def _envelope(message: Message, value: bytes, shape: Reader | None) -> Envelope:
    try:
        return _DECODER.decode(value) if shape is None else shape.read(message)
    except EnvelopeError as error:
        raise Rejected(Reason(error.reason), str(error)) from None
    except msgspec.ValidationError as error:
        pointers = None if shape is None else shape.pointers
        raise Rejected(Reason.BAD_FIELD, field(str(error), pointers)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(Reason.NOT_JSON, syntax(error, value)) from None
    except RecursionError:
        raise Rejected(Reason.TOO_DEEP, _TOO_DEEP) from None


def _snapshot(
    data: memoryview | None, kind: int, message: bytes, has_nul: bool, shape: Reader | None
) -> bytes | memoryview:
    """The snapshot as a view of the message, a copy only if it has a NUL character."""
    if data is not None:
        if data[0] == _BRACE:
            if _may_be_deep(message) and is_deeper(bytes(data), MAX_NESTING):
                raise Rejected(Reason.TOO_DEEP, _TOO_DEEP)
            digits = jsonb.too_many_digits(data)
            if digits:
                raise Rejected(
                    Reason.TOO_LARGE,
                    f"the exponents of the numbers in `data` stand for {digits} digits; at most"
                    f" {jsonb.MOST_DIGITS} can be returned",
                )
            return to_store(bytes(data)) if has_nul else data
        if kind == ChangeType.DELETE and bytes(data) == b"null":
            return data
    raise Rejected(Reason.BAD_DATA, _placed(_NO_DATA_RULE, shape))


def _may_be_deep(message: bytes) -> bool:
    """False if there are too few brackets. Cheap: it is called for every message."""
    return (
        len(message) > 2 * MAX_NESTING and message.count(b"{") + message.count(b"[") > MAX_NESTING
    )


# updatedAt is searched for in the first part of a message.
SEARCHED_BYTES = 65_536
_UPDATED_AT = re.compile(rb'"updatedAt"\s*:\s*"([^"\\]{10,40})"')


def guess_day(value: bytes | None) -> date | None:
    """The UTC day of the first updatedAt in the bytes; None if there is no such time."""
    found = _UPDATED_AT.search(value or b"", 0, SEARCHED_BYTES)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1].decode("ascii"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).date()
    except (ValueError, OverflowError):
        return None
