"""settings.OUTBOX, read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outbox.given import Given, KafkaSettings

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
