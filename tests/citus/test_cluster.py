"""The fixtures of the Citus tests leave no roles or databases on the nodes."""

import os

import psycopg
from psycopg.conninfo import make_conninfo

from tests.citus.cluster import create_database

ROLE = "annals_left_behind"


def test_roles_and_databases_that_a_test_created_are_dropped_on_all_nodes() -> None:
    """A role is dropped even if it has rights in the database."""
    dsn = os.environ["ANNALS_TEST_CITUS"]
    with create_database(dsn) as citus:
        nodes, name = citus.urls, citus.fetch_rows("SELECT current_database()")[0][0]
        with citus.connect() as plain:
            plain.execute(f"CREATE ROLE {ROLE}")  # on all nodes
            plain.execute(f"CREATE TABLE marks (id int); GRANT SELECT ON marks TO {ROLE}")
        for url in nodes:
            assert list_existing(url, name) == [name, ROLE]
    for url in nodes:
        assert list_existing(make_conninfo(url, dbname="postgres"), name) == []


def list_existing(url: str, name: str) -> list[str]:
    """Return which of these a node has: the database `name` and the role ROLE."""
    with psycopg.connect(url, autocommit=True) as plain:
        rows = plain.execute(
            "SELECT datname FROM pg_database WHERE datname = %(name)s"
            " UNION ALL SELECT rolname FROM pg_roles WHERE rolname = %(role)s",
            {"name": name, "role": ROLE},
        ).fetchall()
    return [name for (name,) in rows]
