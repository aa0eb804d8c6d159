"""`annals bench journal`: what the access journal costs a request.

Two middlewares, one on each side of the journal's, take the time: what passes between them is the
journal's, measured in the same request as the whole. Every other request does not wait for the
disk: the rest of the cost is one flush of PostgreSQL's log.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from psycopg.conninfo import make_conninfo

from annals.bench.printed import print_json
from annals.own_commands import PROGRAM
from history import days
from history.entities import root

ROOT = root()

DATABASE: Final = "annals_bench"
MIDDLEWARE: Final = "annals.access.journal.middleware.Journal"
WARM_UP: Final = 50
VERSIONS: Final = 60
TARGET_MS: Final = 1.0
ADDRESSES: Final = {
    "one version": f"/api/v1/history/{ROOT.name}/B1/versions/7",
    "timeline, page 50": f"/api/v1/history/{ROOT.name}/B1",
    "screen of one version": f"/admin/history/{ROOT.name}/B1/versions/7/",
}

Figures = dict[str, Any]
# Milliseconds of the present request: all from the journal's middleware on, and all below it.
_passed: dict[str, float] = {}


def run(requests: int = 1000, as_json: bool = False) -> int:
    """Measure and print; 0 if the journal costs less than TARGET_MS. requests: how many of each
    kind, half of them without waiting for the disk."""
    logging.disable(logging.WARNING)  # the lines of the requests would be most of the output
    server = str(settings.ANNALS.database_url)
    with _database(server):
        looks = {name: _measure(address, requests) for name, address in ADDRESSES.items()}
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('fsync'), count(*) FROM access_journal")
            fsync, rows = cursor.fetchone() or ("", 0)
    met = all(figures["cost"] < TARGET_MS for figures in looks.values())
    found = {"looks": looks, "rows": rows, "fsync": fsync}
    if as_json:
        print_json("journal", found, met)
        return 0 if met else 1
    sys.stdout.write(f"p50 in ms; fsync {fsync}, {rows:,} rows\n")
    for name, figures in looks.items():
        sys.stdout.write(
            f"{name}: {figures['whole']}, of it the journal {figures['cost']} "
            f"({figures['unflushed']} without the flush), ratio {figures['ratio']}\n"
        )
    sys.stdout.write(f"less than {TARGET_MS} ms: {'yes' if met else 'no'}\n")
    return 0 if met else 1


def _measure(address: str, requests: int) -> Figures:
    """p50 in milliseconds. whole: the request with its journal. cost: the journal alone; unflushed:
    the same, without waiting for the disk. ratio: the request with its journal to one without."""
    client = Client(headers={"host": "localhost"})
    client.force_login(User.objects.get(username="support"))
    place = settings.MIDDLEWARE.index(MIDDLEWARE)
    around = [f"{__name__}.outside", MIDDLEWARE, f"{__name__}.inside"]
    middleware = [*settings.MIDDLEWARE[:place], *around, *settings.MIDDLEWARE[place + 1 :]]
    whole: list[float] = []
    cost: list[float] = []
    unflushed: list[float] = []
    with override_settings(MIDDLEWARE=middleware):  # loaded by the first request
        for number in range(WARM_UP + requests):
            flush = number % 2 == 0
            with connection.cursor() as cursor:
                cursor.execute(f"SET synchronous_commit = {'on' if flush else 'off'}")
            taken = _time(client, address)
            own = _passed["outside"] - _passed["inside"]
            if number < WARM_UP:
                continue
            (cost if flush else unflushed).append(own)
            if flush:
                whole.append(taken)
    without = [both - own for both, own in zip(whole, cost, strict=True)]
    figures = {
        "whole": statistics.median(whole),
        "cost": statistics.median(cost),
        "unflushed": statistics.median(unflushed),
        "ratio": statistics.median(whole) / statistics.median(without),
    }
    return {name: round(value, 3) for name, value in figures.items()}


Answer = Callable[[HttpRequest], HttpResponse]


def outside(answer: Answer) -> Answer:
    """Middleware: takes the time of everything from the journal's middleware on."""
    return _timed("outside", answer)


def inside(answer: Answer) -> Answer:
    """Middleware: takes the time of everything below the journal's middleware."""
    return _timed("inside", answer)


def _timed(side: str, answer: Answer) -> Answer:
    def timed(request: HttpRequest) -> HttpResponse:
        began = time.perf_counter()
        response = answer(request)
        _passed[side] = (time.perf_counter() - began) * 1000
        return response

    return timed


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
            plain.execute("CHECKPOINT")  # or its writes would be measured too
        with override_settings(ANNALS=no_limit):
            yield
    finally:
        connection.close()
        connection.close_pool()  # type: ignore[attr-defined]
        with psycopg.connect(server, autocommit=True) as plain:
            plain.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")


def _manage(url: str, *words: str) -> None:
    environment = {**os.environ, "DATABASE_URL": url, "ANNALS_DEMO": "true"}
    subprocess.run([sys.executable, str(PROGRAM), *words], env=environment, check=True)  # noqa: S603


def _fill(plain: psycopg.Connection[Any]) -> None:
    begin = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day = begin - timedelta(days=1)
    days.create(plain, ROOT.table, day.date())
    for number in range(VERSIONS):
        changing = {f"changing{each}": f"{number}-{each}" for each in range(3)}
        document = json.dumps(changing | {f"field{each}": "x" * 40 for each in range(30)})
        plain.execute(
            f"INSERT INTO {ROOT.table} (id, version, data, updated_at, client_id, author, type)"  # noqa: S608
            " VALUES ('B1', %s, %s, %s, 'bench', 'bench', 1)",
            [number, document, day + timedelta(minutes=number)],
        )
