"""settings.INBOX, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outbox.conf import Given, KafkaSettings, is_number

# What the promises depend on.
FIXED_IN_KAFKA: Mapping[str, str | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}

_GIVEN = Given("INBOX")


@dataclass(frozen=True, slots=True)
class Conf:
    """The settings; each field is a key of settings.INBOX, in capitals.

    group: the consumer group. kafka: settings of librdkafka. keep_days: how long the inbox knows
    that it has processed a message, at least. attempts: before a message becomes a dead letter.
    seconds: the longest an attempt may take. retry_first_seconds, retry_most_seconds: the pause
    after the first failed attempt, and the longest one.
    """

    group: str
    kafka: KafkaSettings = field(default_factory=dict)
    keep_days: int = 7
    attempts: int = 10
    seconds: float = 60.0
    retry_first_seconds: float = 1.0
    retry_most_seconds: float = 300.0

    def __post_init__(self) -> None:
        require = _GIVEN.require
        require(isinstance(self.group, str) and bool(self.group), "GROUP must be a text")
        _GIVEN.kafka(self.kafka, FIXED_IN_KAFKA, "what is read must be stored first")
        require("group.id" not in self.kafka, "KAFKA: the group is the key GROUP")
        _GIVEN.keep_days(self.keep_days)
        require(
            isinstance(self.attempts, int) and is_number(self.attempts, 1),
            "ATTEMPTS must be a whole number, 1 or more",
        )
        _GIVEN.least("SECONDS", self.seconds, 0.1)
        _GIVEN.retries(self.retry_first_seconds, self.retry_most_seconds)


def read(given: object) -> Conf:
    """The settings in a dictionary like settings.INBOX. Raises WrongSettings."""
    return _GIVEN.read(Conf, given)


def conf() -> Conf:
    """The settings of this service. Raises WrongSettings."""
    return _own()


_own = _GIVEN.once(read)
