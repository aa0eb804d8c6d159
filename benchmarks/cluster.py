"""A database on all nodes of a Citus cluster, for benchmarks that compare it with one server."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import make_conninfo

_WORKERS = """
    SELECT nodename, nodeport FROM pg_dist_node
    WHERE noderole = 'primary' AND groupid <> 0 AND isactive ORDER BY nodeport
"""


def recreate_database(coordinator: str, name: str) -> None:
    """Create this database anew and empty on the coordinator and its workers, and join them.

    Args:
        coordinator: The address of a database whose workers have joined. Its login is a superuser.
    """
    with psycopg.connect(coordinator, autocommit=True) as connection:
        workers = connection.execute(_WORKERS).fetchall()
        own_place = connection.info.host, connection.info.port
    for host, port in (own_place, *workers):
        node = make_conninfo(coordinator, host=host, port=port)
        with psycopg.connect(node, autocommit=True) as connection:
            # Each node makes its own database.
            connection.execute("SET citus.enable_create_database_propagation TO off")
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {name}")
        with psycopg.connect(make_conninfo(node, dbname=name), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
    with psycopg.connect(make_conninfo(coordinator, dbname=name), autocommit=True) as connection:
        connection.execute("SELECT citus_set_coordinator_host(%s, %s)", own_place)
        for worker in workers:
            connection.execute("SELECT citus_add_node(%s, %s)", worker)
