"""Finds out whether a topic partition is silent, and since when.

A topic partition is silent if no consumer reports about it, or if the consumer gets no answers from
the brokers, for more than a minute.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

# A topic partition without a report or an answer for longer than this is silent.
SILENT: Final = timedelta(minutes=1)


class Silence(NamedTuple):
    """The cause and the beginning of the silence of a topic partition."""

    brokers: bool  # True: the brokers do not answer the consumer. False: no consumer is running
    since: datetime  # when the brokers last answered, or when a consumer last reported

    def __str__(self) -> str:
        """Return the cause and the beginning as text, for the output of commands."""
        event = "no answer from Kafka" if self.brokers else "no consumer"
        return f"{event} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_silence(
    reported_at: datetime, end_known_at: datetime | None, now: datetime
) -> Silence | None:
    """Return the silence of a topic partition, or None if it is shorter than SILENT.

    Args:
        reported_at: When a consumer last reported about the topic partition.
        end_known_at: When the brokers last told a consumer the end offset. None: never.
    """
    if now - reported_at > SILENT:
        return Silence(False, reported_at)
    # Compared with the last report: without a running consumer, the brokers are not asked.
    if end_known_at is not None and reported_at - end_known_at > SILENT:
        return Silence(True, end_known_at)
    return None


def find_main_silence(silences: Iterable[Silence | None]) -> Silence | None:
    """Choose the silence to report for several topic partitions.

    A silence for lack of a consumer is chosen before a silence of the brokers. Of silences with the
    same cause, the longest is chosen.

    Args:
        silences: The silence of each topic partition. None: the topic partition is not silent.

    Returns:
        None if no topic partition is silent.
    """
    return min(filter(None, silences), default=None)
