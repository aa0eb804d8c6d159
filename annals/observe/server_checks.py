"""`annals check --database default`, also a part of `migrate`: compares the settings of the
PostgreSQL server with annals.observe.server_rules."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, LiteralString

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from annals.access import logins
from annals.observe.server_rules import (
    LOG_NUMBERS,
    LOG_WORDS,
    RULES,
    Fault,
    Server,
    Setting,
    faults,
)
from history import distribution
from history.distributing.steps import left_out
from ingest import rights

NAMES: Final = (
    *(rule.setting for rule in RULES),
    *LOG_NUMBERS,
    *LOG_WORDS,
    *("jit", "max_connections", "superuser_reserved_connections", "reserved_connections"),
    *("shared_preload_libraries", "session_preload_libraries"),
)


def server_settings(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warnings annals.W001 and on. None in the demo, whose server is for one machine."""
    if settings.ANNALS.demo:
        return []
    return [
        Warning(fault.text, hint=fault.hint, obj=f"PostgreSQL ({alias})", id=_id(fault.number))
        for alias in databases or []
        for fault in (*faults(read(connections[alias])), *_of_cluster(connections[alias]))
    ]


def _of_cluster(connection: BaseDatabaseWrapper) -> Iterator[Fault]:
    """What is missing where the tables are distributed."""
    connection.ensure_connection()
    plain = connection.connection
    if distribution.active(plain) and (names := left_out(plain, rights.tables())):
        hint = (
            "Stop the consumers and run `annals distribute`, then `annals grants --apply`: "
            "consumers that are connected to other nodes do not find them (docs/citus.md)."
        )
        yield Fault(15, f"Only the coordinator has {', '.join(names)}.", hint)
    for node, server in _workers(connection):
        for fault in faults(server):
            yield replace(fault, text=f"On the worker {node}: {fault.text}")


# Of new sessions, in one row. A worker that does not answer is left out.
_SETTINGS: Final[LiteralString] = """
SELECT json_object_agg(name, json_build_array(coalesce(reset_val, setting), unit))
FROM pg_settings WHERE name = ANY({names}) AND (name <> 'jit' OR pg_jit_available())
"""
_OF_WORKERS: Final[LiteralString] = """
SELECT nodename || ':' || nodeport, result FROM run_command_on_workers(%s) WHERE success ORDER BY 1
"""


def _workers(connection: BaseDatabaseWrapper) -> Iterator[tuple[str, Server]]:
    """The settings of each worker of a cluster: host and port, and what read() gives."""
    if not distribution.active(connection.connection):
        return
    command = sql.SQL(_SETTINGS).format(names=sql.Literal(list(NAMES)))
    with connection.cursor() as cursor:
        cursor.execute(_OF_WORKERS, [command.as_string(connection.connection)])
        answers = cursor.fetchall()
    for node, result in answers:
        found = {name: Setting(*given) for name, given in json.loads(result).items()}
        yield node, Server(found, connections=logins.connections())


def _id(number: int) -> str:
    return f"annals.W{number:03}"


def read(connection: BaseDatabaseWrapper) -> Server:
    """The settings of new sessions, not those that this session has set for itself."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, coalesce(reset_val, setting), unit FROM pg_settings WHERE name = ANY(%s)",
            [list(NAMES)],
        )
        found = {name: Setting(value, unit) for name, value, unit in cursor.fetchall()}
        cursor.execute("SELECT pg_jit_available()")
        (jit,) = cursor.fetchone() or (False,)
    return Server(found, bool(jit), logins.connections())
