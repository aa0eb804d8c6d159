"""`python -m benchmarks pack --cluster DSN`: packing on a Citus cluster and on one server."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
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
from benchmarks.harness import create_database, report_figures, run_command, use_database
from benchmarks.pack import NAME, ROOT, _generate_day, _simulate_histories, _store_records
from benchmarks.timeline_data import _make_environment
from history.retention import packing
from history.store.database import session
from history.store.days import days

SHARDS = 32
ROUNDS = 2  # the highest rate of all rounds counts
VERSIONS_OF_DOCUMENT = 9
READS_PER_SECOND, WRITES_PER_SECOND, ROWS_OF_WRITE = 20, 10, 200
ALONE_SECONDS = 10.0
# A write like the transaction of a batch, and a read like a page of a document over all days.
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
    """Measure packing on the cluster and on one server, print the figures, return the exit code.

    Args:
        coordinator: The URI of a database on the coordinator of a Citus cluster. The workers must
            have been added to this database with citus_add_node().
        versions: How many versions the measured day has.
    """
    print_progress = Console(stderr=True).print
    day = datetime.now(UTC).date() - timedelta(days=5)
    with create_database(NAME) as plain_conninfo:
        cluster.recreate_database(coordinator, NAME)
        servers = {"plain": plain_conninfo, "cluster": make_conninfo(coordinator, dbname=NAME)}
        try:
            print_progress("filling both ...")
            _fill_server(servers["plain"], day, versions, shards=None)
            _fill_server(servers["cluster"], day, versions, shards=SHARDS)
            print_progress("packing in turn ...")
            figures = _measure_in_turn(servers, day)
        finally:
            use_database(str(settings.ANNALS.database_url))
            cluster.drop_database(coordinator, NAME)
    figures |= {
        "versions": versions,
        "shards": SHARDS,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    figures["targets"] = _list_targets(figures)
    return report_figures("pack", figures, _print_figures, as_json)


def _connect(conninfo: str) -> psycopg.Connection[Any]:
    """Open a session with the settings that Annals gives to each session."""
    options = session.build_options(session.SESSION)
    return psycopg.connect(conninfo, options=options, autocommit=True)


def _fill_server(conninfo: str, day: date, versions: int, shards: int | None) -> None:
    """Create tables in an empty database, and store versions in a day. Create the days around it.

    Args:
        shards: The number of shards of each table on a cluster; None for one server.
    """
    environment = _make_environment(conninfo, 30)
    run_command(environment, "migrate")
    if shards is not None:
        run_command(environment, "distribute", "--shards", str(shards))
    use_database(conninfo)
    with _connect(conninfo) as connection:
        for number in range(-5, 15):
            days.create_partition(connection, ROOT.table, day - timedelta(days=number))
        records = _generate_day(_simulate_histories(), day, VERSIONS_OF_DOCUMENT, versions)
        _store_records(connection, records)
        connection.execute(sql.SQL("VACUUM (ANALYZE) {}").format(sql.Identifier(ROOT.table)))


def _measure_in_turn(servers: Mapping[str, str], day: date) -> Figures:
    """Return the figures of each server: of the cluster and of the single server.

    Each round measures both in turn, so that load from other programs affects both equally.

    Args:
        servers: The URIs of the databases, by the names of the servers.
    """
    rounds: dict[str, list[Figures]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, conninfo in servers.items():
            use_database(conninfo)
            with _connect(conninfo) as connection:
                rounds[name].append(_measure_round(connection, day))
    figures: Figures = {}
    for name, conninfo in servers.items():
        use_database(conninfo)
        fastest = {
            key: max(figures_of_round[key] for figures_of_round in rounds[name])
            for key in rounds[name][0]
        }
        with _connect(conninfo) as connection:
            figures[name] = fastest | _measure_beside_packing(connection, conninfo, day)
    return figures


def _measure_round(connection: psycopg.Connection[Any], day: date) -> Figures:
    """Pack and unpack a day once, and return the figures.

    Returns:
        pack, unpack: How many versions are packed and unpacked in a second.
        plain_bytes, packed_bytes: The size of a version before and after packing.
    """
    began = time.perf_counter()
    packed = packing.pack_day(connection, ROOT, day)
    packed_at = time.perf_counter()
    unpacked = packing.unpack_day(connection, ROOT, day)
    unpacked_at = time.perf_counter()
    # Otherwise autovacuum would soon lock the new table, which the next round must swap.
    connection.execute(
        sql.SQL("VACUUM (ANALYZE) {}").format(
            sql.Identifier(days.build_partition_name(ROOT.table, day))
        )
    )
    return {
        "pack": round(packed.rows / (packed_at - began)),
        "unpack": round(unpacked.rows / (unpacked_at - packed_at)),
        "plain_bytes": round(packed.before / packed.rows),
        "packed_bytes": round(packed.after / packed.rows),
    }


def _measure_beside_packing(
    connection: psycopg.Connection[Any], conninfo: str, day: date
) -> Figures:
    """Measure reads and writes twice: without packing, and while a day is packed.

    The day is packed at the rate of `annals partitions maintain`.

    Returns:
        For each of the two measurements, the longest read, the longest write, and the 99th
        percentile of writes, in milliseconds.
    """
    row = connection.execute(
        sql.SQL("SELECT id FROM {} LIMIT 1").format(sql.Identifier(ROOT.table))
    ).fetchone()
    id = row[0] if row else ""
    figures: Figures = {}
    for name in ("alone", "beside"):
        with _time_reads_and_writes(conninfo, id) as times:
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
def _time_reads_and_writes(conninfo: str, id: str) -> Iterator[dict[str, list[float]]]:
    """Read and write in two other processes during the `with` block, and yield the durations.

    The yielded dict is filled only after the block. It has the seconds of each `read` and `write`.

    Args:
        id: The document to read.
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
        results.get()  # None: this process is connected
    try:
        yield times
    finally:
        end.set()
        times |= dict(results.get() for _ in processes)
        for process in processes:
            process.join()


def _time_statements(conninfo: str, name: str, id: str, end: Event, results: Any) -> None:
    """Read or write at a fixed rate until `end` is set, and time the statements.

    Args:
        name: "read" or "write".
        results: A queue. The process puts None into the queue when it is connected. At the end it
            puts a pair: `name`, and a list with the duration of each statement in seconds.
    """
    seconds = []
    pause = 1 / (READS_PER_SECOND if name == "read" else WRITES_PER_SECOND)
    moment = datetime.now(UTC)
    with _connect(conninfo) as connection:
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
        {
            "name": "rate on the cluster to plain",
            "value": round(rate, 2),
            "limit": 0.8,
            "met": rate >= 0.8,
        },
        {
            "name": "memory, MB",
            "value": figures["memory"],
            "limit": 300,
            "met": figures["memory"] <= 300,
        },
    ]


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
    }
    for name, text in names.items():
        table.add_row(text, *(f"{figures[server][name]:,}" for server in ("plain", "cluster")))
    console.print(table)
