"""settings.OUTBOX, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

from outbox.errors import WrongSettings
from outbox.ring import MOST_DAYS

ID_LENGTH = 32
NAME_LENGTH = 64

# What the promises about order and loss depend on.
FIXED_IN_KAFKA: Mapping[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.report.only.error": False,
}

KafkaSettings = Mapping[str, str | int | float | bool]


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
        _require(
            isinstance(self.client_id, str) and 0 < len(self.client_id) <= NAME_LENGTH,
            f"CLIENT_ID must be a text of 1 to {NAME_LENGTH} characters",
        )
        _require(
            isinstance(self.topics, Mapping)
            and bool(self.topics)
            and all(map(_is_pair, self.topics.items())),
            "TOPICS must map each entity to the name of its topic; an entity has no slash",
        )
        _require(isinstance(self.kafka, Mapping), "KAFKA must map names of librdkafka to values")
        for name, value in FIXED_IN_KAFKA.items():
            given = self.kafka.get(name, value)
            _require(
                str(given).lower() in {str(value).lower(), *({"-1"} if name == "acks" else ())},
                f"KAFKA: {name} must be {str(value).lower()}: order and delivery depend on it",
            )
        timeouts = {"message.timeout.ms", "delivery.timeout.ms"} & set(self.kafka)
        _require(not timeouts, "KAFKA: the timeout of messages follows from LEASE_SECONDS")
        _require(isinstance(self.send_unchanged, bool), "SEND_UNCHANGED must be True or False")
        _require(
            isinstance(self.keep_days, int) and 1 <= self.keep_days <= MOST_DAYS,
            f"KEEP_DAYS must be a whole number from 1 to {MOST_DAYS}",
        )
        _require(_is_number(self.lease_seconds, 1), "LEASE_SECONDS must be 1 or more")
        _require(
            _is_number(self.retry_first_seconds, 0.01), "RETRY_FIRST_SECONDS must be 0.01 or more"
        )
        _require(
            _is_number(self.retry_most_seconds, self.retry_first_seconds),
            "RETRY_MOST_SECONDS must be RETRY_FIRST_SECONDS or more",
        )
        _require(
            self.resend_token_file is None
            or (isinstance(self.resend_token_file, str | Path) and self.resend_token_file != ""),
            "RESEND_TOKEN_FILE must be the path of a file",
        )


def read(given: Mapping[str, Any]) -> Conf:
    """The settings in a dictionary like settings.OUTBOX. Raises WrongSettings."""
    known = {each.name.upper(): each for each in fields(Conf)}
    _require(isinstance(given, Mapping), "must be a dictionary")
    unknown = [str(name) for name in given if name not in known]
    _require(not unknown, f"unknown: {', '.join(unknown)}; known are {', '.join(known)}")
    required = [
        name
        for name, each in known.items()
        if each.default is MISSING and each.default_factory is MISSING
    ]
    missing = [name for name in required if name not in given]
    _require(not missing, f"missing: {', '.join(missing)}")
    return Conf(**{known[name].name: value for name, value in given.items()})


@lru_cache(maxsize=1)
def conf() -> Conf:
    """The settings of this service. Raises WrongSettings."""
    return read(getattr(settings, "OUTBOX", {}))


def _forget(*, setting: str, **_: object) -> None:
    if setting == "OUTBOX":
        conf.cache_clear()


setting_changed.connect(_forget, dispatch_uid="outbox.conf")


def _is_pair(item: tuple[object, object]) -> bool:
    entity, topic = item
    return (
        isinstance(entity, str)
        and bool(entity)
        and "/" not in entity
        and isinstance(topic, str)
        and bool(topic)
    )


def _is_number(value: object, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def _require(right: bool, sentence: str) -> None:
    if not right:
        raise WrongSettings(f"settings.OUTBOX: {sentence}")
