"""Forecasts when the brokers delete unread messages. Times are in seconds since 1970.

Begin with `forecast_deletion`. Brokers delete whole segments, so a forecast may be too early but
not too late. No function here reads a clock or asks a broker.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, TypeVar

P = TypeVar("P", bound=Hashable)

# How many messages a consumer is assumed to read in a second before its rate has been measured.
# This is less than any rate that was measured.
ASSUMED_RATE = 5_000.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the brokers keep the messages of a topic. None stands for no limit."""

    seconds: float | None
    bytes: int | None
    deletes: bool = True  # False if only compaction removes messages

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str]) -> Retention | None:
        """Return the retention that the configuration of a topic sets.

        Return None if a setting is missing. Some brokers answer only with the settings of the topic
        itself, without the brokers' defaults.
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
    """The log of a topic partition, as the broker reported it.

    Attributes:
        at: When it was reported, in seconds since 1970.
        start: The first offset.
        end: The end offset.
        arriving: The number of offsets that arrive in a second.
        message_bytes: The mean size of a message; None if it is not known.
    """

    at: float
    start: int
    end: int
    arriving: float
    message_bytes: float | None = None


class SeenEnd(NamedTuple):
    """An end offset of a topic partition, and the arrival rate that was measured with it."""

    at: float  # when the brokers reported the end offset, in seconds since 1970
    end: int
    arriving: float  # offsets in a second, measured until `at`


@dataclass(frozen=True, slots=True)
class DeletionForecast:
    """The forecast for a topic partition if a consumer reads no further message of it.

    Attributes:
        at: When the broker deletes the oldest unread message, in seconds since 1970. If no message
            is unread, this is when the broker deletes a message that arrives now. None: never.
        unread: The number of unread offsets.
        deleted: The number of offsets that the broker has deleted before they were read.
        kept_seconds: How long, at least, the broker keeps a message that arrives now. None: for
            ever.
    """

    at: float | None
    unread: int
    deleted: int
    kept_seconds: float | None


@dataclass(frozen=True, slots=True)
class LogForecast:
    """The log of one topic partition at the broker, and the forecast of its losses."""

    log: PartitionLog
    forecast: DeletionForecast | None  # None if the retention is not known


def forecast_deletion(
    retention: Retention, log: PartitionLog, next_offset: int, oldest_at: float | None = None
) -> DeletionForecast:
    """Return the forecast of a topic partition that is read up to `next_offset`.

    The broker checks its segments every few minutes (log.retention.check.interval.ms), so
    messages may be deleted a few minutes later than forecast.

    Args:
        retention: How long the broker keeps messages of the topic.
        log: The topic partition at the broker.
        next_offset: The first unread offset.
        oldest_at: The timestamp of the first unread message; None if it is not known. Retention by
            time counts from this timestamp, which a producer may have set.
    """
    unread = max(0, log.end - max(next_offset, log.start))
    new_message_deleted_at = _predict_deletion(retention, log, newer=0, time=log.at)
    kept_seconds = (
        None if new_message_deleted_at == inf else max(0.0, new_message_deleted_at - log.at)
    )
    if next_offset < log.start:
        return DeletionForecast(log.at, unread, log.start - next_offset, kept_seconds)
    deleted_at = new_message_deleted_at
    if unread:
        deleted_at = _predict_deletion(retention, log, newer=unread, time=oldest_at)
    at = None if deleted_at == inf else max(deleted_at, log.at)
    return DeletionForecast(at, unread, 0, kept_seconds)


def _predict_deletion(
    retention: Retention, log: PartitionLog, newer: int, time: float | None
) -> float:
    """Return when the broker deletes a message; inf if the broker never deletes it.

    Args:
        newer: The number of messages in the partition after this message.
        time: The timestamp of the message; None if it is not known.
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
        arriving: The number of offsets that arrive in a second.
        loss_seconds: The time until the first unread message is lost; inf if none is.
        kept_seconds: How long the broker keeps a new message; inf without a limit.
    """

    unread: int
    arriving: float
    loss_seconds: float
    kept_seconds: float = inf


def compute_catch_up(backlogs: Mapping[P, Backlog], rate: float) -> dict[P, float]:
    """Return by topic partition how many seconds it takes, at most, to read it to its end.

    The number is inf if messages arrive at least as fast as they are read.

    Args:
        rate: The number of messages read in a second, from all topic partitions together.
    """
    net_rate = rate - sum(backlog.arriving for backlog in backlogs.values())
    unread = sum(backlog.unread for backlog in backlogs.values())
    seconds = unread / net_rate if net_rate > 0 else inf
    return {name: seconds if backlog.unread else 0.0 for name, backlog in backlogs.items()}
