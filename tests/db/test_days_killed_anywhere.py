"""No row is lost when `partitions maintain` or `restore` is killed between any two statements.

The next run of the command completes the work.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection as django_connection
from django.db import connections

from history.models import ArchivedDay
from history.retention import packing
from history.retention.archive import manifest
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.plan import PartitionPolicy
from history.store.days import days
from history.store.days.canonical import stream_versions
from history.store.days.window import Window
from tests.consuming import wait_until
from tests.db.partitioned import (
    TABLE,
    TABLES,
    TODAY,
    connect_plainly,
    count_advisory_locks,
    drop_partitions,
    execute_plans,
    list_partition_names,
)
from tests.db.test_archive_generations import (
    NAME,
    OLD,
    PRODUCT,
    fill,
    list_archived_ids,
    small_files,
)
from tests.kill_points import ProcessKilled, kill_before_statement

pytestmark = pytest.mark.usefixtures("tables")

__all__ = ["small_files"]

FIRST = [f"a{number}" for number in range(9)]
LATER = [f"b{number}" for number in range(5)]
# Retention keeps only today, so that most statements of a run are about the old day.
POLICY = PartitionPolicy(Window(TODAY, TODAY), TODAY)


def reset_days() -> None:
    """Drop all days, delete all rows of ArchivedDay, and create the day TODAY in each table."""
    drop_partitions()
    ArchivedDay.objects.all().delete()
    with connect_plainly() as plain:
        for table in TABLES:
            days.create_partition(plain, table, TODAY)


def list_ids_anywhere(store: ArchiveStore) -> set[str]:
    """Return the ids of all rows in the archive and in all partitions, including detached ones."""
    ids = set(list_archived_ids(store))
    with connect_plainly() as plain:
        for name in list_partition_names():
            ids |= {id_ for (id_,) in plain.execute(f"SELECT id FROM {name}")}
    return ids


def wait_until_free() -> None:
    """Wait until the server has ended the session of the killed process and freed its locks."""
    wait_until(lambda: count_advisory_locks() == 0, "the session of a killed process does not end")


def kill_everywhere(act: Callable[[], object]) -> Iterator[int]:
    """Repeat `act`, killed one statement later each time, until it completes.

    Yield the number of executed statements after each killed run.
    """
    for statements in range(500):
        try:
            with kill_before_statement(statements):
                act()
        except ProcessKilled:
            connections.close_all()
            wait_until_free()
            yield statements
        else:
            return
    raise AssertionError("`act` did not complete within 500 statements")


def fetch_table_rows() -> list[tuple[Any, ...]]:
    """Return all rows of the day OLD with all columns."""
    with connect_plainly() as plain:
        return list(stream_versions(plain, PRODUCT, days.locate_day(plain, TABLE, OLD).child))


def read_archived_rows(store: ArchiveStore) -> list[tuple[Any, ...]]:
    day_manifest = manifest.load_manifest(store, TABLE, OLD)
    return [] if day_manifest is None else list(manifest.read_checked_rows(store, day_manifest))


def test_no_row_of_packed_day_is_lost_when_maintain_is_killed_at_any_statement(
    tmp_path: Path,
) -> None:
    count, begin, store = 0, tmp_path / "begin", ArchiveStore(str(tmp_path / "0"))
    reset_days()
    with connect_plainly() as plain:
        fill(plain, *FIRST)
    assert execute_plans(POLICY, archiver=DayArchiver(ArchiveStore(str(begin)))).dropped == [NAME]
    archived_day, expected = ArchivedDay.objects.get(), read_archived_rows(ArchiveStore(str(begin)))

    def set_up_day() -> list[tuple[Any, ...]]:
        nonlocal store
        reset_days()
        shutil.copytree(begin, tmp_path / str(count))
        archived_day.save(force_insert=True)
        store = ArchiveStore(str(tmp_path / str(count)))
        with connect_plainly() as plain:
            fill(plain, *LATER)
            fill(plain, *LATER, version=2)
            before = fetch_table_rows() if count == 0 else []
            packing.pack_day(plain, PRODUCT, OLD)
        return before

    expected = sorted([*expected, *set_up_day()])
    for _ in kill_everywhere(lambda: execute_plans(POLICY, archiver=DayArchiver(store))):
        assert list_ids_anywhere(store) == {*FIRST, *LATER}
        assert execute_plans(POLICY, archiver=DayArchiver(store)).exit_code == 0
        assert read_archived_rows(store) == expected
        assert NAME not in list_partition_names()
        count += 1
        set_up_day()
    assert count > 20


def test_no_row_is_lost_when_restore_is_killed_at_any_statement(tmp_path: Path) -> None:
    """The day was packed before it was archived."""
    store = ArchiveStore(str(tmp_path))
    reset_days()
    with connect_plainly() as plain:
        fill(plain, *FIRST)
        expected = fetch_table_rows()
        packing.pack_day(plain, PRODUCT, OLD)
        execute_plans(POLICY, archiver=DayArchiver(store))
        fill(plain, *LATER)
    later = fetch_table_rows()

    def run() -> None:
        django_connection.ensure_connection()
        restore_day(django_connection.connection, store, PRODUCT, OLD)

    count = 0
    for _ in kill_everywhere(run):
        assert fetch_table_rows() == later
        assert list_partition_names() == [NAME, days.build_partition_name(TABLE, TODAY)]
        count += 1
    assert fetch_table_rows() == [*expected, *later]
    assert count > 10
