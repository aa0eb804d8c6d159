"""A log that was cut back under the ledger: offsets start again, nothing is skipped."""

import psycopg
import pytest
from django.db import connection as django_connection

from ingest.completeness import figures
from ingest.source.message import LastMessage, TopicPartition
from ingest.store import ledger
from ingest.store.batch import OffsetGap, PartitionProgress
from ingest.store.session import open_connection
from tests.messages import message

SOURCE = TopicPartition("top-storage.export.product-instance", "id-1", 0)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plain() -> object:
    with open_connection("test") as found:
        yield found


def read(plain: psycopg.Connection, held: ledger.Claim, until: int) -> None:
    count = until - held.next_offset
    advance(plain, held, PartitionProgress(held.next_offset, until, read=count, good=count))


def advance(plain: psycopg.Connection, held: ledger.Claim, done: PartitionProgress) -> None:
    with plain.transaction():
        ledger.advance_partitions(plain, [ledger.LedgerMove(held, done, done.good, 0, done.next)])


def test_a_log_that_grew_goes_on_where_it_was(plain: psycopg.Connection) -> None:
    read(plain, ledger.claim_partition(plain, SOURCE, 0, 100), 100)
    assert ledger.claim_partition(plain, SOURCE, 0, 100).next_offset == 100
    assert ledger.claim_partition(plain, SOURCE, 0, 150).next_offset == 100


def test_a_log_that_was_cut_is_read_from_its_start(plain: psycopg.Connection) -> None:
    read(plain, ledger.claim_partition(plain, SOURCE, 0, 100), 100)
    cut = ledger.claim_partition(plain, SOURCE, 0, 40)
    assert (cut.next_offset, cut.source.broker_id) == (0, "id-1")
    read(plain, cut, 40)
    # It grows beyond where the first log ended: the newest one goes on, not the first.
    again = ledger.claim_partition(plain, SOURCE, 0, 500)
    assert (again.source, again.next_offset) == (cut.source, 40)
    entries = figures.entries()
    assert [entry.current for entry in entries].count(True) == 1
    assert figures.faults(entries) == []


def test_each_cut_has_a_row_of_its_own(plain: psycopg.Connection) -> None:
    for end in (100, 50, 20, 10):
        read(plain, ledger.claim_partition(plain, SOURCE, 0, end), end)
    with django_connection.cursor() as cursor:
        cursor.execute("SELECT topic_id, next_offset FROM ingest_ledger ORDER BY next_offset DESC")
        assert cursor.fetchall() == [("id-1", 100), ("id-1#2", 50), ("id-1#3", 20), ("id-1#4", 10)]


def test_a_log_that_is_another_one_is_read_from_its_start_once(plain: psycopg.Connection) -> None:
    """Also if two consumers notice it, one after the other."""
    read(plain, ledger.claim_partition(plain, SOURCE, 0, 100), 100)
    cut = ledger.claim_partition(plain, SOURCE, 3, cut={SOURCE})
    assert (cut.source, cut.next_offset) == (SOURCE.make_successor(), 3)
    read(plain, cut, 40)
    again = ledger.claim_partition(plain, SOURCE, 3, cut={SOURCE})
    assert (again.source, again.next_offset) == (cut.source, 40)
    assert [(each.log_cut, each.state) for each in figures.entries()] == [
        (True, "log cut since"),
        (False, "reading"),
    ]


def test_the_last_message_is_remembered_until_the_broker_deletes_it(
    plain: psycopg.Connection,
) -> None:
    held = ledger.claim_partition(plain, SOURCE, 0)
    assert held.last is None
    sixth = message(b"bad", 6, leader_epoch=2)
    last = LastMessage.of(sixth)
    advance(plain, held, PartitionProgress(0, 7, read=7, good=7, last=sixth))
    held = ledger.claim_partition(plain, SOURCE, 0)
    assert held.last == last
    # Markers behind it: nothing newer to remember.
    gap = OffsetGap(7, 9, lost=False)
    advance(plain, held, PartitionProgress(7, 9, gaps=[gap]))
    assert ledger.claim_partition(plain, SOURCE, 6).last == last
    assert ledger.claim_partition(plain, SOURCE, 7).last is None
