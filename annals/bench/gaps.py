"""`annals bench gaps`: time and memory of `annals gaps` over many rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import connection
from psycopg.conninfo import make_conninfo

from annals.bench.printed import print_json
from annals.own_commands import PROGRAM
from history import days
from history.entities import root
from history.gaps import read
from history.gaps.run import run as find
from history.window import Window

ROOT = root()

DATABASE: Final = "annals_bench"
DAYS: Final = 88
VERSIONS: Final = 10  # of each document, one a day
MISSING: Final = 1_000  # one of so many versions never arrives

# Document d has its version v on day d % (DAYS - VERSIONS) + v.
_FILL: Final = f"""
INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, author, type)
SELECT 'BENCH' || lpad(d::text, 15, '0'), v, %(data)s::jsonb,
    %(day)s::timestamptz + (d %% 86000) * interval '1 second', 'service-' || d %% 12, 'bench',
    least(v, 1)
FROM generate_series(0, {VERSIONS - 1}) AS v,
    generate_series(%(number)s - v, %(documents)s - 1, {DAYS - VERSIONS}) AS d
WHERE %(number)s - v BETWEEN 0 AND {DAYS - VERSIONS - 1}
    AND ((d * {VERSIONS} + v) %% {MISSING} = 7) = %(late)s
"""  # noqa: S608 - constants

Figures = dict[str, Any]


def run(rows: int = 5_000_000, as_json: bool = False) -> int:
    """Fill a database, and measure the first run over all days, one without new rows, and one after
    the missing versions of one day came late. Prints the figures; 0 if every gap was found."""
    documents = rows // VERSIONS
    with _database(str(settings.ANNALS.database_url), documents) as url:
        first = _measure()
        missing = sum(each.versions for each in read.sums())
        second = _measure()
        late = _late(url, documents)
        third = _measure()
        left = sum(each.versions for each in read.sums())
        sizes = _sizes()
    found: Figures = {
        "rows": rows,
        "first": first,
        "nothing new": second,
        "late rows": {**third, "rows": late},
        "missing": missing,
        "bytes": sizes,
    }
    read_days = (second["days"], third["days"])
    met = missing > 0 and left == missing - late and read_days == (0, 1)
    if as_json:
        print_json("gaps", found, met)
        return 0 if met else 1
    sys.stdout.write(f"{rows:,} rows in {DAYS} days, {missing:,} versions missing\n")
    for name in ("first", "nothing new", "late rows"):
        one = found[name]
        sys.stdout.write(
            f"{name}: {one['days']} days read in {one['seconds']} s; peak memory of the process "
            f"{one['process_mb']} MB, of its server process {one['server_mb']} MB\n"
        )
    sys.stdout.write(
        f"on disk: versions {sizes['versions'] / 1e6:,.0f} MB, what was seen of them "
        f"{sizes['documents'] / 1e6:,.0f} MB\n"
        f"every gap found and closed: {'yes' if met else 'no'}\n"
    )
    return 0 if met else 1


def _measure() -> Figures:
    """One run through a new connection, with the peaks of both processes."""
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    now = datetime.now(UTC)
    done = find(Window.at(now, settings.ANNALS.retention_days, settings.ANNALS.ahead_days), now)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone() or (0,)
    return {
        "days": done.days,
        "documents": done.documents,
        "seconds": round(done.seconds, 2),
        "process_mb": _peak_mb(os.getpid()),
        "server_mb": _peak_mb(pid),
    }


def _peak_mb(pid: int) -> int | None:
    """The peak of a process's resident memory with what it shares; None on another machine."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) // 1024


def _late(url: str, documents: int) -> int:
    """The missing versions of one day in the middle arrive. Returns how many."""
    with psycopg.connect(url, autocommit=True) as plain:
        return _fill_day(plain, DAYS // 2 + 1, documents, late=True)


def _sizes() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(inhrelid))::bigint,"
            " pg_total_relation_size('gap_document') FROM pg_inherits"
            " WHERE inhparent = %s::regclass",
            [ROOT.table],
        )
        versions, documents = cursor.fetchone() or (0, 0)
    return {"versions": versions, "documents": documents}


def _first_day() -> date:
    return (datetime.now(UTC) - timedelta(days=DAYS - 1)).date()


def _fill_day(plain: psycopg.Connection[Any], number: int, documents: int, *, late: bool) -> int:
    day = _first_day() + timedelta(days=number)
    values = {
        "data": json.dumps({f"field{each}": "x" * 20 for each in range(10)}),
        "day": days.bounds(day)[0],
        "number": number,
        "documents": documents,
        "late": late,
    }
    return plain.execute(_FILL, values).rowcount


@contextmanager
def _database(server: str, documents: int) -> Iterator[str]:
    """A database of its own with the rows, in the place of the configured one; gives its URL."""
    with psycopg.connect(server, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        plain.execute(f"CREATE DATABASE {DATABASE}")
    url = make_conninfo(server, dbname=DATABASE)
    try:
        environment = {**os.environ, "DATABASE_URL": url, "ANNALS_DEMO": "true"}
        words = [sys.executable, str(PROGRAM), "migrate", "--verbosity", "0"]
        subprocess.run(words, env=environment, check=True)  # noqa: S603 - our own command
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        connection.settings_dict["NAME"] = DATABASE
        with psycopg.connect(url, autocommit=True) as plain:
            for number in range(DAYS):
                days.create(plain, ROOT.table, _first_day() + timedelta(days=number))
                _fill_day(plain, number, documents, late=False)
            plain.execute("VACUUM ANALYZE")  # as autovacuum does after so many rows
        yield url
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        with psycopg.connect(server, autocommit=True) as plain:
            plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
