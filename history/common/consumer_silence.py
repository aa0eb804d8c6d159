"""Finds out whether a topic partition is silent, and since when.

It is silent if no consumer runs, or if the brokers do not answer the consumer.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

# Without news for longer than this, a topic partition is silent.
SILENT: Final = timedelta(minutes=1)


class Silence(NamedTuple):
    """A period in which no news of a topic partition arrived."""

    brokers: bool  # True: the brokers do not answer the consumer. False: no consumer is running
    since: datetime  # when the last news arrived

    def __str__(self) -> str:
        """Return the silence as the output of commands shows it."""
        event = "no answer from Kafka" if self.brokers else "no consumer"
        return f"{event} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_silence(
    reported_at: datetime, end_known_at: datetime | None, now: datetime
) -> Silence | None:
    """Return the silence of a topic partition, or None if it is shorter than SILENT.

    Args:
        reported_at: When a consumer last reported about the topic partition.
        end_known_at: When the brokers last told a consumer the end offset, which only a running
            consumer asks for. None: never.
    """
    if now - reported_at > SILENT:
        return Silence(False, reported_at)
    if end_known_at is not None and reported_at - end_known_at > SILENT:
        return Silence(True, end_known_at)
    return None


def find_main_silence(silences: Iterable[Silence | None]) -> Silence | None:
    """Return the most important of some silences, or None if there is none.

    A missing consumer is more important than brokers that do not answer, because only a consumer
    asks the brokers. Of two silences with the same cause, the longer one is more important.
    """
    return min(filter(None, silences), default=None)
