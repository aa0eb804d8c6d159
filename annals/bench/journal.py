"""`manage.py bench journal`: what the access journal costs a request.

The same requests with and without the journal, in turn, in one process and through all of the other
middleware, so that the difference is the journal's.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from psycopg.conninfo import make_conninfo

from history import days
from history.entities import ROOT

MANAGE: Final = Path(__file__).resolve().parents[2] / "manage.py"
DATABASE: Final = "annals_bench"
MIDDLEWARE: Final = "annals.access.journal.middleware.Journal"
WARM_UP: Final = 50
VERSIONS: Final = 60
TARGET_MS: Final = 1.0
ADDRESSES: Final = {
    "one version": f"/api/v1/history/{ROOT.name}/B1/versions/7",
    "timeline, page 50": f"/api/v1/history/{ROOT.name}/B1",
    "screen of a timeline": f"/admin/history/{ROOT.name}/B1/",
}

Figures = dict[str, Any]


def run(requests: int = 1000, as_json: bool = False) -> int:
    """Measure and print; 0 if the journal costs less than TARGET_MS. requests: how many of each
    kind, with and without the journal."""
    logging.disable(logging.WARNING)  # the lines of the requests would be most of the output
    server = str(settings.ANNALS.database_url)
    with _database(server):
        looks = {name: _measure(address, requests) for name, address in ADDRESSES.items()}
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
            fsync, commit = cursor.fetchone() or ("", "")
            cursor.execute("SELECT count(*) FROM access_journal")
            (rows,) = cursor.fetchone() or (0,)
    met = all(figures["cost"] < TARGET_MS for figures in looks.values())
    found = {"looks": looks, "rows": rows, "fsync": fsync, "synchronousCommit": commit, "met": met}
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0 if met else 1
    sys.stdout.write(f"p50 in ms; fsync {fsync}, synchronous_commit {commit}, {rows:,} rows\n")
    for name, figures in looks.items():
        sys.stdout.write(
            f"{name}: {figures['without']} without, {figures['with']} with the journal, cost "
            f"{figures['cost']}, ratio {figures['ratio']}\n"
        )
    sys.stdout.write(f"less than {TARGET_MS} ms: {'yes' if met else 'no'}\n")
    return 0 if met else 1


def _measure(address: str, requests: int) -> Figures:
    """p50 in milliseconds. cost: of the differences between a request and the one next to it."""
    without = _client([each for each in settings.MIDDLEWARE if each != MIDDLEWARE], address)
    with_journal = _client(settings.MIDDLEWARE, address)
    taken: list[tuple[float, float]] = []
    for number in range(WARM_UP + requests):
        # In turn, and each of them first as often as the other.
        if number % 2:
            plain, journaled = _time(without, address), _time(with_journal, address)
        else:
            journaled, plain = _time(with_journal, address), _time(without, address)
        if number >= WARM_UP:
            taken.append((plain, journaled))
    before, after = (statistics.median(each) for each in zip(*taken, strict=True))
    cost = statistics.median(journaled - plain for plain, journaled in taken)
    return {
        "without": round(before, 3),
        "with": round(after, 3),
        "cost": round(cost, 3),
        "ratio": round(after / before, 3),
    }


def _client(middleware: list[str], address: str) -> Client:
    """A client that is logged in. Its middleware is loaded by its first request."""
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="support"))
    with override_settings(MIDDLEWARE=middleware):
        _time(client, address)
    return client


def _time(client: Client, address: str) -> float:
    began = time.perf_counter()
    status = client.get(address).status_code
    taken = (time.perf_counter() - began) * 1000
    if status != 200:
        raise RuntimeError(f"{address}: {status}")
    return taken


@contextmanager
def _database(server: str) -> Iterator[None]:
    """A database of its own with one application, in the place of the configured one."""
    with psycopg.connect(server, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        plain.execute(f"CREATE DATABASE {DATABASE}")
    url = make_conninfo(server, dbname=DATABASE)
    no_limit = msgspec.structs.replace(settings.ANNALS, api_rate=0)
    try:
        _manage(url, "migrate", "--verbosity", "0")
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        connection.settings_dict["NAME"] = DATABASE
        with psycopg.connect(url, autocommit=True) as plain:
            _fill(plain)
        with override_settings(ANNALS=no_limit):
            yield
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        with psycopg.connect(server, autocommit=True) as plain:
            plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


def _manage(url: str, *words: str) -> None:
    environment = {**os.environ, "DATABASE_URL": url, "ANNALS_DEMO": "true"}
    subprocess.run([sys.executable, str(MANAGE), *words], env=environment, check=True)  # noqa: S603


def _fill(plain: psycopg.Connection[Any]) -> None:
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = begin - timedelta(days=1)
    days.create(plain, ROOT.table, day.date())
    for number in range(VERSIONS):
        document = json.dumps({f"field{each}": f"{number}-{each}" for each in range(40)})
        plain.execute(
            f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, author, type)"  # noqa: S608
            " VALUES ('B1', %s, %s, %s, 'bench', 'bench', 1)",
            [number, document, day + timedelta(minutes=number)],
        )
