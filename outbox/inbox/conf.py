"""settings.INBOX, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from outbox.conf import KafkaSettings
from outbox.errors import WrongSettings
from outbox.ring import MOST_DAYS

# What the promises depend on.
FIXED_IN_KAFKA: Mapping[str, str | bool] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
}


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
        _require(isinstance(self.group, str) and bool(self.group), "GROUP must be a text")
        _require(isinstance(self.kafka, Mapping), "KAFKA must map names of librdkafka to values")
        for name, value in FIXED_IN_KAFKA.items():
            given = str(self.kafka.get(name, value)).lower()
            _require(
                given == str(value).lower(),
                f"KAFKA: {name} must be {str(value).lower()}: what is read must be stored first",
            )
        _require("group.id" not in self.kafka, "KAFKA: the group is the key GROUP")
        _require(
            isinstance(self.keep_days, int) and 1 <= self.keep_days <= MOST_DAYS,
            f"KEEP_DAYS must be a whole number from 1 to {MOST_DAYS}",
        )
        _require(
            isinstance(self.attempts, int) and _is_number(self.attempts, 1),
            "ATTEMPTS must be a whole number, 1 or more",
        )
        _require(_is_number(self.seconds, 0.1), "SECONDS must be 0.1 or more")
        _require(
            _is_number(self.retry_first_seconds, 0.01), "RETRY_FIRST_SECONDS must be 0.01 or more"
        )
        _require(
            _is_number(self.retry_most_seconds, self.retry_first_seconds),
            "RETRY_MOST_SECONDS must be RETRY_FIRST_SECONDS or more",
        )


def read(given: Mapping[str, Any]) -> Conf:
    """The settings in a dictionary like settings.INBOX. Raises WrongSettings."""
    known = {each.name.upper(): each.name for each in fields(Conf)}
    _require(isinstance(given, Mapping), "must be a dictionary")
    unknown = [str(name) for name in given if name not in known]
    _require(not unknown, f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    _require("GROUP" in given, "missing: GROUP")
    return Conf(**{known[name]: value for name, value in given.items()})


@lru_cache(maxsize=1)
def conf() -> Conf:
    """The settings of this service. Raises WrongSettings."""
    return read(getattr(settings, "INBOX", {}))


def _forget(*, setting: str, **_: object) -> None:
    if setting == "INBOX":
        conf.cache_clear()


setting_changed.connect(_forget, dispatch_uid="outbox.inbox.conf")


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def _require(right: bool, sentence: str) -> None:
    if not right:
        raise WrongSettings(f"settings.INBOX: {sentence}")
