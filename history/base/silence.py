"""Who is silent about a topic partition, consumer or brokers, and since when: for screens, alerts
and commands alike."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

SILENT: Final = timedelta(minutes=1)


class Who(StrEnum):
    """Who is silent about a topic partition: no consumer reports, or the brokers do not answer one
    that does."""

    CONSUMER = "consumer"
    BROKERS = "brokers"


class Silence(NamedTuple):
    """Who is silent, and since when."""

    who: Who
    since: datetime

    def __str__(self) -> str:
        """For commands."""
        what = "no consumer" if self.who is Who.CONSUMER else "no answer from Kafka"
        return f"{what} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def silence(seen: datetime, end_known_at: datetime | None, now: datetime) -> Silence | None:
    """Who has been silent for longer than SILENT. seen: when a consumer last reported.
    end_known_at: when the brokers last answered it; a consumer that is away does not ask them."""
    if now - seen > SILENT:
        return Silence(Who.CONSUMER, seen)
    if end_known_at is not None and seen - end_known_at > SILENT:
        return Silence(Who.BROKERS, end_known_at)
    return None


def longest(found: Iterable[Silence | None]) -> Silence | None:
    """That of a consumer, if there is one: nobody else asks the brokers."""
    there = [each for each in found if each is not None]
    return min(there, key=lambda each: (each.who is Who.BROKERS, each.since), default=None)
