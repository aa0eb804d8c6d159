"""What a day costs to seal, archive, bring back and export; and a bare COPY of the same rows.

`python -m pytest -s tests/bench/test_days.py` prints the figures of docs/partitions.md;
ANNALS_TEST_BENCH_APPLICATIONS sets how large the day is (11.6 messages each).
"""

from __future__ import annotations

import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import psutil
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from psycopg import sql

from history import days
from history.archive import read
from history.archive.archiver import Archiver
from history.archive.restore import restore
from history.archive.scrub import Pace, scrub, waiting
from history.archive.store import Store
from history.canonical import Connection
from history.entities import ENTITIES, ROOT
from history.partitions.maintain import maintain
from history.seals.seal import seal
from history.seals.verify import verify
from tests.db import simulated
from tests.db.partitioned import day, policy, raw, tables, transactional_db

__all__ = ["tables", "transactional_db"]

APPLICATIONS = int(os.environ.get("ANNALS_TEST_BENCH_APPLICATIONS", "500"))
OLD = day(-5)


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """How many bytes the process grew by at most, asked after the block."""
    mine, stop = psutil.Process(), threading.Event()
    before = most = mine.memory_info().rss

    def watch() -> None:
        nonlocal most
        while not stop.wait(0.02):
            most = max(most, mine.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: most - before
    finally:
        stop.set()
        watcher.join()


def timed(what: str, rows: int, act: Callable[[], object]) -> float:
    """Print and return rows a second."""
    with memory() as grown:
        begun = time.perf_counter()
        act()
        seconds = time.perf_counter() - begun
    rate = rows / seconds
    print(f"{what:<34}{seconds:8.2f} s{rate:12,.0f} rows/s{grown() / 2**20:8.0f} MiB more")
    return rate


def bare_copy(plain: Connection) -> None:
    for entity in ENTITIES:
        name = sql.Identifier(days.partition_name(entity.table, OLD))
        query = sql.SQL("COPY {} TO STDOUT").format(name)
        with plain.cursor() as cursor, cursor.copy(query) as copy:
            for _ in copy:
                pass


def export(folder: Path, kind: str) -> None:
    for entity in ENTITIES:
        words = ["--entity", entity.name, "--from", str(OLD), "--to", str(day(-4))]
        words += ["--format", kind, "--output", str(folder / kind), "--jobs", "1"]
        call_command("export", *words, stderr=io.StringIO())


def check(plain: Connection) -> None:
    assert [found.fault for entity in ENTITIES for found in verify(plain, entity)] == [None] * 5


def check_archive(store: Store) -> None:
    assert [found.fault for found in scrub(store, waiting(), Pace())] == [None] * 5


@pytest.mark.usefixtures("tables")
def test_figures_of_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path / "archive"))
    with raw() as plain:
        rows = simulated.load(plain, OLD, APPLICATIONS)
        print(f"\n{rows:,} rows of {datetime.now():%Y-%m-%d}")  # noqa: DTZ005
        timed("bare COPY TO", rows, lambda: bare_copy(plain))
        bare = timed("bare COPY TO, warm", rows, lambda: bare_copy(plain))
        for kind in ("jsonl", "parquet", "avro"):
            rate = timed(f"export {kind}", rows, lambda kind=kind: export(tmp_path, kind))  # type: ignore[misc]
            print(f"{'':<34}{rate / bare:8.2f} of bare COPY TO")
        timed("seal", rows, lambda: [seal(plain, entity, OLD) for entity in ENTITIES])
        timed("verify", rows, lambda: check(plain))
        archiver = Archiver(store)
        timed("archive, read back, drop", rows, lambda: maintain(policy(), archiver=archiver))
        in_table = sum(done.table_bytes for done in archiver.archived.values())
        in_files = sum(done.file_bytes for done in archiver.archived.values())
        ratio = in_files / in_table
        print(f"{in_table:,} B in tables, {in_files:,} B in Parquet, ratio {ratio:.3f}")
        assert ratio <= 0.25
        timed("verify --archive", rows, lambda: check_archive(store))
        url = msgspec.structs.replace(settings.ANNALS, archive_url=str(tmp_path / "archive"))
        monkeypatch.setattr(settings, "ANNALS", url)
        timed("export jsonl from the archive", rows, lambda: export(tmp_path / "again", "jsonl"))
        wanted = archiver.archived[ROOT.table, OLD].files[0].last
        begun = time.perf_counter()
        found = read.versions(store, ROOT, wanted)
        print(f"{len(found)} versions of one id from the archive: ", end="")
        print(f"{(time.perf_counter() - begun) * 1000:.0f} ms")
        timed("restore", rows, lambda: [restore(plain, store, each, OLD) for each in ENTITIES])
    connection.close()
