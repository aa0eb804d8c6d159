"""When the brokers delete what is not read yet. Pure. Times are seconds
since 1970. Brokers delete whole segments, so a forecast is too early at most."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

# Messages per second of one consumer, where none has measured it yet: below every measured rate.
ASSUMED_RATE = 5_000.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the brokers keep a topic, from its configuration: the limits, None for none.
    deletes: False if only compaction removes messages."""

    seconds: float | None
    bytes: int | None
    deletes: bool = True

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> Retention | None:
        """From the names and values that a broker answers, the broker's defaults among them. None
        if it does not give them: some brokers answer only what was set for the topic."""
        try:
            policies = configuration["cleanup.policy"].replace(" ", "").split(",")
            seconds = int(configuration["retention.ms"]) / 1000
            size = int(configuration["retention.bytes"])
        except (KeyError, ValueError):
            return None
        return cls(
            seconds if seconds >= 0 else None, size if size >= 0 else None, "delete" in policies
        )


@dataclass(frozen=True, slots=True)
class Log:
    """One partition at the broker at the moment `at`. start, end: its first offset and the one
    after its last. arriving: offsets per second. message_bytes: of one message, or None."""

    at: float
    start: int
    end: int
    arriving: float
    message_bytes: float | None = None


class Seen(NamedTuple):
    """The end offset of a partition at a time (Unix), and how many came per second before."""

    at: float
    end: int
    arriving: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What happens to a partition if nothing more of it is read. at: when its oldest unread
    message, or the next one that comes, is deleted; None for never. unread: offsets. deleted: those
    that are gone. kept: for how many seconds a message that comes now is kept at least; None for
    ever."""

    at: float | None
    unread: int
    deleted: int
    kept: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the brokers say of one partition. forecast: None if retention is not known."""

    log: Log
    forecast: Forecast | None


def forecast(
    retention: Retention, log: Log, next_offset: int, oldest_at: float | None = None
) -> Forecast:
    """The forecast for one partition that is read up to next_offset. oldest_at: the time of the
    message there, None if not known. A producer may set it, and retention.ms counts from it. The
    broker looks every few minutes (log.retention.check.interval.ms) and deletes that much later."""
    unread = max(0, log.end - max(next_offset, log.start))
    next_gone = _loss(retention, log, 0, log.at)
    kept = None if next_gone == inf else max(0.0, next_gone - log.at)
    if next_offset < log.start:
        return Forecast(log.at, unread, log.start - next_offset, kept)
    at = _loss(retention, log, unread, oldest_at) if unread else next_gone
    return Forecast(None if at == inf else max(at, log.at), unread, 0, kept)


def _loss(retention: Retention, log: Log, newer: int, time: float | None) -> float:
    """When a message is deleted. newer: how many come after it. time: its own."""
    if not retention.deletes:
        return inf
    by_time = by_size = inf
    if retention.seconds is not None and time is not None:
        by_time = time + retention.seconds
    if retention.bytes is not None and log.message_bytes is not None:
        missing = retention.bytes / log.message_bytes - newer
        if missing <= 0:
            by_size = log.at
        elif log.arriving > 0:
            by_size = log.at + missing / log.arriving
    return min(by_time, by_size)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is not read of one partition. unread: offsets. arriving: offsets per second. seconds:
    until the first is lost, or inf. kept: seconds for a message that comes now, or inf."""

    unread: int
    arriving: float
    seconds: float
    kept: float = inf


def catch_up(backlogs: Mapping[P, Backlog], rate: float) -> dict[P, float]:
    """Seconds until each partition is read to its end, at the latest: when all are; inf if as many
    messages come as are read. rate: of all partitions together, in messages per second."""
    net = rate - sum(each.arriving for each in backlogs.values())
    all_read = sum(each.unread for each in backlogs.values()) / net if net > 0 else inf
    return {place: all_read if each.unread else 0.0 for place, each in backlogs.items()}
