"""A consumer without Kafka. It reads the model's log with the real decoder, batch and writer."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from history.store.search_index.keys import KeyFingerprint
from ingest.consumer import writers
from ingest.consumer.writers import RetryingWriter
from ingest.messages.decode import decode_message
from ingest.messages.message import KafkaMessage, TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch, Limits
from ingest.store.claim import Claim
from ingest.store.ledger import Connection
from ingest.store.missing_days import get_local_window
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.lifecycle.model import Model
from tests.lifecycle.observed import Observed
from tests.lifecycle.sent import TOPICS, Sent

MOST_CONNECTIONS = 12
SOURCES = {topic: TopicPartition(topic, f"id-{number}", 0) for number, topic in enumerate(TOPICS)}


class Consumer:
    """A consumer of all topic partitions.

    The consumer can write from its claim() until a different consumer claims the topic partitions.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._connections = 0
        self._connection: Connection | None = None
        self._writer = RetryingWriter(BatchWriter(self._connect))
        self._claims: dict[TopicPartition, Claim] = {}
        self._next: dict[str, int] = {}
        self._known: dict[str, KeyFingerprint] = {}
        self.batch = self._make_batch()

    def claim(self) -> None:
        """Claim all partitions."""
        self._begin()
        claims = self._writer.claim(dict.fromkeys(SOURCES.values(), (0, None)))
        self._claims = {claim.topic_partition: claim for claim in claims}
        self._next = {claim.topic_partition.topic: claim.next_offset for claim in claims}

    def read(self, limit: int, seen: Observed) -> None:
        """Decode up to `limit` unread messages into the batch."""
        window = get_local_window()
        for _ in range(limit):
            message = min(
                self._list_next_messages(),
                key=lambda candidate: (candidate.offset, candidate.topic),
                default=None,
            )
            if message is None:
                return
            self._model.note_decoded(message, seen)
            decoded = decode_message(_convert_message(message), window)
            self.batch.add(decoded, SOURCES[message.topic], message.offset)
            self._next[message.topic] = message.offset + 1

    def write(self) -> None:
        """Write the batch.

        Raises:
            FencedError: A different consumer has claimed the topic partitions.
            AbandonedError: Many attempts failed.
        """
        self._begin()
        self.batch.arrange()
        written = self._writer.write(self.batch, self._claims, self._get_end_offsets())
        self._known.update(written.fingerprints)
        self.batch = self._make_batch()

    def record_ends(self) -> None:
        """Write the end offsets of the topics into the ledger."""
        self._begin()
        ends = self._get_end_offsets()
        marks = {claim: ends[source] for source, claim in self._claims.items()}
        now = time.monotonic()
        self._writer.run_job(
            lambda connection: ledger.record_heartbeat(connection, marks, now), "recording the ends"
        )

    def close(self) -> list[int]:
        """Close the consumer's connection without telling PostgreSQL, as a killed process does.

        Returns:
            The process id of the PostgreSQL backend of the session, or [] without a session.
        """
        connection = self._connection
        pids = []
        if connection is not None and not connection.closed:
            pids = [connection.info.backend_pid]
            connection.pgconn.finish()
        self._writer.batch_writer.close()
        return pids

    def _list_next_messages(self) -> Iterator[Sent]:
        for topic, log in self._model.log.items():
            yield from log[self._next[topic] :][:1]

    def _get_end_offsets(self) -> dict[TopicPartition, int]:
        return {source: len(self._model.log[topic]) for topic, source in SOURCES.items()}

    def _make_batch(self) -> Batch:
        return Batch(Limits(1_000, 1 << 20), known=self._known)

    def _begin(self) -> None:
        self._connections = 0
        self._writer.allow_waiting()

    def _connect(self) -> Connection:
        self._connections += 1
        if self._connections > MOST_CONNECTIONS:
            self._writer.stop_waiting()
        self._connection = open_connection()
        return self._connection


def _convert_message(sent: Sent) -> KafkaMessage:
    return KafkaMessage(sent.topic, 0, sent.offset, sent.timestamp, b"key", sent.value)


class Warnings(logging.Handler):
    """A log handler that keeps the writer's warnings, which say why it had to write again."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def collect_warnings() -> Iterator[Warnings]:
    """Collect the writer's warnings during the `with` block, and let the writer retry at once."""
    handler, logger = Warnings(), logging.getLogger(writers.__name__)
    driver = logging.getLogger("psycopg")  # it warns of the connections that faults break
    level = driver.level
    driver.setLevel(logging.ERROR)
    pauses = writers.FIRST_PAUSE_SECONDS, writers.LONGEST_PAUSE_SECONDS
    writers.FIRST_PAUSE_SECONDS = writers.LONGEST_PAUSE_SECONDS = 0.002
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield handler
    finally:
        writers.FIRST_PAUSE_SECONDS, writers.LONGEST_PAUSE_SECONDS = pauses
        logger.removeHandler(handler)
        driver.setLevel(level)
        logger.propagate = propagate
