"""Reading a day while its table is replaced: every reader sees all rows of the day."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection as django_connection

from history import timeline
from history.kinds.entities import get_root
from history.models import SearchKey
from history.retention import packing, search_keys
from history.retention.export import run
from history.retention.export.days import choose_days
from history.retention.seals import verification
from history.retention.seals.seal import seal_day
from history.store.days import canonical, day_locks, days
from history.store.days.canonical import Connection
from history.store.days.day_reading import open_day
from history.store.versions import VersionRef
from history.timeline.sources import statements, tables
from tests.db.partitioned import connect_plainly
from tests.db.store import HOST, T0, Store, minute

pytestmark = pytest.mark.usefixtures("tables")
ROOT = get_root()
DAY = T0.date()


@pytest.fixture
def reader(plain: Connection) -> Iterator[Connection]:
    days.create_partition(plain, ROOT.table, DAY)
    store = Store()
    for number in range(30):
        store.add("A1", number, {"n": number}, minute(number))
    with connect_plainly() as session:
        yield session


class PackingThread:
    """A thread that packs or unpacks the day in a session of its own."""

    def __init__(self, act: Callable[..., Any] = packing.pack_day) -> None:
        self._act = act
        self.thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            with connect_plainly() as session:
                self._act(session, ROOT, DAY)
        except BaseException as error:
            self.error = error
        finally:
            django_connection.close()  # the connection of this thread


def _table(reader: Connection) -> Any:
    return days.locate_day(reader, ROOT.table, DAY).child


def _open_day(reader: Connection) -> object:
    with open_day(reader, ROOT.table, DAY) as day_table:
        first_read = list(canonical.stream_versions(reader, ROOT, day_table.child))
        return first_read == list(canonical.stream_versions(reader, ROOT, day_table.child)) and len(
            first_read
        )


READS: dict[str, Callable[[Connection], object]] = {
    "verify": lambda reader: [verdict.fault for verdict in verification.verify_days(reader, ROOT)],
    "versions": lambda reader: list(canonical.stream_versions(reader, ROOT, _table(reader))),
    "hashes": lambda reader: list(canonical.stream_hashes(reader, ROOT, _table(reader))),
    "digest": lambda reader: canonical.compute_digest(reader, ROOT, _table(reader)).finish(),
    "open_day": _open_day,
}


@pytest.mark.parametrize("name", READS)
def test_session_waiting_to_read_a_day_sees_every_row_after_the_swap(
    name: str, reader: Connection, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session has located the table of the day. While it waits for a lock, the new table
    replaces this table."""
    seal_day(plain, ROOT, DAY)
    expected = READS[name](reader)
    attach, begun = days.attach_table, threading.Event()

    def wait_and_attach(connection: Connection, day_table: Any, day: Any) -> None:
        begun.set()
        with connect_plainly() as other_session:
            query = (
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock'"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            while other_session.execute(query).fetchone() == (0,):
                pass
        attach(connection, day_table, day)

    monkeypatch.setattr(days, "attach_table", wait_and_attach)
    for act in (packing.pack_day, packing.unpack_day):
        begun.clear()
        swap = PackingThread(act)
        swap.thread.start()
        assert begun.wait(120) or swap.error is None
        if swap.error:
            raise swap.error
        assert READS[name](reader) == expected
        swap.thread.join()
        assert swap.error is None


@pytest.mark.plain_only("a day of a cluster is locked by the first query of its table")
def test_session_waiting_to_read_a_day_finds_it_absent_when_it_is_dropped(
    reader: Connection, plain: Connection
) -> None:
    states: list[Any] = []

    def read() -> None:
        with open_day(reader, ROOT.table, DAY) as day_table:
            states.append(day_table.state)

    with connect_plainly() as other_session, other_session.transaction():
        other_session.execute(f"DROP TABLE {days.build_partition_name(ROOT.table, DAY)}")
        thread = threading.Thread(target=read)
        thread.start()
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        while plain.execute(query).fetchone() == (0,):
            pass
    thread.join()
    assert states == [days.DayState.ABSENT]


@pytest.mark.plain_only("a node begins its snapshot only at its first query")
def test_reading_a_day_is_refused_when_postgresql_snapshot_is_older_than_its_table(
    reader: Connection, plain: Connection
) -> None:
    with reader.transaction():
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")  # begins PostgreSQL's snapshot without locking the day
        packing.pack_day(plain, ROOT, DAY)
        with pytest.raises(psycopg.errors.SnapshotTooOld, match="was replaced after"):
            list(canonical.stream_versions(reader, ROOT, _table(reader)))


@pytest.mark.plain_only("a day of a cluster is locked by the first query of its table")
def test_day_cannot_be_swapped_while_it_is_read(
    reader: Connection, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_locks, "LOCK_WAIT_S", 0.2)
    with open_day(reader, ROOT.table, DAY), pytest.raises(psycopg.errors.LockNotAvailable):
        packing.pack_day(plain, ROOT, DAY)


def test_export_has_every_row_when_day_is_packed_after_export_chose_its_days(
    reader: Connection, plain: Connection, tmp_path: Path
) -> None:
    chosen_days, _missing = choose_days(ROOT, DAY, DAY + timedelta(1))
    packing.pack_day(plain, ROOT, DAY)
    [exported_day] = run.to_directory(run.ExportJob(ROOT, None, "jsonl"), chosen_days, tmp_path)
    assert (exported_day.rows, exported_day.error, exported_day.damaged) == (30, None, ())


@pytest.mark.parametrize("act", ["pack", "unpack"])
def test_timeline_is_complete_when_day_is_swapped_between_its_statements(
    act: str, reader: Connection, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement reads plain rows and another one reads blocks. Neither may miss the version."""
    if act == "unpack":
        packing.pack_day(plain, ROOT, DAY)
    expected = timeline.compare_versions(HOST, ROOT, "A1", 3, 20)
    together, fetch = statements.fetch_pipelined, statements.fetch_rows
    swaps = 0

    def swap_after(statement: Callable[..., Any]) -> Callable[..., Any]:
        def run_then_swap(*args: Any) -> Any:
            nonlocal swaps
            result = statement(*args)
            swaps += 1
            if swaps == swap_number:
                getattr(packing, f"{act}_day")(plain, ROOT, DAY)
            return result

        return run_then_swap

    monkeypatch.setattr(tables.statements, "fetch_pipelined", swap_after(together))
    monkeypatch.setattr(tables.statements, "fetch_rows", swap_after(fetch))
    opposite = packing.unpack_day if act == "pack" else packing.pack_day
    for swap_number in (1, 2):
        swaps = 0
        if swap_number > 1:
            opposite(plain, ROOT, DAY)
        assert timeline.compare_versions(HOST, ROOT, "A1", 3, 20) == expected
        keys = tables.TableSource().fetch_keys(ROOT, ["A1"])["A1"]
        refs = [VersionRef(ROOT, "A1", key) for key in keys]
        swaps = 0
        opposite(plain, ROOT, DAY)
        assert len(tables.TableSource().fetch_versions(refs).rows) == 30


def test_search_index_is_complete_when_day_is_packed_during_backfill(
    reader: Connection, plain: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing moves rows to other pages of the table, while the backfill reads the table page by
    page."""
    name, pointer = ROOT.search[0]
    store = Store()
    for number in range(300):
        data: Any = f"key {number}"
        for part in reversed(pointer.strip("/").split("/")):
            data = {part: data, "text": "x" * 900}
        store.add(f"B{number:03}", 0, data, minute(60 + number / 10))
    monkeypatch.setattr(search_keys, "PAGES_AT_ONCE", 4)
    [target] = [item for item in search_keys.list_targets() if item.entity is ROOT]
    with closing(search_keys.backfill_target(target)) as steps:  # type: ignore[type-var]
        for _ in range(3):
            next(steps)
        packing.pack_day(plain, ROOT, DAY)
        list(steps)
    values = set(SearchKey.objects.filter(name=name).values_list("value", flat=True))
    assert values >= {f"key {number}" for number in range(300)}
    SearchKey.objects.all().delete()
