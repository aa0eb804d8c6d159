"""`python -m benchmarks pack --cluster DSN`: packing on a Citus cluster next to one server."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table

from annals.management.partitions import nightly
from benchmarks import cluster
from benchmarks.harness import create_database, print_json, run_command, use_database
from benchmarks.pack import NAME, ROOT, _generate_alike, _simulate_histories, _store_records
from benchmarks.timeline_data import _make_environment
from history.retention import packing
from history.store.days import days

SHARDS = 32
ROUNDS = 3  # the fastest counts
VERSIONS_OF_DOCUMENT = 9
READS_PER_SECOND, WRITES_PER_SECOND, ROWS_OF_WRITE = 20, 10, 200
ALONE_SECONDS = 10.0
# The transaction of a batch, and a page of a document over all days.
_WRITE = sql.SQL(
    "INSERT INTO {} (id, version, data, updated_at, client_id, type)"
    " SELECT %(prefix)s || n, 1, jsonb_build_object('text', repeat('x', 1500)), %(moment)s, 'b', 1"
    " FROM generate_series(1, %(rows)s) AS n"
).format(sql.Identifier(ROOT.table))
_READ = sql.SQL(
    "SELECT version, data FROM {} WHERE id = %(id)s ORDER BY updated_at DESC, version DESC LIMIT 50"
).format(sql.Identifier(ROOT.table))

Figures = dict[str, Any]


def run(coordinator: str, versions: int, as_json: bool) -> int:
    """Measure and print.

    Args:
        coordinator: The address of a database of a cluster whose workers have joined.
        versions: How many rows the measured day has.
    """
    print_progress = Console(stderr=True).print
    figures: Figures = {"versions": versions, "shards": SHARDS}
    with create_database(NAME) as conninfo:
        print_progress("one server ...")
        figures["plain"] = _measure_server(conninfo, versions, shards=None)
    print_progress("the cluster ...")
    cluster.recreate_database(coordinator, NAME)
    try:
        conninfo = make_conninfo(coordinator, dbname=NAME)
        figures["cluster"] = _measure_server(conninfo, versions, shards=SHARDS)
    finally:
        use_database(str(settings.ANNALS.database_url))
        cluster.drop_database(coordinator, NAME)
    figures["targets"] = _list_targets(figures)
    is_met = all(target["met"] for target in figures["targets"])
    if as_json:
        print_json("pack", figures, is_met)
    else:
        _print_figures(figures)
    return 0 if is_met else 1


def _measure_server(conninfo: str, versions: int, shards: int | None) -> Figures:
    environment = _make_environment(conninfo, 30)
    run_command(environment, "migrate")
    if shards is not None:
        run_command(environment, "distribute", "--shards", str(shards))
    use_database(conninfo)
    today = datetime.now(UTC).date()
    day = today - timedelta(days=5)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        for number in range(20):
            days.create_partition(connection, ROOT.table, today - timedelta(days=number))
        records = _generate_alike(_simulate_histories(), day, VERSIONS_OF_DOCUMENT, versions)
        _store_records(connection, records)
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(ROOT.table)))
        figures = _measure_rates(connection, day)
        figures |= _measure_beside_packing(connection, conninfo, day)
    figures["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return figures


def _measure_rates(connection: psycopg.Connection[Any], day: date) -> Figures:
    """Return the versions a second of the fastest of ROUNDS, and the bytes of a version."""
    pack_rates, unpack_rates = [], []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        packed = packing.pack_day(connection, ROOT, day)
        pack_rates.append(packed.rows / (time.perf_counter() - began))
        began = time.perf_counter()
        unpacked = packing.unpack_day(connection, ROOT, day)
        unpack_rates.append(unpacked.rows / (time.perf_counter() - began))
    return {
        "pack": round(max(pack_rates)),
        "unpack": round(max(unpack_rates)),
        "plain_bytes": round(packed.before / packed.rows),
        "packed_bytes": round(packed.after / packed.rows),
    }


def _measure_beside_packing(
    connection: psycopg.Connection[Any], conninfo: str, day: date
) -> Figures:
    """Return the longest read and the slow writes in milliseconds: alone, and while a day is
    packed at the rate of `maintain`."""
    row = connection.execute(
        sql.SQL("SELECT id FROM {} LIMIT 1").format(sql.Identifier(ROOT.table))
    ).fetchone()
    id = row[0] if row else ""
    figures: Figures = {}
    for name in ("alone", "beside"):
        with _time_others(conninfo, id) as times:
            if name == "alone":
                time.sleep(ALONE_SECONDS)
            else:
                packing.pack_day(connection, ROOT, day, rate=nightly.PACK_ROWS_PER_SECOND)
        reads, writes = sorted(times["read"]), sorted(times["write"])
        figures[f"longest_read_{name}"] = round(1000 * reads[-1])
        figures[f"write_p99_{name}"] = round(1000 * writes[int(0.99 * (len(writes) - 1))])
        figures[f"longest_write_{name}"] = round(1000 * writes[-1])
    return figures


@contextmanager
def _time_others(conninfo: str, id: str) -> Iterator[dict[str, list[float]]]:
    """Read and write in processes of their own until the block ends, and yield their seconds.

    The seconds are there after the block.
    """
    context = get_context("fork")
    end, results = context.Event(), context.Queue()
    processes = [
        context.Process(target=_time_statements, args=(conninfo, name, id, end, results))
        for name in ("read", "write")
    ]
    for process in processes:
        process.start()
    times: dict[str, list[float]] = {}
    for _ in processes:
        results.get()  # it is connected
    try:
        yield times
    finally:
        end.set()
        times |= dict(results.get() for _ in processes)
        for process in processes:
            process.join()


def _time_statements(conninfo: str, name: str, id: str, end: Event, results: Any) -> None:
    """Read or write at a fixed rate until the end, and put the seconds of each statement."""
    seconds = []
    pause = 1 / (READS_PER_SECOND if name == "read" else WRITES_PER_SECOND)
    moment = datetime.now(UTC)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        results.put(None)
        while not end.wait(pause):
            began = time.perf_counter()
            if name == "read":
                connection.execute(_READ, {"id": id}).fetchall()
            else:
                values = {"prefix": f"w{began:.3f}-", "moment": moment, "rows": ROWS_OF_WRITE}
                connection.execute(_WRITE, values)
            seconds.append(time.perf_counter() - began)
    results.put((name, seconds))


def _list_targets(figures: Figures) -> list[Figures]:
    plain, spread = figures["plain"], figures["cluster"]
    rate = spread["pack"] / plain["pack"]
    return [
        {"name": "rate on the cluster to plain", "value": round(rate, 2), "limit": 0.8,
         "met": rate >= 0.8},
        {"name": "memory, MB", "value": spread["memory"], "limit": 300,
         "met": spread["memory"] <= 300},
    ]  # fmt: skip


def _print_figures(figures: Figures) -> None:
    console = Console()
    table = Table("", "one server", f"cluster, {figures['shards']} shards")
    names = {
        "pack": "packed a second",
        "unpack": "unpacked a second",
        "plain_bytes": "bytes of a plain version",
        "packed_bytes": "bytes of a packed version",
        "longest_read_alone": "longest read, ms",
        "longest_read_beside": "longest read while a day is packed, ms",
        "write_p99_alone": f"99 of 100 writes of {ROWS_OF_WRITE} rows, ms",
        "write_p99_beside": "99 of 100 writes while a day is packed, ms",
        "longest_write_beside": "longest write while a day is packed, ms",
        "memory": "memory of this process, MB",
    }
    for name, text in names.items():
        table.add_row(text, *(f"{figures[server][name]:,}" for server in ("plain", "cluster")))
    console.print(table)
    for target in figures["targets"]:
        verdict = "met" if target["met"] else "MISSED"
        console.print(f"{target['name']}: {target['value']} (limit {target['limit']}) {verdict}")
