"""When the broker deletes the oldest unread message of a partition. Pure.

Apache Kafka deletes whole segments, the oldest first: by time when the newest message of a segment
is older than retention.ms, by size when retention.bytes remain without the segment. The last
segment takes messages until it is full or older than segment.ms; where the others end, no broker
says. It is computed from the first offset of the log, where a segment begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, inf

from ingest.forecast.facts import Log, Retention, Unread

TIME, SIZE, DELETED = "time", "size", "deleted"
# Sizes and rates are estimates: what begins a segment may be the end of the one before, which is
# deleted earlier. The forecast assumes that of the first part of each segment.
DOUBT = 0.03


@dataclass(frozen=True, slots=True)
class Forecast:
    """What happens to a partition if nothing more of it is read.

    at: when its oldest unread message is deleted, or, if all is read, the next one that comes; None
    if retention never deletes it. by: which limit does it (TIME, SIZE), or DELETED: some unread
    messages are gone already. unread: offsets at the broker that are not read. deleted: those
    that are gone. kept: for how many seconds a message that comes now is kept at least; None for
    ever.
    """

    at: float | None
    by: str
    unread: int
    deleted: int
    kept: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the brokers say about one partition. forecast: None if they do not say how long they
    keep its topic."""

    log: Log
    forecast: Forecast | None


def forecast(retention: Retention, log: Log, unread: Unread) -> Forecast:
    """The forecast for one partition. The broker looks at its segments every few minutes
    (log.retention.check.interval.ms) and deletes that much later."""
    count = max(0, log.end - max(unread.next, log.start))
    kept, _ = _loss(retention, log, float(log.end), log.at)
    kept_seconds = None if kept == inf else max(0.0, kept - log.at)
    if unread.next < log.start:
        return Forecast(log.at, DELETED, count, log.start - unread.next, kept_seconds)
    if count:
        end = segment_end(retention, log, unread)
        at, by = _loss(retention, log, end, _newest(log, unread, end))
    else:
        # Where the next message's segment ends is not known: it may be the last one in it.
        at, by = _loss(retention, log, float(log.end), log.at)
    return Forecast(None if at == inf else max(at, log.at), by, count, 0, kept_seconds)


def segment_end(retention: Retention, log: Log, unread: Unread) -> float:
    """The offset after the segment of the oldest unread message; beyond the end of the log if the
    segment still takes messages. Without the size of messages: the next offset, so that the
    forecast is too early at most."""
    if log.message_bytes is None:
        return unread.next + 1.0
    closes = _closes_by_time(retention, log, unread)
    if closes is not None and unread.oldest_at is not None:
        age = log.at - unread.oldest_at
        rate = (log.end - unread.next) / age if closes < log.at and age > 0 else log.arriving
        return max(unread.next + 1.0, unread.next + (closes - unread.oldest_at) * rate)
    held = max(1.0, retention.segment_bytes / log.message_bytes)
    return log.start + _number((unread.next - log.start) / held) * held


def _closes_by_time(retention: Retention, log: Log, unread: Unread) -> float | None:
    """When segment.ms ends the segment of the oldest unread message; None if segments are full
    before that."""
    if unread.start_at is None or unread.oldest_at is None or log.message_bytes is None:
        return None
    age = log.at - unread.start_at
    rate = (log.end - log.start) / age if age > 0 else log.arriving
    lasts = retention.segment_seconds
    if lasts <= 0 or rate * lasts * log.message_bytes > retention.segment_bytes:
        return None
    return unread.start_at + _number((unread.oldest_at - unread.start_at) / lasts) * lasts


def _number(segments: float) -> int:
    """At the end of which segment a message is lost that has this many segments before it."""
    return max(0, floor(segments - DOUBT)) + 1


def _newest(log: Log, unread: Unread, end: float) -> float | None:
    """The largest timestamp that the segment will have; None if no message has one."""
    if end > log.end and log.arriving > 0:
        # A segment that is older than segment.ms is closed by the next message.
        return log.at + (end - log.end) / log.arriving
    known = unread.oldest_at if unread.segment_at is None else unread.segment_at
    if known is None or unread.oldest_at is None:
        return known
    return max(known, unread.oldest_at)


def _loss(retention: Retention, log: Log, end: float, newest: float | None) -> tuple[float, str]:
    """When a segment is deleted, and by which limit. end: the offset after it. newest: its largest
    timestamp."""
    if not retention.deletes:
        return inf, ""
    by_time = by_size = inf
    if retention.seconds is not None and newest is not None:
        by_time = newest + retention.seconds
    if retention.bytes is not None and log.message_bytes is not None:
        missing = retention.bytes / log.message_bytes - (log.end - end)
        if missing <= 0:
            by_size = log.at
        elif log.arriving > 0:
            by_size = log.at + missing / log.arriving
    return (by_time, TIME if by_time < inf else "") if by_time <= by_size else (by_size, SIZE)
