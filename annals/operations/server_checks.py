"""Checks settings of the PostgreSQL server for `annals check --database default` and `migrate`.

Each check finds a setting with which Annals can fail, or can show data that it must hide.
docs/first-hour.md describes the recommended settings.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Warning
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from annals.access import grants
from annals.operations.distribution_steps import find_undistributed_tables
from history.store import distribution
from history.store.database.session import QUIET_LOG
from ingest.store import rights

MIN_LOCKS: Final = 704
SETTING_NAMES: Final = (
    "synchronous_commit",
    "max_locks_per_transaction",
    "max_connections",
    "superuser_reserved_connections",
    "reserved_connections",
    *QUIET_LOG,
)

# The settings of new sessions by name, as in pg_settings. A setting that the login may not see is
# missing.
ServerSettings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ServerFault:
    """A fault of a PostgreSQL server, such as a setting that should be changed."""

    number: int  # identifies the kind of fault: 5 stands for the id annals.W005 of Django's check
    text: str
    hint: str


def find_faults(server_values: ServerSettings, connections: int) -> Iterator[ServerFault]:
    """Find the settings of a PostgreSQL server that should be changed.

    The faults are in the order of `ServerFault.number`. A setting that the database login has no
    right to see is not reported.

    Args:
        connections: How many connections all database logins of Annals together may open; 0 if not
            known.
    """
    if server_values["synchronous_commit"] == "off":
        yield ServerFault(
            5,
            "synchronous_commit is off.",
            "Set it to on. Otherwise, after a crash, the access journal can lack the entries of "
            "answers that were sent. Versions are not lost: the consumer reads them again.",
        )
    locks = int(server_values["max_locks_per_transaction"])
    if locks < MIN_LOCKS:
        yield ServerFault(
            9,
            f"max_locks_per_transaction is {locks}.",
            f"Set it to {MIN_LOCKS}: a query over all days needs a lock for each partition and "
            "index (docs/partitions.md).",
        )
    yield from _check_connections(server_values, connections)
    if open_logs := sorted(_find_open_logs(server_values)):
        listed = ", ".join(f"{name} = {server_values[name]}" for name in open_logs)
        hint = (
            "Set them as docs/decisions/0009-logs.md says, or protect the server's log like the "
            "documents themselves, because it can quote them."
        )
        yield ServerFault(14, f"The server's log can have contents of documents: {listed}.", hint)


def _check_connections(server_values: ServerSettings, connections: int) -> Iterator[ServerFault]:
    """Yield a fault if the database logins of Annals may open more connections than the server has.

    Args:
        connections: How many connections all database logins of Annals together may open.
    """
    names = ("superuser_reserved_connections", "reserved_connections")
    reserved = sum(int(server_values.get(name, 0)) for name in names)
    highest = int(server_values["max_connections"])
    if connections > highest - reserved:
        yield ServerFault(
            13,
            f"max_connections is {highest}, {reserved} of them reserved; the database "
            f"logins of Annals may open {connections}.",
            f"Set it to {connections + reserved} or more, or lower the limits of the logins with "
            "ALTER ROLE .. CONNECTION LIMIT: otherwise a process can take connections that a "
            "different process needs.",
        )


def _find_open_logs(settings: ServerSettings) -> Iterator[str]:
    for name, quiet in QUIET_LOG.items():
        value = settings.get(name, quiet)
        if name.endswith("_libraries"):
            is_open = "auto_explain" in value
        else:
            is_open = value not in (quiet, "fatal", "panic")
        if is_open:
            yield name


def check_server_settings(
    *, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Return a warning for each fault of the PostgreSQL servers.

    The id of a warning is "annals.W" with the number of the fault, such as annals.W005. The server
    of a demo is not checked.
    """
    if settings.ANNALS.demo:
        return []
    return [
        Warning(
            fault.text,
            hint=fault.hint,
            obj=f"PostgreSQL ({alias})",
            id=f"annals.W{fault.number:03}",
        )
        for alias in databases or []
        for fault in _find_faults_of_servers(connections[alias])
    ]


def _find_faults_of_servers(connection: BaseDatabaseWrapper) -> Iterator[ServerFault]:
    """Find the faults of this server and, with Citus, of the workers."""
    connection.ensure_connection()
    allowed = grants.count_allowed_connections()
    yield from find_faults(fetch_settings(connection), allowed)
    pg_connection = connection.connection
    if names := find_undistributed_tables(pg_connection, rights.list_tables()):
        hint = (
            "Stop the consumers and run `annals distribute`, then `annals grants --apply`: "
            "consumers that are connected to other nodes do not find them (docs/citus.md)."
        )
        yield ServerFault(15, f"Only the coordinator has {', '.join(names)}.", hint)
    statement = _SELECT_SETTINGS.as_string(pg_connection)
    for answer in distribution.ask_nodes(pg_connection, statement):
        if answer.worker and answer.success:  # a worker that does not answer is skipped
            for fault in find_faults(json.loads(answer.result), allowed):
                yield replace(fault, text=f"On the worker {answer.node}: {fault.text}")


# Selects the settings of new sessions as one JSON object.
_SELECT_SETTINGS: Final = sql.SQL("""
SELECT json_object_agg(name, coalesce(reset_val, setting))::text
FROM pg_settings WHERE name = ANY({names})
""").format(names=sql.Literal(list(SETTING_NAMES)))


def fetch_settings(connection: BaseDatabaseWrapper) -> ServerSettings:
    """Fetch the settings that new sessions get. Changes made in this session do not count."""
    with connection.cursor() as cursor:
        cursor.execute(_SELECT_SETTINGS)
        (result,) = cursor.fetchone() or ("{}",)
    server_values: ServerSettings = json.loads(result)
    return server_values
