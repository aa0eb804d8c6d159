"""Decodes one message into a record, or into the reason why it is bad. Pure.

The snapshot is not parsed, only its syntax is checked and its business keys are looked up: it stays
the bytes that came.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET

from history import exponents
from history.deepjson import is_deeper
from history.entities import BY_TOPIC, Entity
from history.nul_text import may_have_nul, to_store
from history.record import (
    ChangeType,
    Record,
)
from history.search_index.keys import LOOKUPS, UNREADABLE, Found
from history.window import Window
from ingest.source.envelope import CONTRACT, Envelope, Shape, Shapes
from ingest.source.message import Message

MAX_NESTING = 500
_FEW = 8


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
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d([.,]\d{1,9})?)?(Z|[+-]\d\d(:?\d\d)?)?", re.ASCII
)
_BRACE, _BACKSLASH, _SPACE = ord("{"), ord("\\"), ord(" ")
_DATA, _NO_DATA = b'"data":', b'"data":null}'
# No envelope with what is required is shorter without its data.
_SHORTEST = len('{"id":"1","version":1,"type":1,"updatedAt":"2026-01-01","clientId":"1"')
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - compared with naive UTC
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# Nearly all times are 2025-07-03T11:42:48 or 2025-07-03T11:42:48.510186035. Up to this length and
# with these separators, fromisoformat() accepts exactly the right ones.
LONGEST_PLAIN = 29


class Decode:
    """Decodes messages. shapes: the envelopes of topics that differ from the contract."""

    def __init__(self, shapes: Shapes = CONTRACT) -> None:
        self._shapes = shapes

    def __call__(self, message: Message, window: Window) -> Record:
        """The record of a message.

        Raises Rejected with the first rule that the message breaks, and Expired if it breaks none
        but is older than the window. Raises nothing else, whatever the bytes.
        """
        return self.read(message, window)[0]

    def read(self, message: Message, window: Window) -> tuple[Record, Found | None]:
        """The record, and what it has at the entity's search keys, for NewKeys.add(); None if that
        was not looked up. Raises as a call does."""
        topic, value = message.topic, message.value
        entity = BY_TOPIC.get(topic)
        if entity is None:
            raise Rejected(Reason.UNKNOWN_TOPIC, f"no entity is declared for topic {topic}")
        if not value:
            raise Rejected(Reason.EMPTY, "the message has no value")
        shape = self._shapes.get(topic)
        parts = _parts(value, entity) if shape is None else None
        if parts is None:
            envelope, found = _envelope(value, shape), None
            data = None if envelope.data is UNSET else memoryview(envelope.data)
        else:
            envelope, data, found = parts
        kind = _TYPES.get(envelope.rev_type if envelope.type is None else envelope.type)
        if kind is None:
            raise Rejected(Reason.BAD_TYPE, "type is not CREATE, UPDATE, DELETE, 0, 1 or 2")
        application = None
        if not entity.root:
            application = envelope.product_instance_id
            if not application:
                raise Rejected(Reason.NO_APPLICATION, "productInstanceId is missing or empty")
        updated_at = moment(envelope.updated_at)
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
            _snapshot(data, kind, value, has_nul),
        )
        if has_nul and "\0" in f"{record.id}{record.client_id}{application}{record.author}":
            raise Rejected(
                Reason.BAD_TEXT, "a NUL character in id, clientId, author or productInstanceId"
            )
        if updated_at >= window.end:
            raise Rejected(
                Reason.FUTURE, f"updatedAt is after {window.newest}, the newest day kept"
            )
        if updated_at < window.start:
            raise Expired(record)
        return record, found


# With the contract's envelopes.
decode = Decode()


def moment(text: str) -> int:
    """Microseconds since the epoch of an ISO 8601 time; UTC if it has no offset.

    A fraction of a second is truncated to six digits. Raises Rejected.
    """
    separators = text[4:20:3]
    plain = len(text) <= LONGEST_PLAIN and (
        separators == "--T::" or (separators == "--T::." and text[20:21].isdigit())
    )
    if not plain and _TIME.fullmatch(text) is None:
        raise Rejected(Reason.BAD_TIME, "updatedAt is not an ISO 8601 date and time")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise Rejected(Reason.BAD_TIME, f"updatedAt is not a valid time: {error}") from None
    since = parsed - (_EPOCH if parsed.tzinfo is None else _EPOCH_UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _parts(value: bytes, entity: Entity) -> tuple[Envelope, memoryview, Found] | None:
    """The parts of a message that ends with its snapshot, in one pass over that; None if the
    message may be another one, whatever it is.

    What precedes the name "data" is an envelope without it exactly if it is one with null in the
    place of the rest: a name within a text or within another object would leave that open.
    """
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


def _envelope(value: bytes, shape: Shape | None) -> Envelope:
    try:
        return _DECODER.decode(value) if shape is None else shape.read(value)
    except msgspec.ValidationError as error:
        raise Rejected(Reason.BAD_FIELD, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(Reason.NOT_JSON, str(error)) from None
    except RecursionError:
        raise Rejected(Reason.TOO_DEEP, f"nested deeper than {MAX_NESTING} levels") from None


def _snapshot(
    data: memoryview | None, kind: int, message: bytes, has_nul: bool
) -> bytes | memoryview:
    """The snapshot as a view of the message, without a copy unless the message has a NUL
    character."""
    if data is not None:
        if data[0] == _BRACE:
            if _may_be_deep(message) and is_deeper(bytes(data), MAX_NESTING):
                raise Rejected(Reason.TOO_DEEP, f"nested deeper than {MAX_NESTING} levels")
            digits = exponents.too_many_digits(data)
            if digits:
                raise Rejected(
                    Reason.TOO_LARGE,
                    f"the exponents of its numbers stand for {digits} digits, more than"
                    f" {exponents.MOST_DIGITS}",
                )
            return to_store(bytes(data)) if has_nul else data
        if kind == ChangeType.DELETE and bytes(data) == b"null":
            return data
    raise Rejected(Reason.BAD_DATA, "data is not an object (null is allowed for DELETE only)")


def _may_be_deep(message: bytes) -> bool:
    """False if there are too few brackets. Cheap: it is called for every message."""
    size = len(message)
    if size <= 2 * MAX_NESTING:
        return False
    # A level takes five bytes, {"":}, unless it is an array, which takes two.
    if 5 * MAX_NESTING - size > 3 * _FEW:
        at, found = message.find(b"["), 0
        while at >= 0 and found < _FEW:
            at, found = message.find(b"[", at + 1), found + 1
        if at < 0:
            return False
    return size - len(message.translate(None, b"{[")) > MAX_NESTING
