"""Databases for tests on the nodes of a running Citus cluster."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection as django_connection
from msgspec.structs import replace
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

TRIES = 5
Plain = psycopg.Connection[Any]

# The embedded server has the same locale. With it, letters do not depend on the nodes' own locale.
_CREATE = """
CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'
LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' LOCALE 'C'
"""

_WORKERS = """
SELECT nodename, nodeport FROM pg_dist_node
WHERE noderole = 'primary' AND groupid <> 0 AND isactive ORDER BY nodeport
"""


@dataclass(frozen=True, slots=True)
class Citus:
    """A database that a test created on every node of a Citus cluster."""

    urls: list[str]  # of the coordinator, then of each worker
    _open: list[Plain] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.urls[0]

    def connect(self, node: int = 0, **parameters: Any) -> Plain:
        """Open a psycopg connection to a node, in autocommit mode. close() closes it."""
        connection = psycopg.connect(self.urls[node], autocommit=True, **parameters)
        self._open.append(connection)
        return connection

    def fetch_rows(
        self, statement: str, values: Any = None, node: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement on a node."""
        with psycopg.connect(self.urls[node], autocommit=True) as plain:
            return plain.execute(statement, values).fetchall()

    def close(self) -> None:
        for item in self._open:
            item.close()


@contextmanager
def create_database(coordinator: str) -> Iterator[Citus]:
    """Create an empty database on every node of a Citus cluster.

    The workers are registered in the database of the coordinator. After the block the databases are
    dropped, and so are the roles `annals_*` that the block created.

    Args:
        coordinator: A URL of the coordinator.
    """
    name = f"annals_{secrets.token_hex(4)}"
    with psycopg.connect(coordinator, autocommit=True) as plain:
        try:
            workers = plain.execute(_WORKERS).fetchall()
        except psycopg.errors.UndefinedTable:
            pytest.fail(
                "The database of ANNALS_TEST_CITUS lacks Citus: run CREATE EXTENSION citus there "
                "and on the workers, then citus_add_node() for each of them.",
                pytrace=False,
            )
        coordinator_place = plain.info.host, plain.info.port
    places = [coordinator_place, *workers]
    nodes = [make_conninfo(coordinator, host=host, port=port) for host, port in places]
    citus = Citus([make_conninfo(node, dbname=name) for node in nodes])
    former_roles = [_list_roles(node) for node in nodes]
    try:
        for node in nodes:
            _execute_on_node(node, _CREATE, name)
        for url in citus.urls:
            with psycopg.connect(url, autocommit=True) as plain:
                plain.execute("CREATE EXTENSION citus")
        with psycopg.connect(citus.url, autocommit=True) as plain:
            plain.execute("SELECT citus_set_coordinator_host(%s, %s)", coordinator_place)
            for worker in workers:
                plain.execute("SELECT citus_add_node(%s, %s)", worker)
        yield citus
    finally:
        citus.close()
        for node in reversed(nodes):
            _execute_on_node(node, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        for node, roles in zip(nodes, former_roles, strict=True):
            _drop_roles(node, _list_roles(node) - roles)


@contextmanager
def use_database(url: str) -> Iterator[None]:
    """Let Django, the consumer and commands in this process use a database during the block."""
    parts = conninfo_to_dict(url)
    settings_dict = django_connection.settings_dict
    disconnect()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settings, "ANNALS", replace(settings.ANNALS, database_url=url))
            for name in ("user", "password", "host", "port"):
                patch.setitem(settings_dict, name.upper(), parts.get(name, ""))
            patch.setitem(settings_dict, "NAME", parts["dbname"])
            yield
    finally:
        disconnect()


def disconnect() -> None:
    """Close Django's connections, so that this process connects again."""
    django_connection.close()
    django_connection.close_pool()  # type: ignore[attr-defined]  # of psycopg's backend


def end_session(plain: Plain) -> None:
    """Close a connection to the coordinator, and wait until its sessions on the nodes have ended.

    Afterwards the statistics of PostgreSQL on each node count all rows that the sessions inserted.
    """
    [(number,)] = plain.execute("SELECT citus_backend_gpid()").fetchall()
    url = make_conninfo(plain.info.dsn, password=plain.info.password)
    plain.close()
    with psycopg.connect(url, autocommit=True) as session:
        while _count_sessions(session, number):
            time.sleep(0.02)


_SESSIONS = """
SELECT sum(result::int)::int FROM run_command_on_all_nodes(format(
    'SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE %%L', '%% gpid=' || %s))
"""


def _count_sessions(plain: Plain, number: int) -> int:
    [(count,)] = plain.execute(_SESSIONS, [number]).fetchall()
    return int(count)


def _list_roles(node: str) -> set[str]:
    with psycopg.connect(node, autocommit=True) as plain:
        rows = plain.execute("SELECT rolname FROM pg_roles WHERE starts_with(rolname, 'annals_')")
        return {name for (name,) in rows}


def _drop_roles(node: str, names: set[str]) -> None:
    """Drop these roles on a node, except roles that another database uses."""
    with psycopg.connect(node, autocommit=True) as plain:
        plain.execute("SET citus.enable_ddl_propagation TO off")
        for name in sorted(names):
            with suppress(psycopg.errors.DependentObjectsStillExist):
                plain.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def _execute_on_node(node: str, statement: str, name: str) -> None:
    with psycopg.connect(node, autocommit=True) as plain:
        # The database is created on this node only. The caller repeats the statement on each node.
        plain.execute("SET citus.enable_create_database_propagation TO off")
        for attempt in reversed(range(TRIES)):
            try:
                plain.execute(sql.SQL(statement).format(sql.Identifier(name)))
            except psycopg.errors.ObjectInUse:
                # PostgreSQL waits five seconds for sessions to end. A busy machine needs longer.
                if not attempt:
                    raise
            else:
                return
