"""`python -m benchmarks timeline`: timeline pages as a Python call and over HTTP.

The reference next to each figure is the bare SQL of the same rows plus parsing their JSON.
"""

from __future__ import annotations

import base64
import http.client
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import psutil
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from rich.console import Console
from rich.table import Table

from benchmarks import clients
from benchmarks.harness import HOST, cpu, print_json, use, web
from benchmarks.timeline_data import BIG, DataSet, data_set
from history import timeline
from history.documents.exactjson import loads
from history.entities import root
from history.timeline import Filters, Query, Sort
from history.timeline.sources.tables import Tables
from history.versions import LAST, Place

ROOT = root()
READER = timeline.on_host()

DAYS = (10, 90, 365)
MAIN_DAYS = 90
WARM_UP, ROUNDS = 20, 200
SIZES = (1, 50, 500)
PATH = "/rate"
BARE = """
    SELECT data::text FROM product_instance_aud
    WHERE id = %s AND updated_at <= %s AND (updated_at, version) < (%s, %s)
    ORDER BY updated_at DESC, version DESC LIMIT %s
"""

COLUMNS = {
    "sql": "bare SQL, parsed",
    "prepared": "prepared SQL, parsed",
    "call": "Python call",
    "http": "HTTP",
}
MORE = "HTTP - call", "CPU of the web, ms"  # what the request costs around its page; in all

Figures = dict[str, Any]
Call = Callable[[str], object]


