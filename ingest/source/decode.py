"""Decodes one message into a record, or into the reason why it is bad. Pure.

The snapshot is not parsed, only its syntax is checked: it stays the bytes that came.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET, Raw, UnsetType

from history import exponents
from history.entities import BY_TOPIC
from history.nul_text import may_have_nul, to_store
from history.record import (
    ChangeType,
    Record,
)
from history.window import Window
from ingest.source.envelope import CONTRACT, Envelope, Shape, Shapes
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
_BRACE = ord("{")
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - compared with naive UTC
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
# Nearly all times are 2025-07-03T11:42:48 or 2025-07-03T11:42:48.510186035. Up to this length and
# with these separators, fromisoformat() accepts exactly the right ones.
LONGEST_PLAIN = 29


# decode() with the declared envelopes bound.
Decode = Callable[[Message, Window], Record]


def decode(message: Message, window: Window, shapes: Shapes = CONTRACT) -> Record:
    """The record of a message. shapes: the envelopes of topics that differ from the contract.

    Raises Rejected with the first rule that the message breaks, and Expired if it breaks none but
    is older than the window. Raises nothing else, whatever the bytes.
    """
    entity = BY_TOPIC.get(message.topic)
    if entity is None:
        raise Rejected(Reason.UNKNOWN_TOPIC, f"no entity is declared for topic {message.topic}")
    value = message.value
    if not value:
        raise Rejected(Reason.EMPTY, "the message has no value")
    envelope = _envelope(value, shapes.get(message.topic))
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
        _snapshot(envelope.data, kind, value, has_nul),
    )
    if has_nul and "\0" in f"{record.id}{record.client_id}{application}{record.author}":
        raise Rejected(
            Reason.BAD_TEXT, "a NUL character in id, clientId, author or productInstanceId"
        )
    if updated_at >= window.end:
        raise Rejected(Reason.FUTURE, f"updatedAt is after {window.newest}, the newest day kept")
    if updated_at < window.start:
        raise Expired(record)
    return record


def moment(text: str) -> int:
    """Microseconds since the epoch of an ISO 8601 time; UTC if it has no offset.

    A fraction of a second is truncated to six digits. Raises Rejected.
    """
    plain = (
        len(text) <= LONGEST_PLAIN
        and text[4:8:3] == "--"
        and text[10:17:3] == "T::"
        and (text[19:20] == "" or (text[19] == "." and text[20:21].isdigit()))
    )
    if not plain and _TIME.fullmatch(text) is None:
        raise Rejected(Reason.BAD_TIME, "updatedAt is not an ISO 8601 date and time")
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError as error:
        raise Rejected(Reason.BAD_TIME, f"updatedAt is not a valid time: {error}") from None
    since = parsed - (_EPOCH if parsed.tzinfo is None else _EPOCH_UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _envelope(value: bytes, shape: Shape | None) -> Envelope:
    try:
        return _DECODER.decode(value) if shape is None else shape.read(value)
    except msgspec.ValidationError as error:
        raise Rejected(Reason.BAD_FIELD, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(Reason.NOT_JSON, str(error)) from None
    except RecursionError:
        raise Rejected(Reason.TOO_DEEP, f"nested deeper than {MAX_NESTING} levels") from None


def _snapshot(raw: Raw | UnsetType, kind: int, message: bytes, has_nul: bool) -> bytes | memoryview:
    """The snapshot as a view of the message, without a copy unless the message has a NUL
    character."""
    if raw is not UNSET:
        data = memoryview(raw)
        if data[0] == _BRACE:
            if _may_be_deep(message) and _depth(bytes(data)) > MAX_NESTING:
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
    if len(message) <= 2 * MAX_NESTING:
        return False
    return len(message) - len(message.translate(None, b"{[")) > MAX_NESTING


_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


def _depth(data: bytes) -> int:
    """The deepest nesting of well-formed JSON text."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(data):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (b"]", b"}"):
            depth -= 1
    return deepest
