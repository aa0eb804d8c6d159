"""settings.OUTBOX, read once and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
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


ID_LENGTH = 32
NAME_LENGTH = 64

# What the promises about order and loss depend on.
FIXED_IN_KAFKA: Mapping[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": False,
}

_GIVEN = Given("OUTBOX")


@dataclass(frozen=True, slots=True)
class Conf:
    """The settings; each field is a key of settings.OUTBOX, in capitals.

    client_id: name of the service in its messages. topics: topic by entity. kafka: settings of
    librdkafka. send_unchanged: record a version also if the document is the same as before.
    keep_days: how long sent versions stay in the database, at least. lease_seconds: a relay that
    shows no sign of life for so long loses its buckets. retry_first_seconds, retry_most_seconds:
    pause after the first failure of a document, and the longest one. resend_token_file: tokens of
    those who may ask for versions again; None: nobody may.
    """

    client_id: str
    topics: Mapping[str, str]
    kafka: KafkaSettings = field(default_factory=dict)
    send_unchanged: bool = False
    keep_days: int = 7
    lease_seconds: float = 5.0
    retry_first_seconds: float = 1.0
    retry_most_seconds: float = 300.0
    resend_token_file: str | Path | None = None

    def __post_init__(self) -> None:
        require = _GIVEN.require
        require(
            isinstance(self.client_id, str) and 0 < len(self.client_id) <= NAME_LENGTH,
            f"CLIENT_ID must be a text of 1 to {NAME_LENGTH} characters",
        )
        require(
            isinstance(self.topics, Mapping)
            and bool(self.topics)
            and all(map(_is_pair, self.topics.items())),
            "TOPICS must map each entity to the name of its topic; an entity has no slash",
        )
        _GIVEN.kafka(self.kafka, FIXED_IN_KAFKA, "order and delivery depend on it")
        timeouts = {"message.timeout.ms", "delivery.timeout.ms"} & set(self.kafka)
        require(not timeouts, "KAFKA: the timeout of messages follows from LEASE_SECONDS")
        require(isinstance(self.send_unchanged, bool), "SEND_UNCHANGED must be True or False")
        _GIVEN.keep_days(self.keep_days)
        _GIVEN.least("LEASE_SECONDS", self.lease_seconds, 1)
        _GIVEN.retries(self.retry_first_seconds, self.retry_most_seconds)
        require(
            self.resend_token_file is None
            or (isinstance(self.resend_token_file, str | Path) and self.resend_token_file != ""),
            "RESEND_TOKEN_FILE must be the path of a file",
        )


def read(given: object) -> Conf:
    """The settings in a dictionary like settings.OUTBOX. Raises WrongSettings."""
    return _GIVEN.read(Conf, given)


def conf() -> Conf:
    """The settings of this service. Raises WrongSettings."""
    return _own()


_own = _GIVEN.once(read)


def _is_pair(item: tuple[object, object]) -> bool:
    entity, topic = item
    return (
        isinstance(entity, str)
        and bool(entity)
        and "/" not in entity
        and isinstance(topic, str)
        and bool(topic)
    )
