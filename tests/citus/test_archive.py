"""The archive and the table of keys, with distributed tables."""

import io
from datetime import UTC, date, datetime, timedelta

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from msgspec.structs import replace

from history.archive.restore import restore
from history.archive.store import Store
from history.archive.write import DayArchiver
from history.base import clock
from history.daily import days
from history.daily.days import partition_name
from history.distribution.disk_use import held
from history.entities import CHILDREN, root
from history.partitions import catalog
from history.search_index.backfill import remove_old
from tests.citus.again import own_labels, tables, transactional_db
from tests.citus.test_seals import NOON, OLD, insert
from tests.db.partitioned import raw
from tests.db.test_archive import (
    store,
    test_maintain_archives_before_it_drops_and_keeps_what_was_restored,
)

__all__ = [
    "own_labels",
    "store",
    "tables",
    "test_maintain_archives_before_it_drops_and_keeps_what_was_restored",
    "transactional_db",
]

pytestmark = pytest.mark.usefixtures("tables")
CHILD = CHILDREN[0]
NAME = partition_name(CHILD.table, OLD)


def test_a_child_of_two_applications_comes_back_twice_and_is_found(store: Store) -> None:
    with raw() as plain:
        days.create(plain, CHILD.table, OLD)
        for id, application in (("x", "b"), ("x", "a"), ("y", "a")):
            insert(plain, CHILD.table, id, application)
        assert NOON.date() == OLD
        DayArchiver(store).archive(plain, CHILD.table, OLD)
        plain.execute(f"DELETE FROM {CHILD.table} WHERE product_instance_id = 'b' OR id = 'y'")
        plain.execute("TRUNCATE child_home, child_moved")
        assert restore(plain, store, CHILD, OLD).rows == 3
        found = plain.execute(
            f"SELECT id, product_instance_id FROM {CHILD.table} ORDER BY 1, 2"
        ).fetchall()
        assert found == [("x", "a"), ("x", "b"), ("y", "a")]
        known = plain.execute(
            "SELECT id, product_instance_id, newest_day FROM child_home ORDER BY 1, 2"
        ).fetchall()
        assert known == [(*each, OLD) for each in found]
        moved = plain.execute(
            "SELECT id, product_instance_id, other_application FROM child_moved ORDER BY 2"
        ).fetchall()
        assert moved == [("x", "a", "b"), ("x", "b", "a")]


def test_the_missing_rows_of_a_day_of_applications_come_back(store: Store) -> None:
    table = root().table
    with raw() as plain:
        days.create(plain, table, OLD)
        for id in ("a", "b"):
            insert(plain, table, id)
        DayArchiver(store).archive(plain, table, OLD)
        plain.execute(f"DELETE FROM {table} WHERE id = 'b'")
        insert(plain, table, "c")
        restore(plain, store, root(), OLD)
        found = plain.execute(f"SELECT id FROM {table} ORDER BY 1").fetchall()
        assert found == [("a",), ("b",), ("c",)]


def test_homes_of_a_restored_day_stay_as_long_as_it_does(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is found by its id after the next `maintain`, too."""
    few = replace(settings.ANNALS, retention_days=1, ahead_days=1)
    monkeypatch.setattr(settings, "ANNALS", few)
    known = "SELECT id, product_instance_id, newest_day FROM child_home"
    with raw() as plain:
        old = clock.now().date() - timedelta(30)
        days.create(plain, CHILD.table, old)
        insert(plain, CHILD.table, "x", "a", datetime(old.year, old.month, old.day, tzinfo=UTC))
        DayArchiver(store).archive(plain, CHILD.table, old)
        days.drop(plain, CHILD.table, old)
        plain.execute("TRUNCATE child_home, child_moved")
        restore(plain, store, CHILD, old)
        call_command("partitions", "maintain", stdout=io.StringIO())
        assert plain.execute(known).fetchall() == [("x", "a", old)]
        days.release(plain, CHILD.table, old)
        days.drop(plain, CHILD.table, old)
        call_command("partitions", "maintain", stdout=io.StringIO())
        assert plain.execute(known).fetchall() == []


def test_sizes_and_rows_are_those_of_all_nodes() -> None:
    with raw() as plain:
        days.create(plain, CHILD.table, OLD)
        for number in range(40):
            insert(plain, CHILD.table, f"id{number}", f"application{number}")
        plain.execute(f"ANALYZE {NAME}")
        [(size,)] = plain.execute("SELECT citus_total_relation_size(%s)", [NAME]).fetchall()
        found = held(plain, [NAME])[NAME]
        [(shards,)] = plain.execute(
            "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = %s::regclass", [NAME]
        ).fetchall()
        assert (found.rows, len(found.shards)) == (40, shards)
        assert found.bytes <= size  # which counts the empty table of the coordinator too
        assert found.bytes > size / 2
    [part] = catalog.read(connection, [CHILD.table])
    assert (part.rows, part.bytes) == (40, found.bytes)


def test_old_keys_leave_all_shards() -> None:
    today = date(2026, 3, 29)
    with raw() as plain:
        plain.execute("TRUNCATE search_key")
        for number, day in ((1, today - timedelta(9)), (2, today)):
            plain.execute(
                "INSERT INTO search_key (value, name, entity, id, day)"
                " SELECT 'v' || n, 'number', %s, 'a' || %s, %s FROM generate_series(1, 200) n",
                [CHILD.name, str(number), day],
            )
        assert remove_old(plain, today) == 200
        left = plain.execute("SELECT id, count(*) FROM search_key GROUP BY 1").fetchall()
        assert left == [("a2", 200)]
        plain.execute("TRUNCATE search_key")
