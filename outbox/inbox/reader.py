"""Reads topics as a member of a consumer group; who has read commits the offsets."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Raw

from outbox.conf import Common
from outbox.errors import WrongSettings
from outbox.inbox.message import Message, as_bytes, headers

logger = logging.getLogger(__name__)

_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "annals-inbox",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    # Partitions of a process that was killed are read again after this.
    "session.timeout.ms": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": 1_000,
    # A topic that is made later is found soon.
    "topic.metadata.refresh.interval.ms": 5_000,
}
_FIXED: Final = {"enable.auto.commit": False, "enable.auto.offset.store": False}
# A consumer that does not ask for so long is taken for dead, in milliseconds.
_LEAST_INTERVAL: Final = 300_000
# The group needs time to give out partitions, if there are any.
_JOIN_SECONDS: Final = 20.0
# Beyond the year 9999 a timestamp is nonsense, and Python has none.
_MOST_MILLISECONDS: Final = 253_402_300_799_999


class Reader:
    """A consumer of the group. Not thread-safe. busy_at: when there was something to do."""

    def __init__(self, conf: Common, group: str, topics: Collection[str], longest: float) -> None:
        """longest: seconds that may be between two calls. Raises WrongSettings with what librdkafka
        says about its settings."""
        if "bootstrap.servers" not in conf.kafka:
            raise WrongSettings(f"settings.{conf.NAME}: KAFKA has no bootstrap.servers")
        interval = {"max.poll.interval.ms": max(_LEAST_INTERVAL, int(longest * 2_000))}
        settings = {**_DEFAULTS, **interval, **conf.kafka, **_FIXED, "group.id": group}
        try:
            self._consumer = Consumer({**settings, "error_cb": _log}, logger=logger)
        except KafkaException as error:
            raise WrongSettings(f"settings.{conf.NAME}: KAFKA: {error.args[0].str()}") from None
        self._consumer.subscribe(sorted(topics), on_assign=self._assigned)
        self.busy_at = monotonic()
        # Whether a partition may be paused.
        self._held = False
        # Whether the group has given this consumer its share, which may be none.
        self.joined = False

    def read(self, most: int, timeout: float) -> list[Message]:
        """Up to `most` messages, in the order of their partitions."""
        if self._held:
            self._consumer.resume(self._consumer.assignment())
            self._held = False
        return self._poll(most, timeout)

    def stay(self) -> list[Message]:
        """Remain a member of the group without reading."""
        self._consumer.pause(self._consumer.assignment())
        self._held = True
        return self._poll(1, 0)

    def commit(self, done: Sequence[Message]) -> None:
        """These messages need not be read again."""
        ends = {(each.topic, each.partition): each.offset + 1 for each in done}
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in ends.items()],
                asynchronous=True,
            )
        except KafkaException as error:
            logger.warning("Kafka: offsets not committed: %s", error.args[0].str())
        self.busy_at = monotonic()

    def idle(self, seconds: float | None) -> bool:
        """Whether there was nothing to do for so many seconds. None: never."""
        grace = 0.0 if self.joined else _JOIN_SECONDS
        return seconds is not None and monotonic() - self.busy_at > seconds + grace

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assigned(self, *_: object) -> None:
        if not self.joined:
            self.busy_at = monotonic()
        self.joined = True
        # A partition that was taken away while it was paused comes back paused.
        self._held = True

    def _poll(self, most: int, timeout: float) -> list[Message]:
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        rest = self._consumer.consume(most - 1, 0) if most > 1 else []
        return [_message(raw) for raw in (first, *rest) if _is_message(raw)]


def _is_message(raw: Raw) -> bool:
    error = raw.error()
    if error is not None:
        if error.fatal():
            raise KafkaException(error)
        _log(error)
    return error is None


def _message(raw: Raw) -> Message:
    kind, at = raw.timestamp()
    known = kind != 0 and 0 <= at <= _MOST_MILLISECONDS
    return Message(
        str(raw.topic()),
        int(raw.partition() or 0),
        int(raw.offset() or 0),
        as_bytes(raw.key()),
        as_bytes(raw.value()),
        headers(raw),
        datetime.fromtimestamp(at / 1000, UTC) if known else None,
    )


def _log(error: KafkaError) -> None:
    logger.warning("Kafka: %s", error.str())
