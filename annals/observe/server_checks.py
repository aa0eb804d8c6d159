"""`annals check --database default`, also a part of `migrate`: compares the settings of the
PostgreSQL server with annals.observe.server_rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

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
from history.distributing.plan import left_out
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
