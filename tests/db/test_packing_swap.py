"""The swap of a day's table does not lose or repeat a version, even if others write to the day."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from psycopg import errors, sql

from annals.access.grants import CONSUMER
from history.common import clock
from history.kinds.entities import ROOT
from history.models import ChangedRow, PackAttempt, PackDictionary, SealedDay
from history.retention import packing
from history.retention.archive.restore import restore_day
from history.retention.archive.store import ArchiveError
from history.retention.archive.store import ArchiveStore as Archive
from history.retention.archive.write import DayArchiver
from history.store.blocks import dictionaries
from history.store.days import day_locks, days, table_swap
from history.store.days.canonical import Connection, stream_versions
from tests.consuming import wait_until
from tests.db.as_role import act_as
from tests.db.ingested import Ingested
from tests.db.partitioned import (
    TABLE,
    connect_plainly,
    pack_finished_days,
    record_all_topics_as_read,
    run_partitions,
)
from tests.db.store import T0, Store, minute
from tests.messages import NOW, SOURCE, make_value

pytestmark = pytest.mark.usefixtures("tables")

DAY = T0.date()
PARTITION = days.build_partition_name(TABLE, DAY)
Act = Callable[[], None]
Rewrite = Callable[[], object]


def list_versions() -> list[tuple[str, int]]:
    """Return the id and the number of each version of the day."""
    with connect_plainly() as plain:
        rows = stream_versions(plain, ROOT, days.locate_day(plain, TABLE, DAY).child)
        return [(row[0], row[1]) for row in rows]


def insert(
    plain: Connection, id: str, version: int, minutes: float = 0, table: str = TABLE
) -> None:
    plain.execute(
        f"INSERT INTO {table} (id, version, data, updated_at, client_id, type)"
        """ VALUES (%s, %s, '{"late": true}', %s, 'sql', 1)""",
        [id, version, minute(minutes)],
    )


@pytest.fixture
def filled() -> list[tuple[str, int]]:
    """Store versions of the day as plain rows, and return their ids and numbers."""
    store = Store()
    with connect_plainly() as plain:
        days.create_partition(plain, TABLE, DAY)
    for id in "abc":
        for version in range(20):
            store.add(id, version, {"id": id, "n": version}, version)
    return list_versions()


def pack_root(plain: Connection) -> packing.RewriteResult:
    return packing.pack_day(plain, ROOT, DAY)


def unpack_root(plain: Connection) -> packing.RewriteResult:
    return packing.unpack_day(plain, ROOT, DAY)


@contextmanager
def act_meanwhile(monkeypatch: pytest.MonkeyPatch, act: Act) -> Iterator[None]:
    """Call `act` after the versions of the day were copied, and before the new table replaces the
    old one."""
    fill = packing.DayRewrite.fill_table

    def fill_and_act(self: Any, *args: Any) -> Any:
        result = fill(self, *args)
        act()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(packing.DayRewrite, "fill_table", fill_and_act)
        yield


@pytest.fixture
def autovacuum_of_the_day(filled: list[tuple[str, int]]) -> Iterator[None]:
    """Let autovacuum work on the day's table during the test.

    Autovacuum pauses after each page, so that it needs half a minute for the table.
    """
    with connect_plainly() as plain:
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            " SELECT 'long', n, jsonb_build_object('text', repeat(md5(n::text), 30)), %s, 'sql', 1"
            " FROM generate_series(1, 3000) AS n",
            [minute(5)],
        )
        plain.execute(
            f"ALTER TABLE {PARTITION} SET (autovacuum_vacuum_insert_threshold = 1,"
            " autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_cost_delay = 100,"
            " autovacuum_vacuum_cost_limit = 1)"
        )
        plain.execute("ALTER SYSTEM SET autovacuum_naptime = 1")
        plain.execute("SELECT pg_reload_conf()")
        try:
            wait_until(lambda: is_being_vacuumed(plain), "autovacuum does not begin")
            yield
        finally:
            plain.execute("ALTER SYSTEM RESET autovacuum_naptime")
            plain.execute("SELECT pg_reload_conf()")


def is_being_vacuumed(plain: Connection) -> bool:
    """Return whether an autovacuum worker is processing the day's table now."""
    return bool(
        plain.execute(
            "SELECT true FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE relation = %s::regclass AND backend_type = 'autovacuum worker'",
            [PARTITION],
        ).fetchone()
    )


@pytest.mark.plain_only("autovacuum works on the nodes of a cluster")
def test_day_is_packed_while_autovacuum_is_processing_it(
    filled: list[tuple[str, int]], autovacuum_of_the_day: None
) -> None:
    with connect_plainly() as plain:
        assert pack_root(plain).rows == len(filled) + 3000


