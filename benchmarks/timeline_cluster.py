"""`python -m benchmarks timeline --cluster DSN`: reading from a cluster and from one server.

Both databases have the same versions, and both have a web server. The requests go to the two web
servers in turn over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from rich.console import Console

from benchmarks import cluster
from benchmarks.harness import report_figures, use_database
from benchmarks.timeline import ROOT, _ApiClient, _compute_percentiles, _serve_data
from benchmarks.timeline_data import TimelineData, prepare_data

DAYS, SHARDS = 97, 32
# `--rows` is divided by this number, because all nodes of a test cluster share one machine.
ROWS_DIVISOR: Final = 50
WARM_UP, ROUNDS = 20, 60

Figures = dict[str, Any]


class MeasuredRequest:
    """A kind of request to measure, with its limits.

    Attributes:
        name: The page or call, in words.
        make_path: Returns the path of the request for the id of an application.
        most_ms: The limit of the median on the cluster, in milliseconds; None: no limit.
        most_ratio: The limit of the median on the cluster, as a multiple of the median on one
            server; None: no limit.
    """

    def __init__(
        self,
        name: str,
        make_path: Callable[[str], str],
        most_ms: float | None = None,
        most_ratio: float | None = None,
    ) -> None:
        self.name = name
        self.make_path = make_path
        self.most_ms = most_ms
        self.most_ratio = most_ratio


def run(coordinator: str, rows: int, as_json: bool) -> int:
    """Measure reading on the cluster and on one server, print the figures, return the exit code.

    Args:
        coordinator: The URI of a database on the coordinator of a Citus cluster. The workers must
            have been added to this database with citus_add_node().
        rows: The value of `--rows`. Each database gets `rows / ROWS_DIVISOR` versions of
            applications.
    """
    print_progress = Console(stderr=True).print
    rows //= ROWS_DIVISOR
    plain = prepare_data(str(settings.ANNALS.database_url), DAYS, rows, print_progress)
    spread = prepare_data(coordinator, DAYS, rows, print_progress, SHARDS)
    figures: Figures = {"rows": rows, "days": DAYS, "shards": SHARDS, "questions": {}}
    with ExitStack() as stack:
        clients = [
            _make_client(data, *stack.enter_context(_serve_data(data))[:2])
            for data in (plain, spread)
        ]
        for question in _list_questions():
            print_progress(f"{question.name} ...")
            figures["questions"][question.name] = _ask(question, clients, plain)
    figures["targets"] = _list_targets(figures["questions"])
    return report_figures("timeline", figures, _print_figures, as_json)


def _list_questions() -> list[MeasuredRequest]:
    now = datetime.now(UTC)
    moment = quote((now - timedelta(days=20)).isoformat())
    week = (now - timedelta(days=20)).strftime("%G-W%V")
    return [
        MeasuredRequest(
            "document, page of 50",
            lambda id: f"history/{ROOT.name}/{id.replace('FIVE', 'HOT')}",
            most_ratio=2.5,
        ),
        MeasuredRequest(
            "application with five children, page of 50",
            lambda id: f"applications/{id}/history",
            most_ms=250,
            most_ratio=3,
        ),
        MeasuredRequest(
            "application with five children at a moment",
            lambda id: f"applications/{id}/at?time={moment}",
            most_ms=200,
        ),
        MeasuredRequest("search by number", lambda id: f"search?q=number-{id}", most_ms=200),
        MeasuredRequest(
            "a client's week, screen",
            lambda id: f"/admin/client/?q=clientId-{id}&week={week}",
            most_ms=200,
        ),
    ]


def _make_client(data: TimelineData, host: str, port: int) -> _ApiClient:
    """Make a client with a session, because screens do not accept a password in each request."""
    use_database(data.conninfo)
    client = Client()
    client.force_login(User.objects.get(username="auditor"))
    cookies = "; ".join(f"{name}={cookie.value}" for name, cookie in client.cookies.items())
    return _ApiClient(host, port, {"Cookie": cookies})


def _ask(question: MeasuredRequest, clients: list[_ApiClient], data: TimelineData) -> Figures:
    """Send requests to one server and to the cluster in turn. Return the times of both.

    Args:
        clients: The client of the server, and then the client of the cluster.
        data: The data set, which has the ids for the requests.
    """
    milliseconds: list[list[float]] = [[] for _ in clients]
    for number in range(WARM_UP + ROUNDS):
        path = question.make_path(data.five[number % len(data.five)])
        for client, times in zip(clients, milliseconds, strict=True):
            took = client.time_one(path)
            if number >= WARM_UP:
                times.append(took)
    return dict(zip(("plain", "cluster"), map(_compute_percentiles, milliseconds), strict=True))


def _list_targets(questions: Figures) -> list[Figures]:
    targets = []
    for question in _list_questions():
        figures = questions[question.name]
        spread, plain = figures["cluster"]["p50"], figures["plain"]["p50"]
        for name, value, limit in (
            ("ms", spread, question.most_ms),
            ("times plain", spread / plain, question.most_ratio),
        ):
            if limit is not None:
                targets.append(
                    {
                        "name": f"{question.name}, {name}",
                        "value": round(value, 2),
                        "limit": limit,
                        "met": value <= limit,
                    }
                )
    return targets


def _print_figures(figures: Figures) -> None:
    title = f"{figures['days']} days, {figures['shards']} shards, p50 / p95 over HTTP, ms"
    cluster.print_comparison(
        title,
        {
            name: (
                cluster.Milliseconds(times["plain"]["p50"], times["plain"]["p95"]),
                cluster.Milliseconds(times["cluster"]["p50"], times["cluster"]["p95"]),
            )
            for name, times in figures["questions"].items()
        },
    )
