"""The fate of one message, named by its place in Kafka. The ledger is ingest's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection

from history import quarantined
from history.quarantined import Place
from history.record import UNSTORED_SPAN
from history.trace.fate import Fate, How, State
from history.trace.version import quarantined_fate

_LEDGER = """
    SELECT topic_id, first_offset, next_offset, high_watermark, checked_at,
        repeated + expired + skipped + quarantine_removed > 0, noted_from
    FROM ingest_ledger WHERE topic = %(topic)s AND partition = %(partition)s
        AND (%(topic_id)s = '' OR split_part(topic_id, '#', 1) = %(topic_id)s)
    ORDER BY checked_at DESC, topic_id DESC LIMIT 1
"""
_GAP = """
    SELECT lost, noticed_at FROM ingest_gap
    WHERE topic = %s AND topic_id = %s AND partition = %s
        AND start_offset <= %s AND end_offset > %s ORDER BY noticed_at DESC LIMIT 1
"""
_UNSTORED = """
    SELECT repeated, expired, skipped, noted_at FROM ingest_unstored
    WHERE topic = %s AND topic_id = %s AND partition = %s
        AND end_offset > %s AND end_offset <= %s AND start_offset <= %s
    ORDER BY noted_at DESC, id DESC
"""
_OUTCOMES = (
    (State.REPEATED, How.REPEATED),
    (State.EXPIRED, How.TOO_OLD),
    (State.UNKNOWN, How.NO_MESSAGE),
)


class Bounds(NamedTuple):
    """The first offset of a partition at the broker and its end. topic_id: of the topic at the
    broker; empty if that is not known."""

    low: int
    end: int
    topic_id: str = ""


class _Read(NamedTuple):
    """How far the partition was read. some_unstored: of some messages that did not become a row,
    that is not known from anything else than `ingest_unstored`."""

    topic_id: str
    first: int
    next: int
    end: int | None
    checked_at: datetime
    some_unstored: bool
    noted_from: int


def of_message(place: Place, broker: Bounds | None = None) -> Fate:
    """What became of a message of the topic as it is now. broker: what the broker has of its
    partition; without it the end that the consumer recorded last. Up to four queries."""
    topic_id = broker.topic_id if broker else ""
    row = _one(_LEDGER, {**place._asdict(), "topic_id": topic_id})
    read = _Read(*row) if row else None
    if read is None or place.offset >= read.next:
        return _ahead(place, read, broker)
    if place.offset < read.first:
        return Fate(state=State.UNKNOWN, how=How.BEFORE_FIRST, place=place)
    of = [place.topic, read.topic_id, place.partition]
    held = quarantined.at(place.topic, read.topic_id, place.partition, place.offset)
    if held is not None and held.outcome != "read again":
        return quarantined_fate(held)
    gap = _one(_GAP, [*of, place.offset, place.offset])
    if gap is not None:
        how = (State.LOST, How.LOST) if gap[0] else (State.UNKNOWN, How.NO_MESSAGE)
        return Fate(state=how[0], how=how[1], place=place, at=gap[1])
    return _unstored(place, of) or _stored(place, read)


def _ahead(place: Place, read: _Read | None, broker: Bounds | None) -> Fate:
    """A message that the consumer has not come to."""
    state, how, at = State.UNKNOWN, How.NOT_SENT, read.checked_at if read else None
    end = broker.end if broker else read.end if read else None
    if broker and place.offset < broker.low:
        state, how, at = State.LOST, How.LOST, None
    elif end is not None and place.offset < end:
        state, how = State.UNREAD, How.UNREAD
    elif end is None:
        how = How.NEVER_READ
    return Fate(state=state, how=how, place=place, at=None if broker else at)


def _unstored(place: Place, of: Sequence[Any]) -> Fate | None:
    with connection.cursor() as cursor:
        cursor.execute(_UNSTORED, [*of, place.offset, place.offset + UNSTORED_SPAN, place.offset])
        for *kinds, noted_at in cursor.fetchall():
            for (state, how), runs in zip(_OUTCOMES, kinds, strict=True):
                if _within(runs, place.offset):
                    return Fate(state=state, how=how, place=place, at=noted_at)
    return None


def _stored(place: Place, read: _Read) -> Fate:
    """What was read and is nothing else was stored. Of earlier offsets that is not certain."""
    certain = not read.some_unstored or place.offset >= read.noted_from
    how = How.READ if certain else How.READ_BEFORE_NOTES
    return Fate(state=State.STORED, how=how, place=place, certain=certain)


def _within(runs: Sequence[int], offset: int) -> bool:
    """runs: starts and ends in turn."""
    return any(start <= offset < end for start, end in zip(runs[::2], runs[1::2], strict=True))


def _one(statement: str, values: Sequence[Any] | Mapping[str, Any]) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchone()
