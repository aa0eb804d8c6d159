"""A row of a packed day is stored once, whoever sends it, again or late."""

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
from tests.db.partitioned import TABLE, raw
from tests.db.test_late_rows import rows
from tests.messages import NOW, SOURCE, make_value, make_value_with_data

MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)
OLD = MOMENT.date()


def old(id: str, version: int, minutes: int = 0, data: str | None = None) -> bytes:
    moment = (MOMENT + timedelta(minutes=minutes + version)).replace(tzinfo=None).isoformat()
    given: dict[str, Any] = {"id": id, "version": version, "updatedAt": moment}
    return make_value(**given) if data is None else make_value_with_data(data.encode(), **given)


FIRST = [old(id, version) for id in "ab" for version in range(5)]


@pytest.fixture(autouse=True)
def packed(transactional_db: None, ingested: Ingested, plain: Connection) -> Ingested:
    ingested.write(*FIRST)
    packing.pack_day(plain, ROOT, OLD)
    return ingested


def there() -> list[tuple[str, int]]:
    with raw() as plain:
        place = days.locate_day(plain, TABLE, OLD)
        return [(row[0], row[1]) for row in stream_versions(plain, ROOT, place.child)]


ALL = [(id, version) for id in "ab" for version in range(5)]


def test_reread_topic_stores_nothing_twice_in_packed_day(packed: Ingested) -> None:
    done = packed.write(*FIRST)
    assert (done.stored[SOURCE], done.repeated[SOURCE], done.rejects) == (0, 10, ())
    done = packed.write(*FIRST[3:8])  # straight to the slow path now
    assert (done.stored[SOURCE], done.repeated[SOURCE], done.rejects) == (0, 5, ())
    assert there() == ALL


def test_batch_with_new_rows_and_repeats_is_stored_in_packed_day(packed: Ingested) -> None:
    done = packed.write(old("a", 2), old("a", 5), old("c", 0), old("a", 2, minutes=1))
    assert (done.stored[SOURCE], done.repeated[SOURCE]) == (3, 1)
    assert there() == sorted([*ALL, ("a", 5), ("c", 0), ("a", 2)])
    assert LateRow.objects.filter(day=OLD).count() == 3


def test_different_content_for_packed_key_is_quarantined(packed: Ingested) -> None:
    for version in (2, 4):  # in the block, and the row of the block itself
        done = packed.write(old("a", version, data='{"other": 1}'))
        assert [reject.reason for reject in done.rejects] == [Reason.DIVERGENT]
    assert there() == ALL


def test_message_for_damaged_block_is_quarantined(packed: Ingested, plain: Connection) -> None:
    """Nobody knows whether it is a repeat; the consumer goes on."""
    plain.execute(f"UPDATE {TABLE} SET packed = overlay(packed PLACING 'x'::bytea FROM 20)")
    done = packed.write(old("a", 2), old("c", 0))
    assert [reject.reason for reject in done.rejects] == [Reason.DIVERGENT]
    assert done.stored[SOURCE] == 1


def test_equal_document_in_other_text_is_a_repeat(packed: Ingested, plain: Connection) -> None:
    packed.write(old("n", 0, data='{"a": 1.50, "b": "x"}'), old("n", 1, data='{"a": 2}'))
    packing.pack_day(plain, ROOT, OLD)
    done = packed.write(old("n", 0, data='{"b":"x","a":1.5}'), old("n", 1, data='{"a":2.0}'))
    assert (done.repeated[SOURCE], done.rejects) == (2, ())


def test_pack_keeps_row_of_open_transaction(packed: Ingested) -> None:
    """The day waits for it, and has it."""
    with raw() as plain:
        packing.unpack_day(plain, ROOT, OLD)
    done: list[Any] = []

    def pack() -> None:
        with raw() as plain:
            done.append(packing.pack_day(plain, ROOT, OLD))
        connection.close()  # of this thread

    writer = open_connection()
    thread = threading.Thread(target=pack)
    with writer.transaction():
        copy_rows(writer, ROOT, rows(old("z", 0)))
        thread.start()
        time.sleep(0.5)
        assert not done
    thread.join(20)
    writer.close()
    assert done
    assert there() == [*ALL, ("z", 0)]


def test_writer_that_waited_for_swap_reads_blocks(
    packed: Ingested, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """It began before the day was packed, and its rows are repeats."""
    settle = table_swap.TableWatch.settle
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(packed.write(*FIRST, old("z", 0))))

    def slowly(self: Any, *given: Any) -> int:
        thread.start()  # nobody can write now
        time.sleep(0.5)
        assert not done
        return settle(self, *given)

    packing.unpack_day(plain, ROOT, OLD)
    monkeypatch.setattr(table_swap.TableWatch, "settle", slowly)
    packing.pack_day(plain, ROOT, OLD)
    thread.join(20)
    assert (done[0].repeated[SOURCE], done[0].stored[SOURCE]) == (10, 1)
    assert there() == [*ALL, ("z", 0)]


def test_day_with_many_late_rows_is_packed_again(packed: Ingested, plain: Connection) -> None:
    def due() -> list[Any]:
        return packing.find_due_days(catalog.read_partitions(connection, [TABLE]), NOW.date(), 2)

    assert due() == []
    packed.write(*(old("late", version) for version in range(30)))
    assert due() == [(TABLE, OLD)]
    packing.pack_day(plain, ROOT, OLD)
    left = plain.execute(f"SELECT count(*) FROM {TABLE} WHERE packed IS NULL").fetchone()
    assert (due(), left) == ([], (0,))
    assert len(there()) == 40
    assert SealedDay.objects.get(day=OLD).packed_at is not None


def test_empty_day_is_not_overdue(plain: Connection) -> None:
    """It has the bytes of its indexes."""
    empty = OLD - timedelta(days=1)
    days.create_partition(plain, TABLE, empty)
    parts = catalog.read_partitions(connection, [TABLE])
    assert empty in [part.day for part in parts]
    assert packing.find_overdue_days(parts, NOW.date(), 2) == []


def test_overdue_days_are_counted(packed: Ingested) -> None:
    [found] = [part for part in catalog.read_partitions(connection, [TABLE]) if part.day == OLD]
    full = [replace(found, bytes=1 << 20)]
    assert packing.count_overdue_days(full, NOW.date(), 2) == {}
    SealedDay.objects.update(packed_at=None)
    assert packing.count_overdue_days(full, NOW.date(), 2) == {TABLE: 1}
    assert packing.count_overdue_days(full, NOW.date(), 0) == {}
    assert packing.count_overdue_days([replace(found, bytes=1 << 10)], NOW.date(), 2) == {}
    ended = [packing.count_overdue_days(full, OLD + timedelta(days=number), 2) for number in (3, 4)]
    assert ended == [{}, {TABLE: 1}]
