"""Reads topics as a member of a consumer group. The caller commits offsets after storing."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Raw

from outbox.conf import CommonConf
from outbox.errors import WrongSettingsError
from outbox.inbox.message import Message, as_bytes, read_headers

logger = logging.getLogger(__name__)

_DEFAULTS: Final[Mapping[str, Any]] = {
    "client.id": "annals-inbox",
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    # Partitions of a killed process are reassigned after this time.
    "session.timeout.ms": 10_000,
    "queued.max.messages.kbytes": 16_384,
    "reconnect.backoff.max.ms": 1_000,
    # Topics that are created later are found soon.
    "topic.metadata.refresh.interval.ms": 5_000,
}
_FIXED: Final = {"enable.auto.commit": False, "enable.auto.offset.store": False}
# Milliseconds without a poll after which Kafka considers a consumer dead.
_LEAST_INTERVAL: Final = 300_000
# How long the group may take to assign partitions.
_JOIN_SECONDS: Final = 20.0
# Python's datetime ends with the year 9999.
_MOST_MILLISECONDS: Final = 253_402_300_799_999


class TopicReader:
    """A member of a consumer group that reads topics. Not thread-safe.

    Attributes:
        busy_at: When this process last had work to do, by time.monotonic().
        joined: Whether the group has assigned partitions to this consumer. An empty assignment
            counts, too.
    """

    def __init__(
        self, conf: CommonConf, group: str, topics: Collection[str], longest_pause: float
    ) -> None:
        """Join the group.

        Args:
            longest_pause: How many seconds may pass between two reads.

        Raises:
            WrongSettingsError: librdkafka refuses the settings. The message quotes librdkafka.
        """
        if "bootstrap.servers" not in conf.kafka:
            raise WrongSettingsError(f"settings.{conf.NAME}: KAFKA has no bootstrap.servers")
        interval = {"max.poll.interval.ms": max(_LEAST_INTERVAL, int(longest_pause * 2_000))}
        settings = {**_DEFAULTS, **interval, **conf.kafka, **_FIXED, "group.id": group}
        try:
            self._consumer = Consumer({**settings, "error_cb": _log_client_error}, logger=logger)
        except KafkaException as error:
            raise WrongSettingsError(
                f"settings.{conf.NAME}['KAFKA']: {error.args[0].str()}"
            ) from None
        self._consumer.subscribe(sorted(topics), on_assign=self._note_assignment)
        self.busy_at = monotonic()
        # Whether assigned partitions may be paused. Then the next read resumes them.
        self._may_be_paused = False
        self.joined = False

    def read_messages(self, limit: int, timeout: float) -> list[Message]:
        """Return up to `limit` messages. Messages of one topic partition are in offset order."""
        if self._may_be_paused:
            self._consumer.resume(self._consumer.assignment())
            self._may_be_paused = False
        return self._poll_messages(limit, timeout)

    def stay_in_group(self) -> list[Message]:
        """Stay a member of the group without reading further.

        Returns messages that the client had already read.
        """
        self._consumer.pause(self._consumer.assignment())
        self._may_be_paused = True
        return self._poll_messages(1, 0)

    def commit_offsets(self, messages: Sequence[Message]) -> None:
        """Commit the offsets after these messages."""
        ends = {(message.topic, message.partition): message.offset + 1 for message in messages}
        try:
            self._consumer.commit(
                offsets=[TopicPartition(*partition, end) for partition, end in ends.items()],
                asynchronous=True,
            )
        except KafkaException as error:
            logger.warning("Kafka did not commit the offsets: %s", error.args[0].str())
        self.busy_at = monotonic()

    def is_idle(self, seconds: float | None) -> bool:
        """Return whether this process has had no work for `seconds`.

        Args:
            seconds: Before the consumer has joined its group, _JOIN_SECONDS are added. None: the
                process never counts as idle.
        """
        grace = 0.0 if self.joined else _JOIN_SECONDS
        return seconds is not None and monotonic() - self.busy_at > seconds + grace

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _note_assignment(self, *_: object) -> None:
        if not self.joined:
            self.busy_at = monotonic()
        self.joined = True
        # A partition that was revoked while it was paused is still paused when it comes back.
        self._may_be_paused = True

    def _poll_messages(self, limit: int, timeout: float) -> list[Message]:
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        later = self._consumer.consume(limit - 1, 0) if limit > 1 else []
        return [_convert_message(raw) for raw in (first, *later) if _is_message(raw)]


def _is_message(raw: Raw) -> bool:
    error = raw.error()
    if error is not None:
        if error.fatal():
            raise KafkaException(error)
        _log_client_error(error)
    return error is None


def _convert_message(raw: Raw) -> Message:
    kind, milliseconds = raw.timestamp()
    is_valid = kind != 0 and 0 <= milliseconds <= _MOST_MILLISECONDS
    return Message(
        str(raw.topic()),
        int(raw.partition() or 0),
        int(raw.offset() or 0),
        as_bytes(raw.key()),
        as_bytes(raw.value()),
        read_headers(raw),
        datetime.fromtimestamp(milliseconds / 1000, UTC) if is_valid else None,
    )


def _log_client_error(error: KafkaError) -> None:
    logger.warning("Kafka's client reports: %s", error.str())
