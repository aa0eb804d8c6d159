"""Reads from Kafka as a member of the group. Commits offsets only of what is stored."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Raw

from outbox.errors import WrongSettings
from outbox.inbox.conf import FIXED_IN_KAFKA, Conf
from outbox.inbox.message import Message, headers

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
# A consumer that does not ask for so long is taken for dead, in milliseconds.
_LEAST_INTERVAL: Final = 300_000
# Beyond the year 9999 a timestamp is nonsense, and Python has none.
_MOST_MILLISECONDS: Final = 253_402_300_799_999


class Reader:
    """A consumer of the group. Not thread-safe."""

    def __init__(self, conf: Conf, topics: Collection[str], longest: float) -> None:
        """longest: seconds that may be between two calls. Raises WrongSettings with what librdkafka
        says about its settings."""
        if "bootstrap.servers" not in conf.kafka:
            raise WrongSettings("settings.INBOX: KAFKA has no bootstrap.servers")
        interval = {"max.poll.interval.ms": max(_LEAST_INTERVAL, int(longest * 2_000))}
        settings = {**_DEFAULTS, **interval, **conf.kafka, **FIXED_IN_KAFKA}
        try:
            self._consumer = Consumer(
                {**settings, "group.id": conf.group, "error_cb": _log}, logger=logger
            )
        except KafkaException as error:
            raise WrongSettings(f"settings.INBOX: KAFKA: {error.args[0].str()}") from None
        self._consumer.subscribe(sorted(topics), on_assign=self._assigned)
        # Whether a partition may be paused.
        self._held = False
        # Whether the group has given this consumer its share, which may be none.
        self.joined = False

    def read(self, most: int, timeout: float) -> list[Message]:
        """Up to `most` messages, in the order of their partitions. Waits up to `timeout` seconds
        for the first one, not for others."""
        if self._held:
            self._consumer.resume(self._consumer.assignment())
            self._held = False
        return self._poll(most, timeout)

    def stay(self) -> list[Message]:
        """Remain a member of the group without reading. Messages can come nevertheless, from
        partitions that are ours since this call."""
        self._consumer.pause(self._consumer.assignment())
        self._held = True
        return self._poll(1, 0)

    def commit(self, stored: Sequence[Message]) -> None:
        """These messages are stored."""
        ends = {(each.topic, each.partition): each.offset + 1 for each in stored}
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*place, offset) for place, offset in ends.items()],
                asynchronous=True,
            )
        except KafkaException as error:
            # They come again, and are recognized.
            logger.warning("Kafka: offsets not committed: %s", error.args[0].str())

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assigned(self, *_: object) -> None:
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
        _bytes(raw.key()),
        _bytes(raw.value()),
        headers(raw),
        datetime.fromtimestamp(at / 1000, UTC) if known else None,
    )


def _bytes(given: bytes | str | None) -> bytes | None:
    return given.encode() if isinstance(given, str) else given


def _log(error: KafkaError) -> None:
    logger.warning("Kafka: %s", error.str())
