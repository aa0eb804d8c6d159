"""A row of a packed day is stored once, even if its message is read again or is late."""

import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from history.kinds.entities import ROOT
from history.models import LateRow, SealedDay
from history.retention import catalog, packing
from history.store.days import days, table_swap
from history.store.days.canonical import Connection, stream_versions
from ingest.messages.decode import Reason
from ingest.store.fast_path import copy_rows
from ingest.store.session import open_connection
from tests.db.ingested import Ingested
from tests.db.partitioned import TABLE, connect_plainly
from tests.db.test_late_rows import decode_rows
from tests.messages import NOW, SOURCE, make_value, make_value_with_data

MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)
OLD = MOMENT.date()


def make_old_message(id: str, version: int, minutes: int = 0, data: str | None = None) -> bytes:
    moment = (MOMENT + timedelta(minutes=minutes + version)).replace(tzinfo=None).isoformat()
    fields: dict[str, Any] = {"id": id, "version": version, "updatedAt": moment}
    return make_value(**fields) if data is None else make_value_with_data(data.encode(), **fields)


FIRST = [make_old_message(id, version) for id in "ab" for version in range(5)]


@pytest.fixture(autouse=True)
def packed(transactional_db: None, ingested: Ingested, plain: Connection) -> Ingested:
    ingested.write(*FIRST)
    packing.pack_day(plain, ROOT, OLD)
    return ingested


def list_versions() -> list[tuple[str, int]]:
    with connect_plainly() as plain:
        day_table = days.locate_day(plain, TABLE, OLD)
        return [(row[0], row[1]) for row in stream_versions(plain, ROOT, day_table.child)]


ALL = [(id, version) for id in "ab" for version in range(5)]


def test_messages_that_are_read_again_are_not_stored_twice_in_packed_day(packed: Ingested) -> None:
    result = packed.write(*FIRST)
    assert (result.stored[SOURCE], result.repeated[SOURCE], result.refused) == (0, 10, ())
    result = packed.write(*FIRST[3:8])  # this batch goes to the slow path at once
    assert (result.stored[SOURCE], result.repeated[SOURCE], result.refused) == (0, 5, ())
    assert list_versions() == ALL


def test_new_rows_of_a_batch_with_repeats_are_stored_in_packed_day(packed: Ingested) -> None:
    result = packed.write(
        make_old_message("a", 2),
        make_old_message("a", 5),
        make_old_message("c", 0),
        make_old_message("a", 2, minutes=1),
    )
    assert (result.stored[SOURCE], result.repeated[SOURCE]) == (3, 1)
    assert list_versions() == sorted([*ALL, ("a", 5), ("c", 0), ("a", 2)])
    assert LateRow.objects.filter(day=OLD).count() == 3


def test_message_with_different_content_for_packed_version_is_quarantined(packed: Ingested) -> None:
    for version in (
        2,
        4,
    ):  # a version inside the block, and the one that is also the key of its row
        result = packed.write(make_old_message("a", version, data='{"other": 1}'))
        assert [reject.reason for reject in result.refused] == [Reason.DIVERGENT]
    assert list_versions() == ALL


def test_message_is_quarantined_when_block_with_its_version_is_damaged(
    packed: Ingested, plain: Connection
) -> None:
    """The message cannot be compared with the stored version. The consumer continues with the next
    messages."""
    plain.execute(f"UPDATE {TABLE} SET packed = overlay(packed PLACING 'x'::bytea FROM 20)")
    result = packed.write(make_old_message("a", 2), make_old_message("c", 0))
    assert [reject.reason for reject in result.refused] == [Reason.DIVERGENT]
    assert result.stored[SOURCE] == 1


def test_snapshot_in_other_json_notation_counts_as_repeated_in_packed_day(
    packed: Ingested, plain: Connection
) -> None:
    packed.write(
        make_old_message("n", 0, data='{"a": 1.50, "b": "x"}'),
        make_old_message("n", 1, data='{"a": 2}'),
    )
    packing.pack_day(plain, ROOT, OLD)
    result = packed.write(
        make_old_message("n", 0, data='{"b":"x","a":1.5}'),
        make_old_message("n", 1, data='{"a":2.0}'),
    )
    assert (result.repeated[SOURCE], result.refused) == (2, ())


