"""The real writer on the tests' database, and what is there afterwards."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.db import transaction
from django.utils import translation
from psycopg import sql
from psycopg.rows import dict_row

from history import timeline
from history.kinds.entities import (
    BY_TOPIC,
    ENTITIES,
    ROOT,
    EntityKind,
)
from history.store.days.window import Window
from ingest.completeness import ledger_rows
from ingest.messages.decode import decode_message
from ingest.messages.message import KafkaMessage, TopicPartition
from ingest.quarantine.messages import MessageSelection, retry_messages
from ingest.store import ledger
from ingest.store.batch import Batch, Limits, OffsetGap
from ingest.store.ledger import Claim
from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter, WriteResult
from tests.db.store import HOST
from tests.messages import CHILD_TOPIC, SOURCE, TWIN_TOPIC, WINDOW, make_message

TWIN_SOURCE = TopicPartition(TWIN_TOPIC, "id-of-twin", 0)
CHILD_SOURCE = TopicPartition(CHILD_TOPIC, "id-of-child", 0)
SOURCES = (SOURCE, TWIN_SOURCE, CHILD_SOURCE)


@dataclass
class Ingested:
    """A writer that holds partition 0 of a topic, its twin and a child's topic."""

    writer: BatchWriter
    claims: dict[TopicPartition, Claim]
    next: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))

    def make_batch(
        self,
        *bodies: bytes | KafkaMessage | None,
        source: TopicPartition = SOURCE,
        gap: OffsetGap | None = None,
        window: Window = WINDOW,
    ) -> Batch:
        """A batch of values, or messages, from the next offset of a partition on."""
        batch = Batch(Limits(100_000, 1 << 30))
        self.fill(batch, *bodies, source=source, gap=gap, window=window)
        return batch

    def fill(
        self,
        batch: Batch,
        *bodies: bytes | KafkaMessage | None,
        source: TopicPartition = SOURCE,
        gap: OffsetGap | None = None,
        window: Window = WINDOW,
    ) -> None:
        for body in bodies:
            expected = self.next[source]
            offset = gap.end if gap else expected
            plain = not isinstance(body, KafkaMessage)
            message = make_message(body, offset, source.topic) if plain else body
            batch.add(decode_message(message, window), source, expected, (gap,) if gap else ())
            self.next[source], gap = offset + 1, None

    def write(
        self,
        *bodies: bytes | KafkaMessage | None,
        source: TopicPartition = SOURCE,
        gap: OffsetGap | None = None,
        window: Window = WINDOW,
    ) -> WriteResult:
        return self.store(self.make_batch(*bodies, source=source, gap=gap, window=window))

    def store(self, batch: Batch) -> WriteResult:
        return self.writer.write(batch, self.claims, {})

    def claim(self) -> dict[TopicPartition, Claim]:
        """Take all partitions over again."""
        self.claims = claim_all()
        return self.claims


def claim_all() -> dict[TopicPartition, Claim]:
    with open_connection() as connection:
        return {source: ledger.claim_partition(connection, source, 0) for source in SOURCES}


def query(text: str, *values: Any) -> list[dict[str, Any]]:
    """Rows of a query, asked past everything that is tested."""
    with (
        open_connection("test") as plain,
        psycopg.ClientCursor(plain, row_factory=dict_row) as cursor,
    ):
        return cursor.execute(text, values).fetchall()


def search_ids(text: str) -> list[str]:
    """The ids that a search finds. Its locks are released, so that empty() can drop the days."""
    with transaction.atomic():
        ids = [item.id for item in timeline.search(HOST, text).results]
        transaction.set_rollback(True)
    return ids


def list_rows(entity: EntityKind = ROOT) -> list[dict[str, Any]]:
    """What is stored of a kind, snapshots as text, by id, version and moment."""
    table = sql.Identifier(entity.table).as_string()
    return query(f"SELECT *, data::text AS text FROM {table} ORDER BY id, version, updated_at")


def list_ids(entity: EntityKind = ROOT) -> list[str]:
    return [row["id"] for row in list_rows(entity)]


def list_quarantined() -> list[dict[str, Any]]:
    return query('SELECT * FROM ingest_quarantine ORDER BY topic, partition, "offset"')


def retry_quarantined(
    plain: ledger.Connection, window: Callable[[], Window] = lambda: WINDOW, **selected: Any
) -> Counter[str]:
    """What became of the messages in quarantine that a retry selects."""
    return sum(retry_messages(plain, MessageSelection(**selected), window), Counter())


def read_counts(source: TopicPartition = SOURCE) -> dict[str, int]:
    """The ledger's counts of a partition that are not zero, and its next offset."""
    [row] = query(
        "SELECT next_offset, read, stored, repeated, expired, quarantined, skipped, lost"
        " FROM ingest_ledger WHERE topic = %s AND topic_id = %s AND partition = %s",
        source.topic,
        source.topic_id,
        source.partition,
    )
    return {name: count for name, count in row.items() if count}


def find_faults() -> list[str]:
    """What `annals ledger` would complain of; also whether the tables hold what it says."""
    entries = ledger_rows.load_entries()
    stored: dict[str, int] = {}
    for entry in entries:
        table = BY_TOPIC[entry.topic].table
        stored[table] = stored.get(table, 0) + entry.stored
    wrong = [
        f"{table}: {count} stored says the ledger, {row_count} are there"
        for table, count in stored.items()
        if (row_count := query(f"SELECT count(*) FROM {table}")[0]["count"]) != count
    ]
    with translation.override("en"):
        return ledger_rows.find_faults(entries) + wrong


OURS = (
    *("ingest_ledger", "ingest_gap", "ingest_unstored", "ingest_quarantine", "search_key"),
    *("ingest_pace", "ingest_job_run", "ingest_quarantine_request", "ingest_asked_topic"),
    "late_batch",
)


def empty() -> None:
    """Forget everything that ingest wrote, the days too."""
    with open_connection("test") as plain:
        parts = plain.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class t ON t.oid = inhrelid"
            " WHERE inhparent = ANY(%s::regclass[]) AND t.relkind = 'r'",
            [[entity.table for entity in ENTITIES]],
        ).fetchall()
        for (part,) in parts:
            plain.execute(f"DROP TABLE {part}")
        for table in OURS:
            plain.execute(f"DELETE FROM {table}")
        plain.execute("UPDATE feed_horizon SET given_to = NULL")


@pytest.fixture
def ingested(db: None) -> Iterator[Ingested]:
    """Empty tables without days, and a writer that has claimed its partitions.

    The writer commits on a connection of its own, so this cleans up itself: to flush every table,
    as `transactional_db` does, takes seconds.
    """
    empty()
    ingested = Ingested(BatchWriter(open_connection), claim_all())
    yield ingested
    ingested.writer.close()
    empty()
