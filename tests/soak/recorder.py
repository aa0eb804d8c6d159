"""Reads the topics like a consumer, and keeps an MD5 digest of each version that was sent."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import confluent_kafka as ck
import psycopg

from history.documents.record import ChangeType
from history.kinds.entities import BY_TOPIC

BAD_KEY = b"soak-bad"
# The key of messages that stay in quarantine until the next day.
EARLY_KEY = "soak-early"
BATCH = 500
RECENT = 500
# PostgreSQL normalizes each snapshot, so that equal snapshots have equal fingerprints.
_READ = """
SELECT x->>'id', (x->>'version')::int, x->>'type', x->>'clientId', coalesce(x->>'author', ''),
    x->>'updatedAt', md5((x->'data')::text)
FROM (SELECT unnest(%s::text[])::jsonb AS x) AS messages
"""


class SentKey(NamedTuple):
    """Identifies a version."""

    table: str
    id: str
    version: int


class SentContent(NamedTuple):
    """The content of a version."""

    updated_at: datetime
    client_id: str
    author: str
    type: int
    data: str  # MD5 of the snapshot as PostgreSQL writes it


class MessageRecorder:
    """A thread that reads the messages of all topics and records the versions in them."""

    def __init__(self, bootstrap: str, url: str) -> None:
        """Create the thread that records the versions. start_recording() starts the thread.

        Args:
            url: The URL of a database in which MD5 digests of snapshots are computed. While the
                database is down, the thread waits.
        """
        self.versions: dict[SentKey, SentContent] = {}
        self.messages = self.bad = self.repeated = 0
        self._bootstrap, self._url = bootstrap, url
        self._end = threading.Event()
        self._pending: list[tuple[str, str]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._recent: list[SentKey] = []

    def start_recording(self) -> None:
        self._thread.start()

    def stop_recording(self) -> None:
        """Let the thread read to the end of all topics. Raise the error of a failed thread."""
        self._end.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def list_recent(self) -> Sequence[SentKey]:
        """Return the versions that were recorded last, at most a few hundred, the newest last."""
        return self._recent

    def _run(self) -> None:
        try:
            self._read_topics()
        except BaseException as error:
            self._error = error

    def _read_topics(self) -> None:
        client = ck.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "soak-recorder",
                "log_level": 0,
                "enable.auto.commit": False,
                "enable.partition.eof": False,
            }
        )
        partitions = [
            ck.TopicPartition(topic, number, 0)
            for topic, topic_metadata in client.list_topics(timeout=30).topics.items()
            if topic in BY_TOPIC
            for number in topic_metadata.partitions
        ]
        client.assign(partitions)
        while True:
            is_ending = self._end.is_set()
            received = client.consume(BATCH, 0.5)
            for message in received:
                if message.error() is None:
                    self._note_message(message)
            while self._pending and not self._fingerprint_batch():
                time.sleep(0.5)
            if is_ending and not received and self._is_at_end(client, partitions):
                break
        client.close()

    def _is_at_end(self, client: Any, partitions: list[Any]) -> bool:
        ends = [client.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions]
        positions = [max(partition.offset, 0) for partition in client.position(partitions)]
        return all(position >= end for position, end in zip(positions, ends, strict=True))

    def _note_message(self, message: Any) -> None:
        self.messages += 1
        if message.key().startswith(BAD_KEY):
            self.bad += 1
        else:
            table = BY_TOPIC[message.topic()].table
            self._pending.append((table, message.value().decode()))

    def _fingerprint_batch(self) -> bool:
        """Compute the fingerprints of a batch. Return False if the database is down."""
        batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
        try:
            with psycopg.connect(self._url, connect_timeout=5) as plain:
                rows = plain.execute(_READ, [[text for _, text in batch]]).fetchall()
        except psycopg.OperationalError:
            self._pending = batch + self._pending
            return False
        version_count = len(self.versions)
        for (table, _), row in zip(batch, rows, strict=True):
            key = SentKey(table, row[0], row[1])
            content = SentContent(
                _parse_moment(row[5]), row[3], row[4], ChangeType[row[2]].value, row[6]
            )
            if self.versions.setdefault(key, content) != content:
                raise AssertionError(f"{key} was sent with two contents")
            self.repeated += len(self.versions) == version_count
            version_count = len(self.versions)
            if not key.id.startswith(EARLY_KEY):
                self._recent = [*self._recent[-RECENT:], key]
        return True


def _parse_moment(text: str) -> datetime:
    """Return the moment in UTC, truncated to microseconds as the consumer does."""
    return datetime.fromisoformat(text[:26]).replace(tzinfo=UTC)
