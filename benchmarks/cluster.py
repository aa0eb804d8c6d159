"""Functions for benchmarks that compare a Citus cluster with one server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table

_WORKERS = """
    SELECT nodename, nodeport FROM pg_dist_node
    WHERE noderole = 'primary' AND groupid <> 0 AND isactive ORDER BY nodeport
"""


class Milliseconds(NamedTuple):
    """The median and a high percentile of the times of a request, in milliseconds."""

    p50: float
    slow: float  # the percentile that the title of the table names


def print_comparison(
    title: str, questions: Mapping[str, tuple[Milliseconds, Milliseconds]]
) -> None:
    """Print a table with a row for each kind of request: the times of one server and of a cluster.

    Args:
        questions: For each kind of request, by name: the times on one server and on the cluster.
    """
    table = Table("", "one server", "cluster", "ratio", title=title)
    for name, (plain, spread) in questions.items():
        table.add_row(
            name,
            *(f"{server.p50:.1f} / {server.slow:.1f}" for server in (plain, spread)),
            f"{spread.p50 / plain.p50:.2f}",
        )
    Console().print(table)


def recreate_database(coordinator: str, name: str) -> None:
    """Create an empty database on each node of a cluster, and connect these databases with Citus.

    Existing databases with this name are dropped.

    Args:
        coordinator: The URI of an existing database on the coordinator, to which the workers were
            added with citus_add_node(). The login must be a superuser.
    """
    drop_database(coordinator, name)
    own_place, *workers = places = _list_nodes(coordinator)
    for host, port in places:
        node = make_conninfo(coordinator, host=host, port=port)
        with psycopg.connect(node, autocommit=True) as connection:
            # The loop creates the database on each node, so Citus must not do this.
            connection.execute("SET citus.enable_create_database_propagation TO off")
            connection.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(make_conninfo(node, dbname=name), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
    with psycopg.connect(make_conninfo(coordinator, dbname=name), autocommit=True) as connection:
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", own_place)
        for worker in workers:
            connection.execute("SELECT citus_add_node(%s, %s)", worker)


def drop_database(coordinator: str, name: str) -> None:
    """Drop the database with this name on all nodes, if it exists.

    Args:
        coordinator: The URI of a different database on the coordinator. See `recreate_database`.
    """
    for host, port in _list_nodes(coordinator):
        node = make_conninfo(coordinator, host=host, port=port)
        with psycopg.connect(node, autocommit=True) as connection:
            connection.execute("SET citus.enable_create_database_propagation TO off")
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _list_nodes(coordinator: str) -> list[tuple[str, int]]:
    """Return host and port of the coordinator, then of each worker."""
    with psycopg.connect(coordinator, autocommit=True) as connection:
        workers = connection.execute(_WORKERS).fetchall()
        return [(connection.info.host, connection.info.port), *workers]
