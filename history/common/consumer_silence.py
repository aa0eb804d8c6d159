"""Who is silent about a topic partition, and since when: for screens, alerts and commands."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

SILENT: Final = timedelta(minutes=1)


class Silence(NamedTuple):
    """How long the store has had no news of its topics.

    Attributes:
        brokers: Whether a consumer reports and the brokers do not answer it. Otherwise no consumer
            reports.
    """

    brokers: bool
    since: datetime

    def __str__(self) -> str:
        """Describe the silence for the output of commands."""
        event = "no answer from Kafka" if self.brokers else "no consumer"
        return f"{event} since {self.since.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def find_silence(seen: datetime, end_known_at: datetime | None, now: datetime) -> Silence | None:
    """Return the silence, or None if it is not longer than SILENT.

    Args:
        seen: When a consumer last reported.
        end_known_at: When the brokers last answered the consumer. A stopped consumer does not ask
            them.
    """
    if now - seen > SILENT:
        return Silence(False, seen)
    if end_known_at is not None and seen - end_known_at > SILENT:
        return Silence(True, end_known_at)
    return None


def find_longest_silence(silences: Iterable[Silence | None]) -> Silence | None:
    """Return the longest silence.

    A missing consumer counts first: only a consumer asks the brokers.
    """
    return min(filter(None, silences), default=None)
