"""Who is silent about a topic partition, and since when: for screens, alerts and commands."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

SILENT: Final = timedelta(minutes=1)


class Silence(NamedTuple):
    """brokers: they do not answer a consumer that reports; else no consumer reports."""

    brokers: bool
    since: datetime

    def __str__(self) -> str:
        """For commands."""
        event = "no answer from Kafka" if self.brokers else "no consumer"
        return f"{event} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_silence(seen: datetime, end_known_at: datetime | None, now: datetime) -> Silence | None:
    """The silence that is longer than SILENT. seen: when a consumer last reported. end_known_at:
    when the brokers last answered it; a consumer that is away does not ask them."""
    if now - seen > SILENT:
        return Silence(False, seen)
    if end_known_at is not None and seen - end_known_at > SILENT:
        return Silence(True, end_known_at)
    return None


def find_longest_silence(silences: Iterable[Silence | None]) -> Silence | None:
    """That of a consumer, if there is one: nobody else asks the brokers."""
    return min(filter(None, silences), default=None)
