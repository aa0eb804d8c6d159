"""`python -m benchmarks timeline`: measures timeline pages, as a Python call and over HTTP.

The times are compared with those of a baseline: a bare SQL query for the same rows, and the
parsing of the JSON in these rows.
"""

from __future__ import annotations

import base64
import http.client
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import psutil
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from rich.console import Console
from rich.table import Table

from benchmarks import clients
from benchmarks.harness import HOST, measure_cpu, report_figures, start_web, use_database
from benchmarks.timeline_data import BIG, TimelineData, prepare_data
from history import timeline
from history.documents.exactjson import loads
from history.kinds.entities import get_root
from history.store.versions import LAST, TimelinePosition
from history.timeline import TimelineQuery, TimelineSort, VersionFilters
from history.timeline.sources.tables import TableSource

ROOT = get_root()
HOST_READER = timeline.make_host_reader()

DAYS = (10, 90, 365)
MAIN_DAYS = 90
WARM_UP, ROUNDS = 20, 200
SIZES = (1, 50, 500)
CHANGED_PATH = "/rate"
BARE_QUERY = """
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
# The time that HTTP adds to the Python call, and the processor time of the whole request.
MORE_COLUMNS = "HTTP - call", "CPU of the web, ms"

Figures = dict[str, Any]
CallById = Callable[[str], object]


def run(
    rows: int = 5_000_000, parallel_seconds: int = 60, as_json: bool = False, cluster: str = ""
) -> int:
    """Measure timeline pages, print the figures, and return the exit code.

    Args:
        rows: How many versions of applications the data set of 90 days has. The data sets of 10
            and 365 days each have a tenth of this number.
        parallel_seconds: For how many seconds 16 clients read during ingest. 0: not at all.
        cluster: The URI of a database on a Citus coordinator. If it is set, only compare the
            cluster with one server. See `timeline_cluster.run`.
    """
    if cluster:
        from benchmarks import timeline_cluster

        return timeline_cluster.run(cluster, rows, as_json)
    print_progress = Console(stderr=True).print
    server = str(settings.ANNALS.database_url)
    figures: Figures = {"rows": rows, "sets": {}}
    for days in DAYS:
        data = prepare_data(server, days, rows if days == MAIN_DAYS else rows // 10, print_progress)
        print_progress(f"{days} days: measuring ...")
        with _serve_data(data) as (host, port, _ApiClient.server):
            figures["sets"][str(days)] = _measure_data(data, host, port, full=days == MAIN_DAYS)
            if days == MAIN_DAYS and parallel_seconds:
                print_progress("16 clients while ingest runs ...")
                figures["parallel"] = clients.run(data, host, port, parallel_seconds)
    figures["targets"] = list_targets(figures)
    return report_figures("timeline", figures, _print_figures, as_json)


def _measure_data(data: TimelineData, host: str, port: int, *, full: bool) -> Figures:
    """Measure one data set, and return its figures in milliseconds.

    Args:
        full: Whether to measure all kinds of pages. If False, measure only usual pages.
    """
    use_database(data.conninfo)
    random_source = random.Random(1)
    hot = [random_source.choice(data.hot) for _ in range(ROUNDS + WARM_UP)]
    usual = random_source.sample(data.usual, min(len(data.usual), ROUNDS + WARM_UP))
    big = [BIG] * (ROUNDS + WARM_UP)
    http = _ApiClient(host, port)
    figures: Figures = {
        "usual application, page 50": _measure_page(http, usual, 50),
        "120 versions, page 50": _measure_page(http, hot, 50),
    }
    if not full:
        return figures
    big60 = big[:60]
    for size in SIZES:
        ids = big if size < 500 else big60
        figures[f"10,000 versions, page {size}"] = _measure_page(http, ids, size)
        figures[f"10,000 versions, page {size}, deep"] = _measure_page(http, ids, size, deep=True)
    changed = VersionFilters(path=CHANGED_PATH)
    path = f"history/{ROOT.name}/{BIG}?path={CHANGED_PATH}"
    figures["10,000 versions, path filter"] = {
        "call": _time_calls(
            lambda id: timeline.fetch_page(
                HOST_READER, TimelineQuery(entity=ROOT, id=id, filters=changed)
            ),
            big60,
        ),
        "http": http.time_requests(lambda _: http.fetch_body(path), big60),
    }
    by_number = TimelineSort.VERSION
    figures["10,000 versions, by version number"] = {
        "call": _time_calls(
            lambda id: timeline.fetch_page(
                HOST_READER, TimelineQuery(entity=ROOT, id=id, sort=by_number)
            ),
            big60,
        )
    }
    figures["10,000 versions, blame"] = {
        "sql": _time_calls(_read_every_version, big[:12], 1),
        "call": _time_calls(lambda id: timeline.blame_leaves(HOST_READER, ROOT, id), big[:12], 1),
    }
    figures |= _measure_with_session(host, port, hot)
    figures["application timeline, page 50"] = {
        "call": _time_calls(
            lambda id: timeline.fetch_page(HOST_READER, TimelineQuery(id=id)), usual
        ),
        "http": http.time_requests(
            lambda id: http.fetch_body(f"applications/{quote(id)}/history"), usual
        ),
    }
    return figures


def _read_every_version(id: str) -> None:
    """Read and parse all versions of a document, as a baseline for the time of a blame."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT data::text FROM {ROOT.table} WHERE id = %s", [id])
        for (data,) in cursor.fetchall():
            loads(data)