ROWS = (
    "(id, version, data, updated_at, client_id, type) SELECT 'late' || number, 1, '{}',"
    f" timestamptz '{minute(3)}', 'sql', 1 FROM generate_series(1, 30) AS number"
)
# Writers of rows other than the consumer of this release.
WRITERS = {
    "the owner": f"INSERT INTO {TABLE} {ROWS}",
    "the owner into the partition": f"INSERT INTO {PARTITION} {ROWS}",
    "a replication": f"SET session_replication_role = replica; INSERT INTO {PARTITION} {ROWS}",
    "COPY, as an earlier release": "",
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("rewrite", [pack_root, unpack_root])
@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_swap_keeps_rows_that_any_writer_inserts_before_the_swap(
    writer: str,
    rewrite: Callable[[Connection], object],
    filled: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    plain: Connection,
) -> None:
    """An earlier release kept only late rows that the consumer had noted. It lost 159 of 220
    rows."""
    if rewrite is unpack_root:
        pack_root(plain)

    def write() -> None:
        with connect_plainly() as other_session:
            if WRITERS[writer]:
                other_session.execute(WRITERS[writer])
                return
            command = f"COPY {TABLE} (id, version, data, updated_at, client_id, type) FROM STDIN"
            with other_session.cursor() as cursor, cursor.copy(command) as copy:
                for number in range(1, 31):
                    copy.write_row((f"late{number}", 1, "{}", minute(3), "sql", 1))

    with act_meanwhile(monkeypatch, write):
        rewrite(plain)
    late = [(f"late{number}", 1) for number in range(1, 31)]
    assert list_versions() == sorted([*filled, *late])
    assert ChangedRow.objects.count() == 0


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_swap_stores_row_once_when_it_is_both_copied_and_noted_by_trigger(
    filled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """The row is inserted after the trigger was created, and before the rows of the day are
    copied."""
    fill = packing.DayRewrite.fill_table

    def insert_late(self: Any, *args: Any) -> Any:
        with connect_plainly() as other_session:
            insert(other_session, "late", 1)
        return fill(self, *args)

    monkeypatch.setattr(packing.DayRewrite, "fill_table", insert_late)
    pack_root(plain)
    assert list_versions() == [*filled, ("late", 1)]


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_rows_inserted_while_day_is_swapped_are_kept(
    filled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, int]] = []
    stop = threading.Event()

    def write() -> None:
        with connect_plainly() as other_session:
            while not stop.is_set():
                id = f"w{len(written):05}"
                insert(other_session, id, 1)
                written.append((id, 1))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with connect_plainly() as plain:
            for rewrite in (pack_root, unpack_root, pack_root, pack_root, unpack_root):
                rewrite(plain)
    finally:
        stop.set()
        thread.join(120)
    assert len(written) > 20
    assert list_versions() == sorted([*filled, *written])


CHANGES = {
    "update": "UPDATE {partition} SET author = 'another' WHERE id = 'a' AND version = 3",
    "delete": "DELETE FROM {table} WHERE id = 'a' AND version = 3",
    "truncate": "TRUNCATE {partition}",
    "replica": "SET session_replication_role = replica; DELETE FROM {partition} WHERE id = 'a'",
    "block": "INSERT INTO {partition} (id, version, updated_at, client_id, type, packed)"
    f" VALUES ('z', 1, '{minute(0)}', 'sql', 1, 'x')",
    "without the trigger": "ALTER TABLE {partition} DISABLE TRIGGER USER;"
    "INSERT INTO {partition} SELECT 'y', version, data, updated_at, client_id, author, type"
    " FROM {partition} WHERE id = 'a' AND packed IS NULL LIMIT 1;"
    "ALTER TABLE {partition} ENABLE ALWAYS TRIGGER annals_note_change;"
    "ALTER TABLE {partition} ENABLE ALWAYS TRIGGER annals_note_truncate",
    "dropped trigger": "DROP TRIGGER annals_note_change ON {partition}",
    "a new file": "VACUUM FULL {partition}",
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_day_is_not_swapped_when_its_rows_were_changed_or_deleted_before_the_swap(
    change: str,
    filled: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    plain: Connection,
) -> None:
    """Only inserted rows can be added to the new table. The next attempt succeeds."""
    after: list[Any] = []

    def write() -> None:
        with connect_plainly() as other_session:
            for statement in CHANGES[change].format(table=TABLE, partition=PARTITION).split(";"):
                other_session.execute(statement)
            after.extend(other_session.execute(f"SELECT id, version FROM {TABLE} ORDER BY 1, 2"))

    with (
        act_meanwhile(monkeypatch, write),
        pytest.raises(errors.LockNotAvailable, match=f"{PARTITION} stays as it is"),
    ):
        pack_root(plain)
    assert plain.execute(f"SELECT id, version FROM {TABLE} ORDER BY 1, 2").fetchall() == after
    assert SealedDay.objects.filter(packed_at__isnull=False).count() == 0
    assert list_triggers(plain) == []
    if change != "block":
        pack_root(plain)
        assert list_versions() == after


def list_triggers(plain: Connection) -> list[str]:
    rows = plain.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = %s::regclass AND NOT tgisinternal"
        " ORDER BY 1",
        [PARTITION],
    )
    return [name for (name,) in rows]


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_swap_is_refused_when_old_and_new_table_have_different_numbers_of_versions(
    filled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """The check finds a row that the trigger did not note."""
    monkeypatch.setattr(table_swap.TableWatch, "settle", lambda *_: 0)
    monkeypatch.setattr(table_swap.TableWatch, "add_noted_rows", lambda *_: 0)

    def write() -> None:
        with connect_plainly() as other_session:
            insert(other_session, "late", 1)

    with act_meanwhile(monkeypatch, write), pytest.raises(packing.WrongRowsError):
        pack_root(plain)
    assert list_versions() == [*filled, ("late", 1)]


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_trigger_left_by_killed_run_does_not_stop_inserts_and_is_removed_by_next_run(
    filled: list[tuple[str, int]], plain: Connection
) -> None:
    """The trigger notes each insert in the table of ChangedRow. The consumer's login can insert
    versions, although it may neither write that table nor read a partition of the versions."""
    call_command("grants", "--apply", verbosity=0)
    with (
        pytest.raises(KeyboardInterrupt),
        table_swap.watch_table(plain, days.locate_day(plain, TABLE, DAY)),
    ):
        raise KeyboardInterrupt
    assert list_triggers(plain) == ["annals_note_change", "annals_note_truncate"]
    with act_as(CONSUMER) as consumer:
        insert(consumer, "late", 1)
    assert ChangedRow.objects.count() == 1
    record_all_topics_as_read()
    outcome = pack_finished_days(clock.now().date())
    assert (outcome.packed, outcome.broken) == ([PARTITION], [])
    assert (list_triggers(plain), ChangedRow.objects.count()) == (["annals_refuse_packed"], 0)
    with act_as(CONSUMER) as consumer, pytest.raises(errors.UniqueViolation):
        insert(consumer, "a", 3, 3)


def test_table_is_unlocked_when_packing_process_freezes_during_swap(
    filled: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process holds the lock that stops every reader and writer. Then its machine is suspended
    or loses the network."""
    monkeypatch.setattr(days, "SILENT_MS", 300)
    began = threading.Event()
    thawed = threading.Event()

    def freeze(*_: Any) -> None:
        began.set()
        thawed.wait(120)

    monkeypatch.setattr(days, "attach_table", freeze)

    def pack() -> None:
        with connect_plainly() as frozen, suppress(psycopg.Error):
            pack_root(frozen)

    thread = threading.Thread(target=pack)
    thread.start()
    try:
        assert began.wait(120)
        with connect_plainly() as other_session:
            other_session.execute("SET statement_timeout = '10s'")
            insert(other_session, "late", 1)
    finally:
        thawed.set()
        thread.join(120)
    assert list_versions() == [*filled, ("late", 1)]
    assert not SealedDay.objects.filter(packed_at__isnull=False).exists()


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_changes_noted_by_swap_trigger_are_removed_when_the_day_was_dropped(
    filled: list[tuple[str, int]], plain: Connection
) -> None:
    """A run that packs the day is killed, and the day is dropped before a later run packs it."""
    with (
        pytest.raises(KeyboardInterrupt),
        table_swap.watch_table(plain, days.locate_day(plain, TABLE, DAY)),
    ):
        raise KeyboardInterrupt
    insert(plain, "late", 1)
    assert ChangedRow.objects.count() == 1
    days.drop_partition(plain, TABLE, DAY)
    table_swap.remove_leftover_triggers(plain)
    assert ChangedRow.objects.count() == 0


@pytest.mark.parametrize("rewrite", [pack_root, unpack_root])
@pytest.mark.plain_only("a node begins its snapshot only at its first query")
def test_session_with_postgresql_snapshot_from_before_swap_sees_all_rows(
    rewrite: Callable[[Connection], object], filled: list[tuple[str, int]], plain: Connection
) -> None:
    """pg_dump and psql can take PostgreSQL's snapshot before they lock the day's table."""
    if rewrite is unpack_root:
        pack_root(plain)
    with connect_plainly() as reader, reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        rewrite(plain)
        with connect_plainly() as other_session:
            insert(other_session, "after the swap", 1)
        dictionaries._dictionaries_by_number.clear()
        rows = list(stream_versions(reader, ROOT, sql.Identifier(TABLE)))
    assert [(row[0], row[1]) for row in rows] == filled


def test_day_with_new_dictionary_is_not_packed_while_older_postgresql_snapshot_is_open(
    monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    store = Store()
    days.create_partition(plain, TABLE, DAY)
    for number in range(300):
        text = {"name": f"client {number}", "list": [number] * 5, "state": "APPROVED" * 4}
        store.add(f"d{number}", 0, text, number / 10)
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.3)
    with connect_plainly() as reader, reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM pg_class")
        with pytest.raises(errors.LockNotAvailable):
            pack_root(plain)
        assert PackDictionary.objects.count() == 0
    pack_root(plain)
    assert PackDictionary.objects.count() == 1


def test_day_that_fails_to_pack_does_not_stop_other_days_and_is_retried_last(
    monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    store = Store()
    places = [DAY - timedelta(days=number) for number in range(3)]
    for number, day in enumerate(places):
        days.create_partition(plain, TABLE, day)
        store.add("a", number, {"n": number}, T0 - timedelta(days=number))
    rewrite, tried = packing.DayRewrite.pack, []

    def rewrite_or_fail(self: Any) -> Any:
        tried.append(self._day)
        if self._day == places[0]:
            self._note_attempt()
            raise MemoryError
        return rewrite(self)

    monkeypatch.setattr(packing.DayRewrite, "pack", rewrite_or_fail)
    record_all_topics_as_read()
    outcome = pack_finished_days(clock.now().date())
    assert tried == places
    assert outcome.packed == [days.build_partition_name(TABLE, day) for day in places[1:]]
    assert [name for name, _ in outcome.broken] == [PARTITION]
    day = places[-1] - timedelta(days=1)
    days.create_partition(plain, TABLE, day)
    store.add("a", 9, {"n": 9}, T0 - timedelta(days=3))
    tried.clear()
    pack_finished_days(clock.now().date())
    assert tried == [day, places[0]]
    assert PackAttempt.objects.get().day == places[0]


@pytest.mark.parametrize("refusals", [1, 2])
def test_packing_of_busy_day_is_tried_again_after_other_days(
    monkeypatch: pytest.MonkeyPatch, plain: Connection, refusals: int
) -> None:
    store = Store()
    places = [DAY - timedelta(days=number) for number in range(2)]
    for number, day in enumerate(places):
        days.create_partition(plain, TABLE, day)
        store.add("a", number, {"n": number}, T0 - timedelta(days=number))
    pack_day, tried = packing.pack_day, []

    def pack_or_wait(pg: Any, entity: Any, day: Any, **options: Any) -> Any:
        tried.append(day)
        if day == places[0] and tried.count(day) <= refusals:
            raise errors.LockNotAvailable
        return pack_day(pg, entity, day, **options)

    monkeypatch.setattr(packing, "pack_day", pack_or_wait)
    record_all_topics_as_read()
    outcome = pack_finished_days(clock.now().date())
    assert tried == [*places, places[0]]
    packed = places[::-1] if refusals == 1 else places[1:]
    assert outcome.packed == [days.build_partition_name(TABLE, day) for day in packed]
    assert outcome.busy == ([] if refusals == 1 else [PARTITION])


# A packed day refuses versions that one of its blocks has.


@pytest.mark.parametrize("version", [0, 7, 19])
@pytest.mark.parametrize("table", [TABLE, PARTITION])
@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_packed_day_refuses_second_row_of_a_version(
    version: int, table: str, filled: list[tuple[str, int]], plain: Connection
) -> None:
    """The version is in a block. The error names the primary key of the table of the day."""
    pack_root(plain)
    with pytest.raises(errors.UniqueViolation) as raised:
        insert(plain, "a", version, version, table)
    assert raised.value.diag.table_name == PARTITION
    assert str(raised.value.diag.constraint_name).startswith(PARTITION)
    insert(plain, "a", version, version + 0.5, table)  # a second version of the number
    assert list_versions() == sorted([*filled, ("a", version)])
    unpack_root(plain)
    assert list_triggers(plain) == []


@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_packed_day_refuses_row_from_replication_or_update_that_would_store_a_version_twice(
    filled: list[tuple[str, int]], plain: Connection
) -> None:
    pack_root(plain)
    insert(plain, "b", 50, 50)
    plain.execute("SET session_replication_role = replica")
    with pytest.raises(errors.UniqueViolation):
        insert(plain, "a", 3, 3)
    with pytest.raises(errors.UniqueViolation):
        plain.execute(
            f"UPDATE {TABLE} SET version = 3, updated_at = %s WHERE version = 50", [minute(3)]
        )
    assert list_versions() == sorted([*filled, ("b", 50)])


@pytest.mark.plain_only("only a single server refuses versions of blocks by a trigger")
def test_trigger_against_repeats_is_added_to_days_packed_by_earlier_release(
    filled: list[tuple[str, int]], plain: Connection
) -> None:
    pack_root(plain)
    plain.execute(f"DROP TRIGGER annals_refuse_packed ON {PARTITION}")
    table_swap.guard_packed_days(plain)
    with pytest.raises(errors.UniqueViolation):
        insert(plain, "a", 3, 3)


MOMENT = NOW.replace(hour=12, minute=0, second=0) - timedelta(days=20)


def make_sent_message(version: int) -> bytes:
    moment = (MOMENT + timedelta(minutes=version)).replace(tzinfo=None).isoformat()
    return make_value(id="a", version=version, updatedAt=moment)


@pytest.mark.parametrize("days_ahead", [-60, -6, 30])
def test_consumer_with_wrong_clock_stores_nothing_twice(
    days_ahead: int, ingested: Ingested, monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    """An earlier release looked for packed days only among the days before today, by the clock
    of the consumer."""
    ingested.write(*map(make_sent_message, range(6)))
    packing.pack_day(plain, ROOT, MOMENT.date())
    # Reset before the test ends, because the cleanup creates days of the journal by this clock.
    with monkeypatch.context() as moved:
        moved.setattr(clock, "now", lambda: MOMENT + timedelta(days=20 + days_ahead))
        result = ingested.write(*map(make_sent_message, range(8)))
    assert (result.stored[SOURCE], result.repeated[SOURCE], result.refused) == (2, 6, ())
    day_table = days.locate_day(plain, TABLE, MOMENT.date())
    assert [row[1] for row in stream_versions(plain, ROOT, day_table.child)] == list(range(8))


def test_machine_with_fast_clock_does_not_pack_today(
    monkeypatch: pytest.MonkeyPatch, plain: Connection
) -> None:
    today = clock.now().date()
    days.create_partition(plain, TABLE, today)
    ahead = clock.now() + timedelta(days=5)
    with monkeypatch.context() as moved:
        moved.setattr(clock, "now", lambda: ahead)
        with pytest.raises(packing.NotPackableError, match="cannot be packed before"):
            packing.pack_day(plain, ROOT, today)
        for verb in ("pack", "unpack", "seal", "repair"):
            with pytest.raises(Exception, match="the clock of this machine says"):
                run_quietly(verb, str(today))


def run_quietly(*words: str) -> None:
    code, out, err = run_partitions(*words)
    raise AssertionError((code, out, err)) if code == 0 else RuntimeError(err + out)


@pytest.mark.plain_only("only a single server notes rows by triggers during the swap")
def test_restore_keeps_rows_that_are_inserted_during_the_restore(
    filled: list[tuple[str, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    plain: Connection,
) -> None:
    """During the first restore, one row is inserted and one is deleted, so that the number of rows
    stays the same. The first restore is refused, and the second one succeeds."""
    archive = Archive(str(tmp_path))
    DayArchiver(archive).archive(plain, TABLE, DAY)
    plain.execute(f"DELETE FROM {TABLE} WHERE id <> 'a'")
    from history.retention.archive import restore as restoring

    fill = restoring._load_archived_rows

    def insert_late(*args: Any) -> None:
        fill(*args)
        with connect_plainly() as other_session:
            insert(other_session, f"late{len(calls)}", 1)
            if not calls:
                other_session.execute(f"DELETE FROM {TABLE} WHERE id = 'a' AND version = 0")
            calls.append(1)

    calls: list[int] = []
    monkeypatch.setattr(restoring, "_load_archived_rows", insert_late)
    with pytest.raises(ArchiveError, match="stays as it is"):
        restore_day(plain, archive, ROOT, DAY)
    restore_day(plain, archive, ROOT, DAY)
    assert list_versions() == sorted([*filled, ("late0", 1), ("late1", 1)])
