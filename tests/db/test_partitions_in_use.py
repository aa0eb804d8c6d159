"""Creating and dropping days does not make writers wait or readers fail."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from datetime import time as clock

import psycopg
import pytest
from django.db import connection, transaction

from history.retention.plan import PartitionPolicy
from history.store.days import days
from history.store.days.window import Window
from tests.db.partitioned import (
    TABLE,
    TODAY,
    connect_plainly,
    count_stored,
    execute_plans,
    get_day,
    insert_version,
    list_partition_names,
)

# A writer that waits longer for a lock fails.
MAX_WAIT_MS = 200


@dataclass
class DayWriter:
    """A simulated consumer, which stores rows in the days of a span in turn.

    A lock for which it waits longer than MAX_WAIT_MS is an error.
    """

    longest: float = 0.0  # seconds of the slowest statement that took the lock
    written: int = 0
    created_days: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self, span: range) -> None:
        with (
            connect_plainly(options=f"-c lock_timeout={MAX_WAIT_MS}") as plain,
            connect_plainly() as other_session,
        ):
            while not self.stop.is_set():
                of = get_day(span[self.written % len(span)])
                moment = datetime.combine(of, clock(12), UTC) + timedelta(seconds=self.written)
                try:
                    with plain.transaction():
                        begun = time.perf_counter()
                        plain.execute(f"LOCK TABLE {TABLE} IN ROW EXCLUSIVE MODE")
                        self.longest = max(self.longest, time.perf_counter() - begun)
                        insert_version(plain, moment, f"id{self.written}")
                except psycopg.errors.CheckViolation:
                    self.created_days += days.create_partition(other_session, TABLE, of)
                else:
                    self.written += 1


def read_until(stop: threading.Event) -> int:
    """Read the whole table again and again until `stop` is set, and return how many times.

    Each read is a transaction with one PostgreSQL snapshot that stays open for 0.15 s.
    """
    rounds = 0
    with connect_plainly() as plain:
        while not stop.is_set():
            with plain.transaction():
                plain.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                count_stored(plain)
                time.sleep(0.15)
                count_stored(plain)
            rounds += 1
    return rounds


@contextmanager
def run_around(*acts: Callable[[], object], stop: threading.Event) -> Iterator[None]:
    """Run the acts in threads during the `with` block. An error of an act fails the test."""
    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(act) for act in acts]
        try:
            time.sleep(0.2)
            yield
            time.sleep(0.2)
        finally:
            stop.set()
        for future in futures:
            future.result()


@pytest.mark.usefixtures("tables")
@pytest.mark.plain_only(
    "a cluster drops days without DETACH CONCURRENTLY, and so without waiting for readers"
)
def test_storing_never_waits_and_reading_never_fails_while_days_are_dropped() -> None:
    with connect_plainly() as plain:
        for number in range(-30, -10):
            days.create_partition(plain, TABLE, get_day(number))
    ingest = DayWriter()
    stop = ingest.stop
    dropped: list[str] = []
    with run_around(lambda: ingest.run(range(-3, 12)), lambda: read_until(stop), stop=stop):
        for keep, ahead in ((25, 3), (20, 6), (15, 9), (12, 14)):
            window = Window(TODAY - timedelta(days=keep), TODAY + timedelta(days=ahead))
            outcome = execute_plans(PartitionPolicy(window, TODAY))
            assert outcome.exit_code == 0, outcome
            dropped += outcome.dropped
    assert len(dropped) >= 18
    with connect_plainly() as plain:
        assert count_stored(plain) == ingest.written > 0
    assert len(list_partition_names()) == 27
    print(
        f"\n{ingest.written} rows written, {ingest.created_days} days made by ingest,"
        f" {len(dropped)} days dropped meanwhile;"
        f" longest wait for a lock {ingest.longest * 1000:.1f} ms"
        f" (allowed {MAX_WAIT_MS} ms)"
    )


@pytest.mark.usefixtures("tables")
@pytest.mark.plain_only("Citus locks shards as well")
def test_all_days_of_a_year_take_few_locks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run locks one day at a time, however many days it creates and drops."""
    maximum = 0
    real = days.attach_table

    def count_locks(plain: days.Connection, day_table: days.DayTable, of: object) -> None:
        nonlocal maximum
        real(plain, day_table, of)  # type: ignore[arg-type]
        row = plain.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
        ).fetchone()
        assert row is not None
        maximum = max(maximum, row[0])

    monkeypatch.setattr(days, "attach_table", count_locks)
    execute_plans(PartitionPolicy(Window(TODAY - timedelta(days=40), TODAY), TODAY))
    assert 0 < maximum < 40
    connection.close()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("table, of_each_day", [(TABLE, 5), ("product_task_aud", 6)])
@pytest.mark.plain_only("Citus locks shards as well")
def test_timeline_over_all_days_takes_bounded_number_of_locks(table: str, of_each_day: int) -> None:
    window = Window(TODAY - timedelta(days=25), TODAY + timedelta(days=14))
    execute_plans(PartitionPolicy(window, TODAY))
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} WHERE id = 'a' ORDER BY updated_at LIMIT 1")
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
            " AND relation NOT IN ('pg_locks'::regclass)"
        )
        [lock_count] = cursor.fetchone() or ()
    assert 40 < lock_count <= (len(list(window.iterate_days())) + 1) * of_each_day
