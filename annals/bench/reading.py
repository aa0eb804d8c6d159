"""`annals bench reading`: the same rows in plain tables and in distributed ones, one after another
in one database of a Citus cluster."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import psycopg
from django.conf import settings
from django.core.management import CommandError
from django.db import connection
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import tuple_row
from rich.console import Console
from rich.table import Table

from annals.bench.printed import print_json
from annals.bench.timeline import timed, use
from annals.bench.timeline_data import HOT_COUNT, fill, manage
from history import distribution, timeline
from history.entities import BY_NAME, root
from history.timeline import ApplicationQuery, Query

DATABASE: Final = "annals_reading"
CHILD: Final = BY_NAME["product-task"]
WARM_UP, ROUNDS, PLANNED = 10, 60, 5
_PLANNING: Final = re.compile(r"Planning Time: ([\d.]+) ms")
_WORKERS: Final = """
SELECT nodename, nodeport FROM pg_dist_node
WHERE noderole = 'primary' AND isactive AND groupid <> 0 ORDER BY groupid
"""
_CHILDREN: Final = f"""
SELECT id, max(product_instance_id) FROM {CHILD.table} GROUP BY id
ORDER BY id LIMIT 2000
"""  # noqa: S608 - constants

Figures = dict[str, Any]
Call = Callable[[str], object]


def run(rows: int = 50_000, days: int = 92, as_json: bool = False) -> int:
    """Measure and print. rows: versions of applications. days: partitions of each table."""
    say = Console(stderr=True).print
    with _database(str(settings.ANNALS.database_url)) as url:
        fill(url, days, rows, say)
        figures: Figures = {"rows": rows, "days": days, "plain": _measure(url)}
        say("distributing ...")
        manage(url, days, "distribute")
        figures["distributed"] = _measure(url)
    if as_json:
        print_json("reading", figures)
    else:
        _print(figures)
    return 0


def _measure(url: str) -> Figures:
    """Milliseconds and statements of each call."""
    use(url)
    connection.ensure_connection()
    distribution.remember(connection.connection, None)
    connection.close_pool()  # type: ignore[attr-defined]  # as a process that starts now
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute(_CHILDREN)
        pairs = random.Random(1).choices(cursor.fetchall(), k=WARM_UP + ROUNDS)  # noqa: S311
    children, applications = ([pair[at] for pair in pairs] for at in (0, 1))
    hot = [f"HOT{number % HOT_COUNT}" for number in range(WARM_UP + ROUNDS)]
    now = datetime.now(UTC)
    return {
        name: _time(call, ids)
        for name, call, ids in (
            ("page of 50", lambda id: timeline.page(Query(entity=root(), id=id)), hot),
            ("at", lambda id: timeline.at(root(), id, now), hot),
            ("blame", lambda id: timeline.blame(root(), id), hot),
            ("child by id", lambda id: timeline.page(Query(entity=CHILD, id=id)), children),
            ("child at", lambda id: timeline.at(CHILD, id, now), children),
            (
                "application, page of 50",
                lambda id: timeline.application(ApplicationQuery(id=id)),
                applications,
            ),
            ("application at", lambda id: timeline.application_at(id, now), applications),
            ("search, id of an application", timeline.search, applications),
            ("search, id of a child", timeline.search, children),
        )
    }


def _time(call: Call, ids: Sequence[str]) -> Figures:
    """As timed. statements: how many one call takes. planning: milliseconds for which all nodes
    plan them, the least of some times; 0 where they are planned once for a session."""
    found = timed(call, ids, WARM_UP)
    with _counted() as said:
        call(ids[-1])
    planning = 0.0
    if distribution.active(connection.connection):
        planning = sum(min(_planning(each) for _ in range(PLANNED)) for each in said)
    return {**found, "statements": len(said), "planning": round(planning, 2)}


def _planning(said: _Said) -> float:
    with psycopg.Cursor(connection.connection, row_factory=tuple_row) as cursor:
        statement = f"EXPLAIN (COSTS OFF, SUMMARY) {said.statement}"
        cursor.execute(statement.encode(), said.values)
        return sum(float(found[1]) for (line,) in cursor if (found := _PLANNING.search(line)))


class _Said(NamedTuple):
    statement: str
    values: Sequence[Any] | None = None


@contextmanager
def _counted() -> Iterator[list[_Said]]:
    """The statements that go to the server inside."""
    said: list[_Said] = []
    plain = psycopg.Cursor.execute

    def execute(self: Any, query: Any, *args: Any, **more: Any) -> Any:
        said.append(_Said(str(query), *args[:1]))
        return plain(self, query, *args, **more)

    psycopg.Cursor.execute = execute  # type: ignore[method-assign]
    try:
        yield said
    finally:
        psycopg.Cursor.execute = plain  # type: ignore[method-assign]


@contextmanager
def _database(server: str) -> Iterator[str]:
    """An empty database on all nodes of this coordinator, joined; dropped at the end."""
    with psycopg.connect(server, autocommit=True) as plain:
        try:
            workers = plain.execute(_WORKERS).fetchall()
        except psycopg.errors.UndefinedTable:
            raise CommandError(
                "DATABASE_URL is no database of a Citus cluster. Its workers must have joined: "
                "see docs/citus.md."
            ) from None
        places = [(plain.info.host, plain.info.port), *workers]
    nodes = [make_conninfo(server, host=host, port=port) for host, port in places]
    urls = [make_conninfo(node, dbname=DATABASE) for node in nodes]
    try:
        for node, url in zip(nodes, urls, strict=True):
            _on(node, "DROP DATABASE IF EXISTS {} WITH (FORCE)")
            _on(node, "CREATE DATABASE {}")
            with psycopg.connect(url, autocommit=True) as plain:
                plain.execute("CREATE EXTENSION citus")
        with psycopg.connect(urls[0], autocommit=True) as plain:
            plain.execute("SELECT citus_set_coordinator_host(%s, %s)", places[0])
            for place in workers:
                plain.execute("SELECT citus_add_node(%s, %s)", place)
        yield urls[0]
    finally:
        for node in reversed(nodes):
            _on(node, "DROP DATABASE IF EXISTS {} WITH (FORCE)")


def _on(node: str, statement: str) -> None:
    with psycopg.connect(node, autocommit=True) as plain:
        # Each node has its own.
        plain.execute("SET citus.enable_create_database_propagation TO off")
        plain.execute(sql.SQL(statement).format(sql.Identifier(DATABASE)))


def _print(figures: Figures) -> None:
    table = Table("p50 / p95, ms", "plain", "distributed", "of it planning", "statements")
    for name, plain in figures["plain"].items():
        there = figures["distributed"][name]
        cells = [f"{each['p50']} / {each['p95']}" for each in (plain, there)]
        cells.append(str(there["planning"]))
        table.add_row(name, *cells, f"{plain['statements']} / {there['statements']}")
    Console().print(table)