def _measure_with_session(host: str, port: int, ids: Sequence[str]) -> Figures:
    """Measure a page for a person who is logged in with a session, by the API and on the screen."""
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    cookies = "; ".join(f"{name}={cookie.value}" for name, cookie in client.cookies.items())
    http = _ApiClient(host, port, {"Cookie": cookies})
    screen = f"/admin/history/{ROOT.name}"
    return {
        "120 versions, page 50, session": {
            "http": http.time_requests(
                lambda id: http.fetch_body(f"history/{ROOT.name}/{quote(id)}"), ids
            )
        },
        "120 versions, screen": {
            "http": http.time_requests(
                lambda id: http.fetch_body(f"{screen}/{quote(id)}/"), ids[:60]
            )
        },
    }


def _measure_page(
    http: _ApiClient, ids: Sequence[str], size: int, *, deep: bool = False
) -> Figures:
    """Measure one page as SQL with JSON parsing, as a Python call and over HTTP.

    Args:
        ids: The documents to read, one after another.
        size: The number of versions on the page.
        deep: Whether to use a page in the middle of the timeline instead of the first page.
    """
    token, after = None, TimelinePosition(LAST.updated_at, 0, "", LAST.version)
    if deep:
        token, after = _find_middle(ids[0], size)
    query = f"pageSize={size}" + (f"&pageToken={quote(token)}" if token else "")

    def read_prepared(id: str) -> None:
        page = TableSource().fetch_page(ROOT, TimelineQuery(id=id), after, size + 1)
        for row in page.rows:
            loads(row.data)

    def read_bare(id: str) -> None:
        bounds: list[Any] = [id, after.updated_at, after.updated_at, after.version, size + 1]
        with connection.cursor() as cursor:
            cursor.execute(BARE_QUERY, bounds)
            for (data,) in cursor.fetchall():
                loads(data)

    return {
        "sql": _time_calls(read_bare, ids),
        "prepared": _time_calls(read_prepared, ids),
        "call": _time_calls(
            lambda id: timeline.fetch_page(
                HOST_READER, TimelineQuery(entity=ROOT, id=id, page_size=size, page_token=token)
            ),
            ids,
        ),
        "http": http.time_requests(
            lambda id: http.fetch_body(f"history/{ROOT.name}/{quote(id)}?{query}"), ids
        ),
    }


class _PageStart(NamedTuple):
    """The start of a page: the page token for Annals, and the position for the bare SQL query."""

    token: str | None
    position: TimelinePosition


def _find_middle(id: str, size: int) -> _PageStart:
    """Return the start of a page in the middle of a long timeline.

    Reads ten pages of 500 versions. Then reads one page of `size` versions, because the token must
    be from a page of this size.
    """
    token: str | None = None
    for step in [500] * 10 + [size]:
        page = timeline.fetch_page(
            HOST_READER,
            TimelineQuery(
                entity=ROOT, id=id, page_size=step, page_token=token, include=frozenset()
            ),
        )
        token, last = page.next_token, page.versions[-1]
    return _PageStart(token, TimelinePosition(last.updated_at, 0, "", last.version))


