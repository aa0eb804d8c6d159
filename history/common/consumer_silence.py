"""Finds out for how long a topic partition has had no news, and who is the cause."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

SILENT: Final = timedelta(minutes=1)


class Silence(NamedTuple):
    """A time without news of a topic partition.

    Attributes:
        brokers: True if a consumer reports but the brokers do not answer it. False if no consumer
            reports.
    """

    brokers: bool
    since: datetime

    def __str__(self) -> str:
        """Return the silence as the output of commands shows it."""
        event = "no answer from Kafka" if self.brokers else "no consumer"
        return f"{event} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_silence(seen: datetime, end_known_at: datetime | None, now: datetime) -> Silence | None:
    """Return the silence about a topic partition, or None if it is shorter than SILENT.

    Args:
        seen: When a consumer last reported.
        end_known_at: When the brokers last told a consumer the end of the topic partition. Without
            a running consumer they are not asked.
    """
    if now - seen > SILENT:
        return Silence(False, seen)
    if end_known_at is not None and seen - end_known_at > SILENT:
        return Silence(True, end_known_at)
    return None


def find_longest_silence(silences: Iterable[Silence | None]) -> Silence | None:
    """Return the most important silence, or None if there is none.

    A missing consumer comes before brokers that do not answer: only a consumer asks the brokers.
    Among equal ones the longest silence is returned.
    """
    return min(filter(None, silences), default=None)
