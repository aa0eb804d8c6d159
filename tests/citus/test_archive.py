"""The archive and the table of keys, with distributed tables."""

import pytest
from django.db import connection

from history.archive.restore import restore
from history.archive.store import Store
from history.archive.write import DayArchiver
from history.daily import days
from history.daily.days import partition_name
from history.distribution.disk_use import held
from history.entities import CHILDREN, root
from history.partitions import catalog
from tests.citus.again import own_labels, tables, transactional_db
from tests.citus.test_seals import OLD, insert
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