def _time_calls(call: CallById, ids: Sequence[str], warm_up: int = WARM_UP) -> dict[str, float]:
    """Call `call` with each id, and return p50, p95 and p99 in milliseconds.

    The first `warm_up` calls do not count.
    """
    milliseconds = []
    warm_up = min(warm_up, len(ids) // 3)
    for number, id in enumerate(ids):
        began = time.perf_counter()
        call(id)
        if number >= warm_up:
            milliseconds.append((time.perf_counter() - began) * 1000)
    return _compute_percentiles(milliseconds)


def _compute_percentiles(milliseconds: list[float]) -> dict[str, float]:
    cuts = (
        statistics.quantiles(milliseconds, n=100, method="inclusive")
        if len(milliseconds) > 1
        else milliseconds * 99
    )
    return {name: round(cuts[index], 2) for name, index in (("p50", 49), ("p95", 94), ("p99", 98))}


class _ApiClient:
    """A client of the API with a persistent connection."""

    server: psutil.Process  # the main process of gunicorn

    def __init__(self, host: str, port: int, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=120)
        secret = base64.b64encode(b"auditor:auditor").decode()
        self._headers = headers or {"Authorization": f"Basic {secret}"}

    def time_requests(
        self, call: CallById, ids: Sequence[str], warm_up: int = WARM_UP
    ) -> dict[str, float]:
        """Send a request for each id, and return p50, p95 and p99 in milliseconds.

        The result also has `cpu`: the milliseconds of processor time of the web for a request.

        Args:
            call: Sends the request for an id.
        """
        earlier = self._measure_web_cpu()
        times = _time_calls(call, ids, warm_up)
        return times | {"cpu": round((self._measure_web_cpu() - earlier) * 1000 / len(ids), 2)}

    def time_one(self, path: str) -> float:
        """Return the milliseconds of one request."""
        began = time.perf_counter()
        self.fetch_body(path)
        return (time.perf_counter() - began) * 1000

    def _measure_web_cpu(self) -> float:
        return sum(map(measure_cpu, self.server.children()))

    def fetch_body(self, path: str) -> bytes:
        """Return the body of an API answer, or of a page if the address begins with a slash.

        Raises:
            RuntimeError: The status is not 200.
        """
        try:
            response = self._send_request(path)
        except http.client.RemoteDisconnected:  # the web closed the idle connection
            response = self._send_request(path)
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body[:200]!r}")
        return body

    def _send_request(self, path: str) -> http.client.HTTPResponse:
        address = path if path.startswith("/") else f"/api/v1/{path}"
        self._connection.request("GET", address, headers=self._headers)
        return self._connection.getresponse()


@contextmanager
def _serve_data(data: TimelineData) -> Iterator[tuple[str, int, psutil.Process]]:
    """Run gunicorn on a data set, and yield its host, its port and its main process."""
    with start_web(data.make_environment()) as (port, server):
        _wait_for_web(HOST, port)
        yield HOST, port, server


def _wait_for_web(host: str, port: int) -> None:
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


def list_targets(figures: Figures) -> list[Figures]:
    """Return the targets, each with its name, value, limit, and whether it is met."""
    main = figures["sets"][str(MAIN_DAYS)]
    page = main["120 versions, page 50"]
    first, deep = (main[f"10,000 versions, page 50{end}"]["http"]["p50"] for end in ("", ", deep"))
    many, few = (
        figures["sets"][days]["120 versions, page 50"]["http"]["p50"] for days in ("365", "10")
    )
    limits = [
        ("HTTP p50 at page 50, ms", page["http"]["p50"], 15.0),
        ("HTTP p50 at page 50, ratio to bare SQL", page["http"]["p50"] / page["sql"]["p50"], 3.0),
        ("ratio of a deep page to the first page", deep / first, 1.2),
        ("ratio of 365 partitions to 10", many / few, 3.0),
    ]
    if "parallel" in figures:
        limits.append(("errors of 16 clients", figures["parallel"]["errors"], 0))
    return [
        {"name": name, "value": round(value, 2), "limit": limit, "met": value <= limit}
        for name, value, limit in limits
    ]


def _print_figures(figures: Figures) -> None:
    console = Console()
    for days, measured in figures["sets"].items():
        table = Table("p50 / p95, ms", *COLUMNS.values(), *MORE_COLUMNS, title=f"{days} partitions")
        for name, kinds in measured.items():
            cells = [kinds.get(kind) for kind in COLUMNS]
            has_both = "call" in kinds and "http" in kinds
            more_milliseconds = (
                round(kinds["http"]["p50"] - kinds["call"]["p50"], 2) if has_both else ""
            )
            cpu = kinds.get("http", {}).get("cpu", "")
            texts = (f"{c['p50']} / {c['p95']}" if c else "" for c in cells)
            table.add_row(name, *texts, str(more_milliseconds), str(cpu))
        console.print(table)
    if "parallel" in figures:
        console.print(figures["parallel"])