@pytest.mark.plain_only("a cluster does not pack a day that changes meanwhile")
def test_pack_keeps_row_of_open_transaction(packed: Ingested) -> None:
    """Packing waits until the transaction ends."""
    with connect_plainly() as plain:
        packing.unpack_day(plain, ROOT, OLD)
    results: list[Any] = []

    def pack() -> None:
        with connect_plainly() as plain:
            results.append(packing.pack_day(plain, ROOT, OLD))
        connection.close()  # the connection of this thread

    writer = open_connection()
    thread = threading.Thread(target=pack)
    with writer.transaction():
        copy_rows(writer, ROOT, decode_rows(make_old_message("z", 0)))
        thread.start()
        time.sleep(0.5)
        assert not results
    thread.join(120)
    writer.close()
    assert results
    assert list_versions() == [*ALL, ("z", 0)]


@pytest.mark.plain_only("a cluster does not pack a day that changes meanwhile")
def test_writer_that_waited_for_the_swap_recognises_repeats_in_blocks(
    packed: Ingested, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """The write began before the swap. After it, the versions that the write repeats are in
    blocks."""
    settle = table_swap.TableWatch.settle
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.append(packed.write(*FIRST, make_old_message("z", 0)))
    )

    def settle_slowly(self: Any, *args: Any) -> int:
        thread.start()  # no writer can write now
        time.sleep(0.5)
        assert not results
        return settle(self, *args)

    packing.unpack_day(plain, ROOT, OLD)
    monkeypatch.setattr(table_swap.TableWatch, "settle", settle_slowly)
    packing.pack_day(plain, ROOT, OLD)
    thread.join(120)
    assert (results[0].repeated[SOURCE], results[0].stored[SOURCE]) == (10, 1)
    assert list_versions() == [*ALL, ("z", 0)]


def test_day_with_many_late_rows_is_packed_again(packed: Ingested, plain: Connection) -> None:
    def find_due_days() -> list[Any]:
        return packing.find_due_days(catalog.read_partitions(connection, [TABLE]), NOW.date(), 2)

    assert find_due_days() == []
    packed.write(*(make_old_message("late", version) for version in range(30)))
    assert find_due_days() == [(TABLE, OLD)]
    packing.pack_day(plain, ROOT, OLD)
    plain_rows = plain.execute(f"SELECT count(*) FROM {TABLE} WHERE packed IS NULL").fetchone()
    assert (find_due_days(), plain_rows) == ([], (0,))
    assert len(list_versions()) == 40
    assert SealedDay.objects.get(day=OLD).packed_at is not None


def test_empty_day_is_not_overdue_for_packing(plain: Connection) -> None:
    """The table of an empty day still has a size, because of its indexes."""
    empty = OLD - timedelta(days=1)
    days.create_partition(plain, TABLE, empty)
    parts = catalog.read_partitions(connection, [TABLE])
    assert empty in [part.day for part in parts]
    assert packing.find_overdue_days(parts, NOW.date(), 2) == []


def test_days_overdue_for_packing_are_counted(packed: Ingested) -> None:
    [partition] = [part for part in catalog.read_partitions(connection, [TABLE]) if part.day == OLD]
    full = [replace(partition, bytes=1 << 20)]
    assert packing.count_overdue_days(full, NOW.date(), 2) == {}
    SealedDay.objects.update(packed_at=None)
    assert packing.count_overdue_days(full, NOW.date(), 2) == {TABLE: 1}
    assert packing.count_overdue_days(full, NOW.date(), 0) == {}
    assert packing.count_overdue_days([replace(partition, bytes=1 << 10)], NOW.date(), 2) == {}
    ended = [packing.count_overdue_days(full, OLD + timedelta(days=number), 2) for number in (3, 4)]
    assert ended == [{}, {TABLE: 1}]
