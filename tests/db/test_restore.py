"""A restore keeps rows that are inserted during the restore, and does not stop other sessions. A
restore that fails changes nothing."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection as django_connection

from annals.configuration import env
from history import timeline
from history.retention import catalog
from history.retention.archive import manifest
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.run_lock import RUN_LOCK
from history.store import late_list
from history.store.days import day_locks, days
from history.store.days.canonical import Connection
from history.store.days.days import DayState
from history.timeline import ChangesQuery, TimelineOrder, VersionFilters
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    execute_plans,
    get_day,
    insert_version,
    leave_half_dropped,
    make_policy,
    run_partitions,
)
from tests.db.store import HOST
from tests.db.test_archive_generations import NAME, NOON, OLD, PRODUCT, fill

pytestmark = pytest.mark.usefixtures("tables")

ROWS = [f"a{number:03}" for number in range(20)]


@pytest.fixture
def store(tmp_path: Path, tables: None, plain: Connection) -> ArchiveStore:
    """Return an archive that has ROWS of the day OLD; the table does not have them."""
    store = ArchiveStore(str(tmp_path))
    fill(plain, *ROWS)
    assert NAME in execute_plans(make_policy(), archiver=DayArchiver(store)).dropped
    return store


def list_ids(plain: Connection, table: str = TABLE) -> list[str]:
    return [id_ for (id_,) in plain.execute(f"SELECT id FROM {table} ORDER BY id")]


def list_tables_of_day(plain: Connection) -> list[str]:
    """Return the names of all tables of the day, including tables of an unfinished restore."""
    rows = plain.execute(
        "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE %s", [f"{NAME}%"]
    )
    return [name for (name,) in rows]


@contextmanager
def run_in_background(act: Any) -> Iterator[Future[Any]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(act)


def test_restore_keeps_row_of_transaction_that_commits_during_restore(store: ArchiveStore) -> None:
    """The transaction inserted into the empty day before the restore began."""
    with connect_plainly() as plain, connect_plainly() as writer:
        days.create_partition(plain, TABLE, OLD)
        writer.execute("BEGIN")
        insert_version(writer, NOON, "in flight")
        with run_in_background(lambda: restore_day(plain, store, PRODUCT, OLD)) as future:
            time.sleep(0.5)
            assert not future.done()
            writer.execute("COMMIT")
            assert future.result().rows == len(ROWS)
        assert list_ids(writer) == [*ROWS, "in flight"]
        assert list_ids(writer, NAME) == [*ROWS, "in flight"]
        assert days.locate_day(plain, TABLE, OLD).comment == days.RESTORED
        query = "SELECT reloptions FROM pg_class WHERE oid = %s::regclass"
        assert plain.execute(query, [NAME]).fetchone() == (["toast_tuple_target=8160"],)


def test_restore_does_not_block_writers_or_readers_while_it_loads_rows(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """The restore loads rows into a new table. Meanwhile a writer creates the partition of the same
    day, and inserts rows into it."""
    seen: list[list[str]] = []
    arrived: list[str] = []

    def write() -> None:
        with connect_plainly(options="-c lock_timeout=200ms -c statement_timeout=500ms") as writer:
            days.create_partition(writer, TABLE, OLD, wait_s=0.2)
            for moment in (NOON, NOON + timedelta(days=5)):
                arrived.append(f"new {len(arrived):02}")
                insert_version(writer, moment, arrived[-1])
            seen.append(list_ids(writer))

    read = manifest.read_checked_rows

    def write_between_rows(*args: Any) -> Iterator[Any]:
        for number, row in enumerate(read(*args)):
            if number % 5 == 0:
                write()
            yield row
        write()

    monkeypatch.setattr(manifest, "read_checked_rows", write_between_rows)
    days.create_partition(plain, TABLE, get_day(0))
    restore_day(plain, store, PRODUCT, OLD)
    assert list_ids(plain) == [*ROWS, *arrived]
    assert not any(set(item) & set(ROWS) for item in seen), "rows were visible before the end"
    assert len(seen) >= 4


@pytest.mark.parametrize("row_ids", [["a003", "b"], [*ROWS, "b"]])
def test_restore_keeps_rows_that_the_table_already_has(
    store: ArchiveStore, row_ids: list[str], plain: Connection
) -> None:
    days.create_partition(plain, TABLE, OLD)
    for id_ in row_ids:
        number = ROWS.index(id_) if id_ in ROWS else 0
        insert_version(plain, NOON + timedelta(seconds=number), id_)
    restore_day(plain, store, PRODUCT, OLD)
    assert list_ids(plain) == sorted({*ROWS, "b"})


def test_restore_is_refused_when_a_row_differs_in_table_and_archive(store: ArchiveStore) -> None:
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, OLD)
        insert_version(plain, NOON, ROWS[0])
        plain.execute(f"UPDATE {TABLE} SET author = 'another'")
        with pytest.raises(ArchiveError, match=f"{ROWS[0]} version 1 differs"):
            restore_day(plain, store, PRODUCT, OLD)
        assert list_ids(plain) == [ROWS[0]]
        assert list_tables_of_day(plain) == [NAME]


@pytest.mark.plain_only("only DETACH CONCURRENTLY leaves a day half dropped")
def test_restore_completes_pending_detach(store: ArchiveStore) -> None:
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, OLD)
        insert_version(plain, NOON, "b")
        with leave_half_dropped(plain, OLD):
            pass
        assert days.locate_day(plain, TABLE, OLD).state is DayState.PENDING
        restore_day(plain, store, PRODUCT, OLD)
        assert list_ids(plain) == [*ROWS, "b"]


def test_restore_gives_up_when_transaction_stays_open(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.4)
    with connect_plainly() as plain, connect_plainly() as writer:
        days.create_partition(plain, TABLE, OLD)
        insert_version(plain, NOON, "b")
        with connect_plainly() as reader, reader.transaction():
            list_ids(reader)
            with run_in_background(lambda: restore_day(plain, store, PRODUCT, OLD)) as future:
                while not future.done():
                    insert_version(writer, NOON, f"c{time.monotonic()}")
            assert "stays open" in str(future.exception())
        assert list_tables_of_day(plain) == [NAME]
        written = list_ids(plain)
        restore_day(plain, store, PRODUCT, OLD)
        assert list_ids(plain) == sorted([*ROWS, *written])


def test_restore_can_be_repeated(store: ArchiveStore, plain: Connection) -> None:
    """The indexes of the first restore already have the names that the second restore needs."""
    restore_day(plain, store, PRODUCT, OLD)
    plain.execute(f"DELETE FROM {TABLE} WHERE id < 'a010'")
    restore_day(plain, store, PRODUCT, OLD)
    assert list_ids(plain) == ROWS
    assert list_tables_of_day(plain) == [NAME]
    partitions = catalog.read_partitions(django_connection, [TABLE])
    assert next(part for part in partitions if part.name == NAME).restored


@pytest.fixture
def with_archive(monkeypatch: pytest.MonkeyPatch, store: ArchiveStore) -> None:
    """Configure the archive for commands."""
    monkeypatch.setattr(settings, "ANNALS", env.read_settings({"ANNALS_ARCHIVE_URL": store.url}))


def test_restored_day_has_same_index_names_as_a_new_day(
    store: ArchiveStore, plain: Connection
) -> None:
    """On a cluster, the consumer recognises a repeated row only by the name of the primary key."""
    days.create_partition(plain, TABLE, OLD)
    expected = index_names(plain)
    assert f"{NAME}_pkey" in expected
    plain.execute(f"DROP TABLE {NAME}")
    for _ in range(3):
        restore_day(plain, store, PRODUCT, OLD)
        assert index_names(plain) == expected
        plain.execute(f"DELETE FROM {NAME} WHERE id = %s", [ROWS[0]])


def index_names(plain: Connection) -> list[str]:
    rows = plain.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %s::regclass ORDER BY 1",
        [NAME],
    )
    return [name for (name,) in rows]


@pytest.mark.parametrize("action", ["restore", "release", "forget"])
def test_restore_or_release_or_forget_is_refused_while_run_lock_is_held(
    with_archive: None, action: str
) -> None:
    more = ["--why", "a test"] if action == "forget" else []
    words = [action, str(OLD), "--entity", PRODUCT.name, *more]
    with connect_plainly() as other_session, other_session.transaction():
        other_session.execute("SELECT pg_advisory_xact_lock(%s)", [RUN_LOCK])
        code, _, err = run_partitions(*words)
        assert (code, "another run" in err) == (1, True)
    if action == "release":
        assert "is not a restored day" in run_partitions(*words)[2]
    else:
        assert run_partitions(*words)[0] == 0


def test_restore_command_reports_open_transaction_and_table_that_annals_did_not_create(
    with_archive: None, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.2)
    words = ["restore", str(OLD), "--entity", PRODUCT.name]
    days.create_partition(plain, TABLE, OLD)
    with connect_plainly() as reader, reader.transaction():
        list_ids(reader)
        code, _, err = run_partitions(*words)
        assert (code, "transaction" in err) == (2, True)
    days.drop_partition(plain, TABLE, OLD)
    plain.execute(f"CREATE TABLE {NAME} (LIKE {TABLE} INCLUDING ALL)")
    code, _, err = run_partitions(*words)
    assert (code, "did not create" in err) == (2, True)
    plain.execute(f"DROP TABLE {NAME}")
    assert run_partitions(*words)[0] == 0


FEED = ChangesQuery(
    filters=VersionFilters(since=NOON - timedelta(days=1)),
    order=TimelineOrder.ASC,
    complete_to=NOON + timedelta(days=1),
)


def read_feed(**changes: Any) -> tuple[list[str], str]:
    """Return the ids of all versions in a feed or late list, and the token of the last page.

    Args:
        changes: Fields of the query that replace fields of FEED, for example `late_since`.
    """
    ids: list[str] = []
    query = replace(FEED, page_size=7, **changes)
    while True:
        page = timeline.fetch_changes_page(HOST, query)
        assert page.next_token is not None
        if page.is_complete and not page.versions:
            return ids, page.next_token
        ids += [version.id for version in page.versions]
        if query.late_since:
            query = replace(query, late_since=page.next_token)
        else:
            query = replace(query, page_token=page.next_token)


def test_restored_day_is_in_late_list_of_feed_that_passed_it(
    store: ArchiveStore, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_list, "BATCH_VERSIONS", 6)
    ids, token = read_feed()
    assert ids == []
    restore_day(plain, store, PRODUCT, OLD)
    ids, late_token = read_feed(late_since=token)
    assert ids == ROWS
    assert read_feed(late_since=late_token)[0] == []
    assert read_feed(page_token=late_token)[0] == []


def test_restored_versions_are_in_late_list_if_feed_passed_their_moments_and_else_in_feed(
    store: ArchiveStore, plain: Connection
) -> None:
    early = replace(FEED, complete_to=NOON + timedelta(seconds=4))
    token = timeline.fetch_changes_page(HOST, early).next_token
    read_feed()  # a faster program has passed the day
    restore_day(plain, store, PRODUCT, OLD)
    assert read_feed(late_since=token)[0] == ROWS[:4]
    assert read_feed(page_token=token)[0] == ROWS[4:]


def test_restored_day_is_not_in_late_list_while_no_program_reads_feed(
    store: ArchiveStore, plain: Connection
) -> None:
    end = late_list.read_state().end
    restore_day(plain, store, PRODUCT, OLD)
    assert late_list.read_state().end == end
    assert read_feed()[0] == ROWS


def test_feed_that_passes_a_day_while_day_is_restored_gets_the_versions_from_late_list(
    store: ArchiveStore, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens: list[str] = []
    read = manifest.read_checked_rows

    def read_feed_between_rows(*args: Any) -> Iterator[Any]:
        for number, row in enumerate(read(*args)):
            if number == 10:
                ids, token = read_feed()
                assert ids == []
                tokens.append(token)
            yield row

    monkeypatch.setattr(manifest, "read_checked_rows", read_feed_between_rows)
    restore_day(plain, store, PRODUCT, OLD)
    assert read_feed(late_since=tokens[0])[0] == ROWS


def test_failed_restore_adds_nothing_to_late_list(store: ArchiveStore, plain: Connection) -> None:
    days.create_partition(plain, TABLE, OLD)
    insert_version(plain, NOON, ROWS[0])
    plain.execute(f"UPDATE {TABLE} SET author = 'another'")
    ids, token = read_feed()
    assert ids == [ROWS[0]]
    with pytest.raises(ArchiveError):
        restore_day(plain, store, PRODUCT, OLD)
    assert read_feed(late_since=token)[0] == []
