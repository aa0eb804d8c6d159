"""Sends messages to Kafka: idempotent, acknowledged by all replicas, compressed."""

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from history.common.explained_errors import ExplainedError
from ingest.kafka.client import TIMEOUT_SECONDS, ConnectionStatus, create_client

_SETTINGS: Final[Mapping[str, str | int | float | bool]] = {
    "client.id": "annals-simulate",
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
}
_TIMEOUT: Final = 20.0


class ProducerError(ExplainedError):
    """Raised when no broker can be reached, or when a broker refuses to create a topic."""


class KafkaProducer:
    """Sends messages without waiting, and counts how many the broker confirmed or refused.

    Args:
        settings: Settings of librdkafka, which override the defaults here. `bootstrap.servers` is
            required. A wrong setting raises WrongSettingError.
    """

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        self._settings: dict[str, str | int | float | bool] = dict(settings)
        self._status = ConnectionStatus()
        self._client = create_client(Client, {**_SETTINGS, **settings}, self._status)
        self.sent = 0
        self.delivered = 0
        self.failed = 0
        self.first_error: str | None = None

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Queue a message. Waits only while the local queue is full."""
        while True:
            try:
                self._client.produce(topic, value, key, on_delivery=self._confirm)
                break
            except BufferError:
                self._client.poll(0.1)
        self.sent += 1
        self._client.poll(0)

    def wait(self, seconds: float) -> None:
        """Wait for this number of seconds, and count the confirmations that arrive meanwhile."""
        until = monotonic() + seconds
        while (remaining := until - monotonic()) > 0:
            self._client.poll(remaining)

    def flush(self, seconds: float = 60.0) -> int:
        """Wait for the confirmations of sent messages, and return how many are still missing.

        Args:
            seconds: How long to wait at most.
        """
        return self._client.flush(seconds)

    def create_topics(self, names: Iterable[str], partitions: int) -> None:
        """Create the topics that do not exist yet, with the broker's replication factor.

        Raises:
            ProducerError: No broker answers, or the broker refuses to create a topic.
        """
        status = ConnectionStatus()
        admin = create_client(AdminClient, self._settings, status)
        try:
            existing = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        except KafkaException as error:
            unreachable = status.make_unreachable_error(admin, error)
            raise ProducerError(
                f"{unreachable}. No answer in {TIMEOUT_SECONDS:g} seconds, so nothing was sent. "
                "Check KAFKA_BOOTSTRAP_SERVERS and whether Kafka runs"
            ) from None
        missing = [name for name in names if name not in existing]
        if not missing:
            return
        new_topics = [NewTopic(name, partitions, -1) for name in missing]
        for future in admin.create_topics(new_topics, operation_timeout=_TIMEOUT).values():
            try:
                future.result(_TIMEOUT)
            except KafkaException as error:
                # Another client may create the same topic at this moment.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise ProducerError(f"topics not created: {error.args[0].str()}") from None

    def _confirm(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
            return
        self.failed += 1
        self.first_error = self.first_error or self._status.reason or error.str()
