"""`annals check --database default`, also a part of `migrate`: settings of the PostgreSQL server
with which Annals fails, or shows what it must not. docs/first-hour.md has all that help."""

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
from history import distribution
from history.database.session import QUIET_LOG
from history.distributing.steps import left_out
from ingest import rights

LOCKS: Final = 352
NAMES: Final = (
    *("synchronous_commit", "max_locks_per_transaction", "max_connections"),
    *("superuser_reserved_connections", "reserved_connections", *QUIET_LOG),
)

# The values of new sessions by name, as pg_settings has them, without those that the login may not
# see.
Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    """number: stays the same for the same kind of fault."""

    number: int
    text: str
    hint: str


def faults(found: Settings, connections: int) -> Iterator[Fault]:
    """What should be changed, by number. A setting that the login may not see is no fault.
    connections: that the logins of Annals may have together; 0: unknown."""
    if found["synchronous_commit"] == "off":
        yield Fault(
            5,
            "synchronous_commit is off.",
            "Set on: after a crash, answers that left would lack their entry in the access "
            "journal. Versions are not lost: the ledger goes back with them.",
        )
    locks = int(found["max_locks_per_transaction"])
    if locks < LOCKS:
        yield Fault(
            9,
            f"max_locks_per_transaction is {locks}.",
            f"Set {LOCKS}: a query over all days needs a lock for each partition and index "
            "(docs/partitions.md).",
        )
    yield from _connections(found, connections)
    if open_logs := sorted(_open_logs(found)):
        listed = ", ".join(f"{name} = {found[name]}" for name in open_logs)
        hint = (
            "Set them as docs/decisions/0009-logs.md says, or protect the server's log like the "
            "documents: it can have their contents."
        )
        yield Fault(14, f"The server's log can have contents of documents: {listed}.", hint)


def _connections(found: Settings, connections: int) -> Iterator[Fault]:
    """Whether the logins of Annals can have the connections that they are limited to."""
    names = ("superuser_reserved_connections", "reserved_connections")
    reserved = sum(int(found.get(name, 0)) for name in names)
    highest = int(found["max_connections"])
    if connections > highest - reserved:
        yield Fault(
            13,
            f"max_connections is {highest}, {reserved} of them reserved; the logins of Annals "
            f"may have {connections}.",
            f"Set {connections + reserved} or more, or lower the limits with ALTER ROLE "
            ".. CONNECTION LIMIT: otherwise one process takes the connections of another.",
        )


def _open_logs(settings: Settings) -> Iterator[str]:
    for name, quiet in QUIET_LOG.items():
        value = settings.get(name, quiet)
        if name.endswith("_libraries"):
            is_open = "auto_explain" in value
        else:
            is_open = value not in (quiet, "fatal", "panic")
        if is_open:
            yield name


def server_settings(*, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warnings annals.W001 and on. None in the demo, whose server is for one machine."""
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
        for fault in _of_servers(connections[alias])
    ]


def _of_servers(connection: BaseDatabaseWrapper) -> Iterator[Fault]:
    """Of this server, and of the workers and what they lack where the tables are distributed."""
    connection.ensure_connection()
    most = grants.connections()
    yield from faults(read(connection), most)
    plain = connection.connection
    if names := left_out(plain, rights.tables()):
        hint = (
            "Stop the consumers and run `annals distribute`, then `annals grants --apply`: "
            "consumers that are connected to other nodes do not find them (docs/citus.md)."
        )
        yield Fault(15, f"Only the coordinator has {', '.join(names)}.", hint)
    for each in distribution.answers(plain, _QUERY.as_string(plain)):
        if each.worker and each.success:  # one that does not answer is left out
            for fault in faults(json.loads(each.result), most):
                yield replace(fault, text=f"On the worker {each.node}: {fault.text}")


# Of new sessions, in one row.
_QUERY: Final = sql.SQL("""
SELECT json_object_agg(name, coalesce(reset_val, setting))::text
FROM pg_settings WHERE name = ANY({names})
""").format(names=sql.Literal(list(NAMES)))


def read(connection: BaseDatabaseWrapper) -> Settings:
    """The settings of new sessions, not those that this session has set for itself."""
    with connection.cursor() as cursor:
        cursor.execute(_QUERY)
        (result,) = cursor.fetchone() or ("{}",)
    found: Settings = json.loads(result)
    return found
