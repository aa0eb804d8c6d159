"""What was sent: reads the topics next to the consumers, and keeps each version's fingerprint."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import confluent_kafka as ck
import psycopg

from history.entities import BY_TOPIC
from history.record import ChangeType

BAD_KEY = b"soak-bad"
# Of messages that are in quarantine until the next day.
EARLY_KEY = "soak-early"
BATCH = 500
RECENT = 500
# PostgreSQL writes each snapshot in its own form, so that equal ones have equal fingerprints.
_READ = """
SELECT x->>'id', (x->>'version')::int, x->>'type', x->>'clientId', coalesce(x->>'author', ''),
    x->>'updatedAt', md5((x->'data')::text)
FROM (SELECT unnest(%s::text[])::jsonb AS x) AS messages
"""


class Key(NamedTuple):
    """One version: its table, id and number."""

    table: str
    id: str
    version: int


class Content(NamedTuple):
    """The rest of a version. data: MD5 of the snapshot in PostgreSQL's form."""

    updated_at: datetime
    client_id: str
    author: str
    type: int
    data: str


class Recorder:
    """Reads every message of all topics, in a thread of its own."""

    def __init__(self, bootstrap: str, url: str) -> None:
        """url: of a database that computes the fingerprints; it may be away for a while."""
        self.versions: dict[Key, Content] = {}
        self.messages = self.bad = self.repeated = 0
        self._bootstrap, self._url = bootstrap, url
        self._end = threading.Event()
        self._pending: list[tuple[str, str]] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._recent: list[Key] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Read to the present end of the topics. Raises what the thread raised."""
        self._end.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def recent(self) -> Sequence[Key]:
        """Some hundred versions that were sent lately, the newest last."""
        return self._recent

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._error = error

    def _read(self) -> None:
        client = ck.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "soak-recorder",
                "log_level": 0,
                "enable.auto.commit": False,
                "enable.partition.eof": False,
            }
        )
        places = [
            ck.TopicPartition(topic, number, 0)
            for topic, found in client.list_topics(timeout=30).topics.items()
            if topic in BY_TOPIC
            for number in found.partitions
        ]
        client.assign(places)
        while True:
            ending = self._end.is_set()
            got = client.consume(BATCH, 0.5)
            for message in got:
                if message.error() is None:
                    self._take(message)
            while self._pending and not self._fingerprint():
                time.sleep(0.5)
            if ending and not got and self._at_end(client, places):
                break
        client.close()

    def _at_end(self, client: Any, places: list[Any]) -> bool:
        ends = [client.get_watermark_offsets(each, timeout=10)[1] for each in places]
        now = [max(each.offset, 0) for each in client.position(places)]
        return all(at >= end for at, end in zip(now, ends, strict=True))

    def _take(self, message: Any) -> None:
        self.messages += 1
        if message.key().startswith(BAD_KEY):
            self.bad += 1
        else:
            table = BY_TOPIC[message.topic()].table
            self._pending.append((table, message.value().decode()))

    def _fingerprint(self) -> bool:
        """Compute the fingerprints of what was read; False if the database is away."""
        batch, self._pending = self._pending[:BATCH], self._pending[BATCH:]
        try:
            with psycopg.connect(self._url, connect_timeout=5) as plain:
                rows = plain.execute(_READ, [[text for _, text in batch]]).fetchall()
        except psycopg.OperationalError:
            self._pending = batch + self._pending
            return False
        known = len(self.versions)
        for (table, _), row in zip(batch, rows, strict=True):
            key = Key(table, row[0], row[1])
            content = Content(_moment(row[5]), row[3], row[4], ChangeType[row[2]].value, row[6])
            if self.versions.setdefault(key, content) != content:
                raise AssertionError(f"{key} was sent with two contents")
            self.repeated += len(self.versions) == known
            known = len(self.versions)
            if not key.id.startswith(EARLY_KEY):
                self._recent = [*self._recent[-RECENT:], key]
        return True


def _moment(text: str) -> datetime:
    """UTC, truncated to microseconds as the consumer does."""
    return datetime.fromisoformat(text[:26]).replace(tzinfo=UTC)
