"""A truncated log at the broker: its offsets start again, and no message is skipped."""

import psycopg
import pytest
from django.db import connection as django_connection

from ingest.completeness import ledger_rows
from ingest.messages.message import LastMessage, TopicPartition
from ingest.store import ledger
from ingest.store.batch import OffsetGap, PartitionProgress
from ingest.store.claim import Claim
from ingest.store.session import open_connection
from tests.messages import make_message

SOURCE = TopicPartition("top-storage.export.product-instance", "id-1", 0)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plain_connection() -> object:
    with open_connection("test") as session:
        yield session


def write_batch(plain_connection: psycopg.Connection, claim: Claim, until: int) -> None:
    count = until - claim.next_offset
    claim_and_advance(
        plain_connection, claim, PartitionProgress(claim.next_offset, until, read=count, good=count)
    )


def claim_and_advance(
    plain_connection: psycopg.Connection, claim: Claim, progress: PartitionProgress
) -> None:
    with plain_connection.transaction():
        ledger.advance_partitions(
            plain_connection, [ledger.LedgerMove(claim, progress, progress.good, 0, progress.next)]
        )


def test_partition_log_that_grew_is_read_from_next_offset(
    plain_connection: psycopg.Connection,
) -> None:
    write_batch(plain_connection, ledger.claim_partition(plain_connection, SOURCE, 0, 100), 100)
    assert ledger.claim_partition(plain_connection, SOURCE, 0, 100).next_offset == 100
    assert ledger.claim_partition(plain_connection, SOURCE, 0, 150).next_offset == 100


def test_partition_log_that_was_truncated_is_read_from_its_start(
    plain_connection: psycopg.Connection,
) -> None:
    write_batch(plain_connection, ledger.claim_partition(plain_connection, SOURCE, 0, 100), 100)
    cut = ledger.claim_partition(plain_connection, SOURCE, 0, 40)
    assert (cut.next_offset, cut.topic_partition.broker_id) == (0, "id-1")
    write_batch(plain_connection, cut, 40)
    # The log grows beyond the end of the first log: reading continues in the newest ledger row.
    again = ledger.claim_partition(plain_connection, SOURCE, 0, 500)
    assert (again.topic_partition, again.next_offset) == (cut.topic_partition, 40)
    entries = ledger_rows.load_entries()
    assert [entry.current for entry in entries].count(True) == 1
    assert ledger_rows.find_faults(entries) == []


def test_each_truncation_of_a_partition_log_gets_a_new_ledger_row(
    plain_connection: psycopg.Connection,
) -> None:
    for end in (100, 50, 20, 10):
        write_batch(plain_connection, ledger.claim_partition(plain_connection, SOURCE, 0, end), end)
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT topic_id, next_offset FROM ingest_ledger ORDER BY next_offset DESC")
        assert cursor.fetchall() == [("id-1", 100), ("id-1#2", 50), ("id-1#3", 20), ("id-1#4", 10)]


def test_truncated_partition_log_is_read_from_its_start_once(
    plain_connection: psycopg.Connection,
) -> None:
    """A second consumer notices the same truncation. It continues at the offset that the first
    consumer reached."""
    write_batch(plain_connection, ledger.claim_partition(plain_connection, SOURCE, 0, 100), 100)
    cut = ledger.claim_partition(plain_connection, SOURCE, 3, truncated={SOURCE})
    assert (cut.topic_partition, cut.next_offset) == (SOURCE.make_successor(), 3)
    write_batch(plain_connection, cut, 40)
    again = ledger.claim_partition(plain_connection, SOURCE, 3, truncated={SOURCE})
    assert (again.topic_partition, again.next_offset) == (cut.topic_partition, 40)
    assert [(entry.log_cut, entry.state) for entry in ledger_rows.load_entries()] == [
        (True, "log truncated later"),
        (False, "reading"),
    ]


def test_claiming_topic_partition_returns_identity_of_last_read_message_if_broker_still_has_it(
    plain_connection: psycopg.Connection,
) -> None:
    claim = ledger.claim_partition(plain_connection, SOURCE, 0)
    assert claim.last is None
    sixth = make_message(b"bad", 6, leader_epoch=2)
    last = LastMessage.from_message(sixth)
    claim_and_advance(plain_connection, claim, PartitionProgress(0, 7, read=7, good=7, last=sixth))
    claim = ledger.claim_partition(plain_connection, SOURCE, 0)
    assert claim.last == last
    # Only transaction markers follow, so this message stays the last one.
    gap = OffsetGap(7, 9, lost=False)
    claim_and_advance(plain_connection, claim, PartitionProgress(7, 9, gaps=[gap]))
    assert ledger.claim_partition(plain_connection, SOURCE, 6).last == last
    assert ledger.claim_partition(plain_connection, SOURCE, 7).last is None
