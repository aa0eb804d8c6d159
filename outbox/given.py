"""Settings as a service gives them in a dictionary: read into a class, and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, TypeVar

from django.conf import settings
from django.core.signals import setting_changed

from outbox.errors import WrongSettings
from outbox.ring import MOST_DAYS

KafkaSettings = Mapping[str, str | int | float | bool]
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Given:
    """One dictionary in the settings. Checks raise WrongSettings with its name."""

    name: str

    def require(self, right: bool, sentence: str) -> None:
        """sentence: what must be."""
        if not right:
            raise WrongSettings(f"settings.{self.name}: {sentence}")

    def kafka(self, given: object, fixed: Mapping[str, str | bool], why: str) -> None:
        """Settings of librdkafka. fixed: those that have one right value; why: the reason."""
        if not isinstance(given, Mapping):
            self.require(False, "KAFKA must map names of librdkafka to values")
            return
        for name, value in fixed.items():
            text = str(value).lower()
            right = {text, *({"-1"} if name == "acks" else ())}
            self.require(
                str(given.get(name, value)).lower() in right, f"KAFKA: {name} must be {text}: {why}"
            )

    def keep_days(self, given: object) -> None:
        """As many days as there are tables for."""
        self.require(
            isinstance(given, int) and 1 <= given <= MOST_DAYS,
            f"KEEP_DAYS must be a whole number from 1 to {MOST_DAYS}",
        )

    def least(self, key: str, given: object, least: float) -> None:
        """A number with a lower bound."""
        self.require(is_number(given, least), f"{key} must be {least:g} or more")

    def retries(self, first: float, most: float) -> None:
        """RETRY_FIRST_SECONDS and RETRY_MOST_SECONDS."""
        self.least("RETRY_FIRST_SECONDS", first, 0.01)
        self.require(
            is_number(most, first), "RETRY_MOST_SECONDS must be RETRY_FIRST_SECONDS or more"
        )

    def read(self, into: type[Read], given: object) -> Read:
        """An instance of a data class with a field for each key, in small letters."""
        if not isinstance(given, Mapping):
            raise WrongSettings(f"settings.{self.name}: must be a dictionary")
        known = {each.name.upper(): each for each in fields(into)}  # type: ignore[arg-type]
        unknown = [str(name) for name in given if name not in known]
        self.require(not unknown, f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
        missing = [
            name
            for name, each in known.items()
            if each.default is MISSING and each.default_factory is MISSING and name not in given
        ]
        self.require(not missing, f"missing: {', '.join(missing)}")
        return into(**{known[name].name: value for name, value in given.items()})

    def once(self, read: Callable[[Any], Read]) -> Callable[[], Read]:
        """A function that reads the settings of this service when it is first called, and again
        after a test has changed them."""

        @lru_cache(maxsize=1)
        def conf() -> Read:
            return read(getattr(settings, self.name, {}))

        def forget(*, setting: str, **_: object) -> None:
            if setting == self.name:
                conf.cache_clear()

        setting_changed.connect(forget, weak=False, dispatch_uid=f"outbox.{self.name}")
        return conf


def is_number(value: object, least: float) -> bool:
    """Whether it is a number of at least this size."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least
