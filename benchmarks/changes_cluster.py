"""`python -m benchmarks changes --cluster DSN`: lists of changes on a cluster and on one server.

Both have the same number of versions. The benchmark requests each list from the server and from the
cluster in turn, by Python calls without HTTP.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from django.conf import settings
from psycopg.conninfo import make_conninfo
from rich.console import Console

from benchmarks import cluster
from benchmarks.changes import (
    ALL_DAYS,
    DAYS,
    NAME,
    Latency,
    Question,
    fill_database,
    list_full_days,
    list_questions,
    measure_latency,
    pack_days,
)
from benchmarks.harness import create_database, report_figures, use_database

SHARDS: Final = 32
# `--versions` is divided by this number, because all nodes of a test cluster share one machine.
VERSIONS_DIVISOR: Final = 50
# The limit for the median time of a list on the cluster.
MOST_MS: Final = 500

Figures = dict[str, Any]


def run(coordinator: str, versions: int, rounds: int, as_json: bool) -> int:
    """Measure lists of changes on the cluster and on one server, print figures, return exit code.

    Args:
        coordinator: The URI of a database on the coordinator of a Citus cluster. The workers must
            have been added to this database with citus_add_node().
        versions: The value of `--versions`. Each full day gets `versions / VERSIONS_DIVISOR`
            versions.
        rounds: How many times to request each list.
    """
    print_progress = Console(stderr=True).print
    versions //= VERSIONS_DIVISOR
    with create_database(NAME) as plain_conninfo:
        cluster.recreate_database(coordinator, NAME)
        servers = {"plain": plain_conninfo, "cluster": make_conninfo(coordinator, dbname=NAME)}
        try:
            for name, shards in (("plain", None), ("cluster", SHARDS)):
                fill_database(servers[name], versions, print_progress, shards)
                with psycopg.connect(servers[name], autocommit=True) as connection:
                    pack_days(connection, print_progress)
            figures: Figures = {
                "versions": versions * DAYS,
                "shards": SHARDS,
                "questions": {
                    name: _ask_in_turn(servers, ask, rounds)
                    for name, ask in list_questions(list_full_days()).items()
                },
            }
        finally:
            use_database(str(settings.ANNALS.database_url))
            cluster.drop_database(coordinator, NAME)
    figures["targets"] = _list_targets(figures["questions"])
    return report_figures("changes", figures, _print_figures, as_json)


def _ask_in_turn(servers: dict[str, str], ask: Question, rounds: int) -> dict[str, Latency]:
    """Measure a question on each server, one after the other. Return the latencies by server."""
    latencies = {}
    for name, conninfo in servers.items():
        use_database(conninfo)
        latencies[name] = measure_latency(rounds, ask)
    return latencies


def _list_targets(questions: dict[str, dict[str, Latency]]) -> list[Figures]:
    return [
        {
            "name": f"{name}: p50 on the cluster, ms",
            "value": latencies["cluster"].p50,
            "limit": MOST_MS,
            "met": latencies["cluster"].p50 <= MOST_MS,
        }
        for name, latencies in questions.items()
    ]


def _print_figures(figures: Figures) -> None:
    title = (
        f"{figures['versions']:,} versions in {DAYS} of {ALL_DAYS} days, {figures['shards']} "
        "shards, p50 / p99, ms"
    )
    cluster.print_comparison(
        title,
        {
            name: (
                cluster.Milliseconds(*latencies["plain"]),
                cluster.Milliseconds(*latencies["cluster"]),
            )
            for name, latencies in figures["questions"].items()
        },
    )
