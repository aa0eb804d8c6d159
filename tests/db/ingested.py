"""The consumer's writer on the database of the tests, and helpers that read the stored rows."""

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
    """A writer that has claimed the topic partitions in SOURCES.

    They are partition 0 of the topic of applications, of the migration twin of this topic, and of
    the topic of a child kind.
    """

    writer: BatchWriter
    claims: dict[TopicPartition, Claim]
    # The next offset of each topic partition.
    next: dict[TopicPartition, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))

    def make_batch(
        self,
        *bodies: bytes | KafkaMessage | None,
        source: TopicPartition = SOURCE,
        gap: OffsetGap | None = None,
        window: Window = WINDOW,
    ) -> Batch:
        """Return a batch of messages at the next offsets of a topic partition.

        Args:
            bodies: Messages, or values from which messages are made.
            gap: The offset gap before the first message.
        """
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
        """Add messages at the next offsets of a topic partition to a batch.

        Args:
            bodies: Messages, or values from which messages are made.
            gap: The offset gap before the first message.
        """
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
        """Claim the topic partitions in SOURCES again."""
        self.claims = claim_all()
        return self.claims


def claim_all() -> dict[TopicPartition, Claim]:
    with open_connection() as connection:
        return {source: ledger.claim_partition(connection, source, 0) for source in SOURCES}


def query(text: str, *values: Any) -> list[dict[str, Any]]:
    """Run a query on a new connection, and return the rows of the result."""
    with (
        open_connection("test") as plain,
        psycopg.ClientCursor(plain, row_factory=dict_row) as cursor,
    ):
        return cursor.execute(text, values).fetchall()


def search_ids(text: str) -> list[str]:
    """Return the ids that a search finds.

    The locks of the search are released, so that empty_ingest_tables() can drop the days.
    """
    with transaction.atomic():
        ids = [item.id for item in timeline.search(HOST, text).results]
        transaction.set_rollback(True)
    return ids


def list_rows(entity: EntityKind = ROOT) -> list[dict[str, Any]]:
    """Return the stored rows of a kind, ordered by id, version and moment.

    The column `text` is the snapshot as JSON text.
    """
    table = sql.Identifier(entity.table).as_string()
    return query(f"SELECT *, data::text AS text FROM {table} ORDER BY id, version, updated_at")


def list_ids(entity: EntityKind = ROOT) -> list[str]:
    return [row["id"] for row in list_rows(entity)]


def list_quarantined() -> list[dict[str, Any]]:
    return query('SELECT * FROM ingest_quarantine ORDER BY topic, partition, "offset"')


def retry_quarantined(
    plain: ledger.Connection, window: Callable[[], Window] = lambda: WINDOW, **selected: Any
) -> Counter[str]:
    """Retry the selected messages in quarantine, and return the number of messages by outcome."""
    return sum(retry_messages(plain, MessageSelection(**selected), window), Counter())


def read_counts(source: TopicPartition = SOURCE) -> dict[str, int]:
    """Return the next offset and the counts of a ledger row. Values of zero are left out."""
    [row] = query(
        "SELECT next_offset, read, stored, repeated, expired, quarantined, skipped, lost"
        " FROM ingest_ledger WHERE topic = %s AND topic_id = %s AND partition = %s",
        source.topic,
        source.topic_id,
        source.partition,
    )
    return {name: count for name, count in row.items() if count}


def find_faults() -> list[str]:
    """Return the faults that `annals ledger` reports, and tables that differ from the ledger.

    A table differs if the number of its rows is not the number of versions that the ledger counts
    as stored.
    """
    entries = ledger_rows.load_entries()
    stored: dict[str, int] = {}
    for entry in entries:
        table = BY_TOPIC[entry.topic].table
        stored[table] = stored.get(table, 0) + entry.stored
    wrong = [
        f"{table}: the ledger counts {count} stored versions, the table has {row_count}"
        for table, count in stored.items()
        if (row_count := query(f"SELECT count(*) FROM {table}")[0]["count"]) != count
    ]
    with translation.override("en"):
        return ledger_rows.find_faults(entries) + wrong


# The tables that ingest writes, besides the tables of versions.
INGEST_TABLES = (
    "ingest_ledger",
    "ingest_gap",
    "ingest_unstored",
    "ingest_quarantine",
    "search_key",
    "ingest_pace",
    "ingest_job_run",
    "ingest_quarantine_request",
    "ingest_asked_topic",
    "late_batch",
)


def empty_ingest_tables() -> None:
    """Delete everything that ingest wrote, including the days."""
    with open_connection("test") as plain:
        parts = plain.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits JOIN pg_class t ON t.oid = inhrelid"
            " WHERE inhparent = ANY(%s::regclass[]) AND t.relkind = 'r'",
            [[entity.table for entity in ENTITIES]],
        ).fetchall()
        for (part,) in parts:
            plain.execute(f"DROP TABLE {part}")
        for table in INGEST_TABLES:
            plain.execute(f"DELETE FROM {table}")
        plain.execute("UPDATE feed_horizon SET given_to = NULL")


@pytest.fixture
def ingested(db: None) -> Iterator[Ingested]:
    """Yield a writer that has claimed the topic partitions SOURCES, on empty tables without days.

    The writer commits its transactions, so the fixture deletes the rows after the test. To flush
    every table, like pytest-django's `transactional_db`, would take seconds.
    """
    empty_ingest_tables()
    ingested = Ingested(BatchWriter(open_connection), claim_all())
    yield ingested
    ingested.writer.close()
    empty_ingest_tables()