def run(rows: int = 5_000_000, parallel_seconds: int = 60, as_json: bool = False) -> int:
    """Measure and print. rows: versions of applications in the data set of 90 days; those of 10
    and 365 days have a tenth of it. parallel_seconds: seconds for which 16 clients read during
    ingest; 0: leave it out."""
    say = Console(stderr=True).print
    server = str(settings.ANNALS.database_url)
    figures: Figures = {"rows": rows, "sets": {}}
    for days in DAYS:
        found = data_set(server, days, rows if days == MAIN_DAYS else rows // 10, say)
        say(f"{days} days: measuring ...")
        with _serving(found) as (host, port, _Http.server):
            figures["sets"][str(days)] = _measure(found, host, port, full=days == MAIN_DAYS)
            if days == MAIN_DAYS and parallel_seconds:
                say("16 clients while ingest runs ...")
                figures["parallel"] = clients.run(found, host, port, parallel_seconds)
    figures["targets"] = targets(figures)
    met = all(target["met"] for target in figures["targets"])
    if as_json:
        print_json("timeline", figures, met)
    else:
        _print(figures)
    return 0 if met else 1


def _measure(found: DataSet, host: str, port: int, *, full: bool) -> Figures:
    """All figures of one data set, in milliseconds."""
    use(found.conninfo)
    picked = random.Random(1)
    hot = [picked.choice(found.hot) for _ in range(ROUNDS + WARM_UP)]
    usual = picked.sample(found.usual, min(len(found.usual), ROUNDS + WARM_UP))
    big = [BIG] * (ROUNDS + WARM_UP)
    http = _Http(host, port)
    figures: Figures = {
        "usual application, page 50": _three(http, usual, 50),
        "120 versions, page 50": _three(http, hot, 50),
    }
    if not full:
        return figures
    big60 = big[:60]
    for size in SIZES:
        ids = big if size < 500 else big60
        figures[f"10,000 versions, page {size}"] = _three(http, ids, size)
        figures[f"10,000 versions, page {size}, deep"] = _three(http, ids, size, deep=True)
    changed = Filters(path=PATH)
    path = f"history/{ROOT.name}/{BIG}?path={PATH}"
    figures["10,000 versions, path filter"] = {
        "call": _timed(
            lambda id: timeline.page(READER, Query(entity=ROOT, id=id, filters=changed)),
            big60,
        ),
        "http": http.time(lambda _: http.get(path), big60),
    }
    by_number = Sort.VERSION
    figures["10,000 versions, by version number"] = {
        "call": _timed(
            lambda id: timeline.page(READER, Query(entity=ROOT, id=id, sort=by_number)),
            big60,
        )
    }
    figures["10,000 versions, blame"] = {
        "sql": _timed(_every_version, big[:12], 1),
        "call": _timed(lambda id: timeline.blame(READER, ROOT, id), big[:12], 1),
    }
    figures |= _with_session(host, port, hot)
    figures["application timeline, page 50"] = {
        "call": _timed(lambda id: timeline.page(READER, Query(id=id)), usual),
        "http": http.time(lambda id: http.get(f"applications/{quote(id)}/history"), usual),
    }
    return figures


def _every_version(id: str) -> None:
    """What a blame without any of its own work would read, if it read all versions."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT data::text FROM {ROOT.table} WHERE id = %s", [id])
        for (data,) in cursor.fetchall():
            loads(data)


def _with_session(host: str, port: int, ids: Sequence[str]) -> Figures:
    """A page as a person reads it: from the API, and on the screen."""
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    cookies = "; ".join(f"{name}={each.value}" for name, each in client.cookies.items())
    http = _Http(host, port, {"Cookie": cookies})
    screen = f"/admin/history/{ROOT.name}"
    return {
        "120 versions, page 50, session": {
            "http": http.time(lambda id: http.get(f"history/{ROOT.name}/{quote(id)}"), ids)
        },
        "120 versions, screen": {
            "http": http.time(lambda id: http.get(f"{screen}/{quote(id)}/"), ids[:60])
        },
    }


def _three(http: _Http, ids: Sequence[str], size: int, *, deep: bool = False) -> Figures:
    """One page as SQL with JSON parsing, as a call and over HTTP. deep: in the middle of the
    timeline."""
    token, after = None, Place(LAST.updated_at, 0, "", LAST.version)
    if deep:
        token, after = _middle(ids[0], size)
    query = f"pageSize={size}" + (f"&pageToken={quote(token)}" if token else "")

    def prepared(id: str) -> None:
        found = Tables().page(ROOT, Query(id=id), after, size + 1)
        for row in found.rows:
            loads(row.data)

    def bare(id: str) -> None:
        bounds: list[Any] = [id, after.updated_at, after.updated_at, after.version, size + 1]
        with connection.cursor() as cursor:
            cursor.execute(BARE, bounds)
            for (data,) in cursor.fetchall():
                loads(data)

    return {
        "sql": _timed(bare, ids),
        "prepared": _timed(prepared, ids),
        "call": _timed(
            lambda id: timeline.page(
                READER, Query(entity=ROOT, id=id, page_size=size, page_token=token)
            ),
            ids,
        ),
        "http": http.time(lambda id: http.get(f"history/{ROOT.name}/{quote(id)}?{query}"), ids),
    }


def _middle(id: str, size: int) -> tuple[str | None, Place]:
    """The page token of the middle of a timeline, reached by pages of 500 and one of `size`."""
    token: str | None = None
    for step in [500] * 10 + [size]:
        page = timeline.page(
            READER,
            Query(entity=ROOT, id=id, page_size=step, page_token=token, include=frozenset()),
        )
        token, last = page.next_token, page.versions[-1]
    return token, Place(last.updated_at, 0, "", last.version)


def _timed(call: Call, ids: Sequence[str], warm_up: int = WARM_UP) -> dict[str, float]:
    """p50, p95 and p99 in milliseconds of a call over the ids, without the first `warm_up`."""
    taken = []
    warm_up = min(warm_up, len(ids) // 3)
    for number, id in enumerate(ids):
        began = time.perf_counter()
        call(id)
        if number >= warm_up:
            taken.append((time.perf_counter() - began) * 1000)
    return _cuts(taken)


def _cuts(taken: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(taken, n=100, method="inclusive") if len(taken) > 1 else taken * 99
    return {name: round(cuts[at], 2) for name, at in (("p50", 49), ("p95", 94), ("p99", 98))}


class _Http:
    """A client of the API with a persistent connection. server: gunicorn's main process."""

    server: psutil.Process

    def __init__(self, host: str, port: int, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        secret = base64.b64encode(b"auditor:auditor").decode()
        self._headers = headers or {"Authorization": f"Basic {secret}"}

    def time(self, call: Call, ids: Sequence[str], warm_up: int = WARM_UP) -> dict[str, float]:
        """As timed; cpu: milliseconds of the web processes for each request."""
        before = self._cpu()
        found = _timed(call, ids, warm_up)
        return found | {"cpu": round((self._cpu() - before) * 1000 / len(ids), 2)}

    def _cpu(self) -> float:
        return sum(map(cpu, self.server.children()))

    def get(self, path: str) -> bytes:
        """The body of the answer of a call, or of a page whose address begins with a slash. Raises
        RuntimeError unless the status is 200."""
        try:
            response = self._ask(path)
        except http.client.RemoteDisconnected:  # the connection was idle for too long
            response = self._ask(path)
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
        return body

    def _ask(self, path: str) -> http.client.HTTPResponse:
        address = path if path.startswith("/") else f"/api/v1/{path}"
        self._connection.request("GET", address, headers=self._headers)
        return self._connection.getresponse()


@contextmanager
def _serving(found: DataSet) -> Iterator[tuple[str, int, psutil.Process]]:
    """The production web server on the data set: its address, and its process."""
    with web(found.environment()) as (port, server):
        _await(HOST, port)
        yield HOST, port, server


def _await(host: str, port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            probe = http.client.HTTPConnection(host, port, timeout=5)
            probe.request("GET", "/healthz")
            if probe.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise RuntimeError("the web server does not answer")


def targets(figures: Figures) -> list[Figures]:
    """The targets, each with name, value, limit and met."""
    main = figures["sets"][str(MAIN_DAYS)]
    page = main["120 versions, page 50"]
    first, deep = (main[f"10,000 versions, page 50{end}"]["http"]["p50"] for end in ("", ", deep"))
    many, few = (
        figures["sets"][days]["120 versions, page 50"]["http"]["p50"] for days in ("365", "10")
    )
    found = [
        ("HTTP p50 at page 50, ms", page["http"]["p50"], 15.0),
        ("its ratio to bare SQL and parsing", page["http"]["p50"] / page["sql"]["p50"], 3.0),
        ("deep page to first page", deep / first, 1.2),
        ("365 partitions to 10", many / few, 3.0),
    ]
    if "parallel" in figures:
        found.append(("errors of 16 clients", figures["parallel"]["errors"], 0))
    return [
        {"name": name, "value": round(value, 2), "limit": limit, "met": value <= limit}
        for name, value, limit in found
    ]


def _print(figures: Figures) -> None:
    console = Console()
    for days, measured in figures["sets"].items():
        table = Table("p50 / p95, ms", *COLUMNS.values(), *MORE, title=f"{days} partitions")
        for name, kinds in measured.items():
            cells = [kinds.get(kind) for kind in COLUMNS]
            both = "call" in kinds and "http" in kinds
            more = round(kinds["http"]["p50"] - kinds["call"]["p50"], 2) if both else ""
            cpu = kinds.get("http", {}).get("cpu", "")
            texts = (f"{c['p50']} / {c['p95']}" if c else "" for c in cells)
            table.add_row(name, *texts, str(more), str(cpu))
        console.print(table)
    if "parallel" in figures:
        console.print(figures["parallel"])
    for target in figures["targets"]:
        word = "met" if target["met"] else "MISSED"
        console.print(f"{target['name']}: {target['value']} (limit {target['limit']}) {word}")
