"""When the brokers delete unread messages. Pure functions; times are seconds since 1970.

Brokers delete whole segments, so a forecast may be too early but not too late.
"""

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
    """How long the brokers keep a topic. None stands for no limit.

    `deletes` is False if only compaction removes messages.
    """

    seconds: float | None
    bytes: int | None
    deletes: bool = True

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> Retention | None:
        """Read the configuration of a topic, the defaults of the broker included.

        None if they are missing: some brokers answer only what was set for the topic.
        """
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
class PartitionLog:
    """The log of one topic partition at the broker at one moment.

    Attributes:
        at: The moment, in seconds since 1970.
        start: The first offset.
        end: The offset after the last one.
        arriving: Offsets that arrive each second.
        message_bytes: The mean size of a message, or None.
    """

    at: float
    start: int
    end: int
    arriving: float
    message_bytes: float | None = None


class SeenEnd(NamedTuple):
    """The end offset of a topic partition at a moment, and how many arrived each second before."""

    at: float
    end: int
    arriving: float


@dataclass(frozen=True, slots=True)
class DeletionForecast:
    """What happens to a topic partition if nothing more of it is read.

    Attributes:
        at: When its oldest unread message, or else the next one, is deleted; None for never.
        unread: The number of unread offsets.
        deleted: The number of offsets that were deleted unread.
        kept: For how many seconds at least a new message is kept; None for ever.
    """

    at: float | None
    unread: int
    deleted: int
    kept: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the brokers answer about one topic partition; no forecast if retention is unknown."""

    log: PartitionLog
    forecast: DeletionForecast | None


def forecast_deletion(
    retention: Retention, log: PartitionLog, next_offset: int, oldest_at: float | None = None
) -> DeletionForecast:
    """Return the forecast of a topic partition that is read up to `next_offset`.

    The broker looks every few minutes (log.retention.check.interval.ms) and deletes that much
    later.

    Args:
        retention: How long the topic is kept.
        log: The topic partition at the broker.
        next_offset: The first unread offset.
        oldest_at: The time of the message there, from which retention.ms counts and which a
            producer may set; None if unknown.
    """
    unread = max(0, log.end - max(next_offset, log.start))
    next_gone = _predict_deletion(retention, log, 0, log.at)
    kept_seconds = None if next_gone == inf else max(0.0, next_gone - log.at)
    if next_offset < log.start:
        return DeletionForecast(log.at, unread, log.start - next_offset, kept_seconds)
    at = _predict_deletion(retention, log, unread, oldest_at) if unread else next_gone
    return DeletionForecast(None if at == inf else max(at, log.at), unread, 0, kept_seconds)


def _predict_deletion(
    retention: Retention, log: PartitionLog, newer: int, time: float | None
) -> float:
    """Return when a message is deleted.

    `newer` is how many messages follow it, `time` its own time.
    """
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
    """The unread messages of one topic partition.

    Attributes:
        unread: The number of unread offsets.
        arriving: Offsets that arrive each second.
        seconds: Until the first unread message is lost; inf for never.
        kept: For how many seconds a new message is kept; inf for ever.
    """

    unread: int
    arriving: float
    seconds: float
    kept: float = inf


def compute_catch_up(backlogs: Mapping[P, Backlog], rate: float) -> dict[P, float]:
    """Return the seconds until each topic partition is read to its end, at the latest.

    inf if as many messages arrive as are read. `rate` is the messages per second that are read of
    all topic partitions together.
    """
    net = rate - sum(backlog.arriving for backlog in backlogs.values())
    all_read = sum(backlog.unread for backlog in backlogs.values()) / net if net > 0 else inf
    return {place: all_read if backlog.unread else 0.0 for place, backlog in backlogs.items()}
