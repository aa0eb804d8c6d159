"""How long planning and maintaining take with five tables of many days, and the locks it takes.

`ANNALS_TEST_BENCH_DAYS=400 python -m pytest -s tests/bench/test_partitions.py` prints the figures
of docs/partitions.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection, transaction

from history.partitions import locks
from history.partitions.maintain import Outcome, maintain
from history.partitions.plan import Policy, plan
from history.window import Window
from tests.db.partitioned import TABLE, TABLES, TODAY, tables, transactional_db

__all__ = ["tables", "transactional_db"]

DAYS = int(os.environ.get("ANNALS_TEST_BENCH_DAYS", "40"))
AHEAD = 14


def timed(what: str, act: Callable[[], object]) -> None:
    begun = time.perf_counter()
    act()
    print(f"{what:<60}{time.perf_counter() - begun:8.2f} s")


def taken(query: str) -> int:
    """The relation locks that one statement takes."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(query)
        cursor.execute(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'"
            " AND relation NOT IN ('pg_locks'::regclass)"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.usefixtures("tables")
def test_figures_of_five_tables_of_many_days() -> None:
    oldest = TODAY - timedelta(days=DAYS - AHEAD - 1)
    window = Window(oldest, TODAY + timedelta(days=AHEAD))
    print()
    timed(f"maintain: make {len(TABLES)} x {DAYS} days", lambda: maintain(Policy(window, TODAY)))
    timed("plan", lambda: plan(Policy(window, TODAY)))
    begun = time.perf_counter()
    outcome = maintain(Policy(window, TODAY))
    print(f"{'maintain: nothing to do':<60}{time.perf_counter() - begun:8.2f} s")
    assert outcome == Outcome()
    later = Window(oldest + timedelta(days=1), TODAY + timedelta(days=AHEAD + 1))
    timed(
        "maintain: the daily run, one day in, one day out", lambda: maintain(Policy(later, TODAY))
    )
    room = locks.count(connection, plan(Policy(later, TODAY)))
    for table in (TABLE, "product_task_aud"):
        held = taken(f"SELECT * FROM {table} WHERE id = 'a' ORDER BY updated_at LIMIT 1")
        print(f"{'locks of a timeline over all days of ' + table:<60}{held:8}")
        assert held <= room.needed
    print(f"{'max_locks_per_transaction that these days want':<60}{room.needed:8}")
