"""`annals check --database default`, also a part of `migrate`: compares the settings of the
PostgreSQL server with annals.observe.server_checks."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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

MB: Final = 1 << 20
_BYTES: Final = {"B": 1, "kB": 1 << 10, "8kB": 1 << 13, "MB": MB, "16MB": 16 * MB}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LOCKS: Final = 352


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of pg_settings: the value of new sessions, in `unit`."""

    value: str
    unit: str | None = None

    @property
    def number(self) -> float:
        """Bytes, seconds, or the number itself."""
        factor = _BYTES.get(self.unit or "") or _SECONDS.get(self.unit or "") or 1
        return float(self.value) * factor

    def __str__(self) -> str:
        if self.unit in _BYTES and self.number >= MB:
            return f"{self.number / MB:.0f}MB"
        unlimited = self.value.startswith("-")
        return self.value if unlimited else f"{self.value}{self.unit or ''}"


# Of pg_settings by name, without those that the login may not see, and without jit where plans
# cannot be compiled.
Settings = Mapping[str, Setting]


@dataclass(frozen=True, slots=True)
class Fault:
    """number: stays the same for the same kind of fault."""

    number: int
    text: str
    hint: str


@dataclass(frozen=True, slots=True)
class Rule:
    number: int
    setting: str
    good: Callable[[Setting], bool]
    hint: str


def at_least(least: float) -> Callable[[Setting], bool]:
    """For numbers of bytes, seconds or things."""
    return lambda setting: setting.number >= least


def is_on(setting: Setting) -> bool:
    return setting.value != "off"


def is_utc(setting: Setting) -> bool:
    return setting.value.upper() in ("UTC", "GMT", "ETC/UTC", "ETC/UCT", "UCT", "ZULU")


RULES: Final = (
    Rule(1, "shared_buffers", at_least(256 * MB),
         "Set it to a quarter of the memory, 256MB at least: the indexes of today are written at "
         "random places, and each page that does not fit is read again."),
    Rule(2, "max_wal_size", at_least(2048 * MB),
         "Set 2GB or more, above the WAL of checkpoint_timeout (docs/capacity.md): otherwise "
         "checkpoints come earlier, and each writes whole pages again."),
    Rule(3, "checkpoint_timeout", at_least(900),
         "Set 30min: with 5min the WAL of a day is about twice as large (docs/capacity.md). "
         "Recovery after a crash takes a little longer."),
    Rule(4, "wal_compression", is_on,
         "Set lz4 (or on): it halves the page images, which are most of the WAL "
         "(docs/capacity.md)."),
    Rule(5, "synchronous_commit", is_on,
         "Set on: after a crash, answers that left would lack their entry in the access journal. "
         "Versions are not lost: the ledger goes back with them."),
    Rule(6, "fsync", is_on,
         "Set on: after a crash of the machine the whole database can be unusable."),
    Rule(7, "full_page_writes", is_on,
         "Set on: after a crash of the machine pages can be torn."),
    Rule(8, "autovacuum", is_on,
         "Set on: without statistics a timeline is planned wrongly, and transaction ids run out."),
    Rule(9, "max_locks_per_transaction", at_least(LOCKS),
         f"Set {LOCKS}: a query over all days needs a lock for each partition and index "
         "(docs/partitions.md)."),
    Rule(10, "data_checksums", is_on,
         "Run `pg_checksums --enable` while the server is stopped: otherwise a disk can change "
         "rows unnoticed, and seals blame people for it."),
    Rule(11, "log_timezone", is_utc,
         "Set UTC, and timezone too: Annals sets UTC for its own sessions, and its log has UTC. "
         "Sessions of psql show days with other limits than those of the partitions."),
    Rule(12, "jit", lambda setting: not is_on(setting),
         "Set off: a plan over all days has hundreds of functions, and to compile them can take "
         "longer than to run them (docs/performance.md)."),
)  # fmt: skip


def faults(found: Settings, connections: int) -> Iterator[Fault]:
    """What should be changed, by number. A setting that the login may not see is no fault.
    connections: that the logins of Annals may have together; 0: unknown."""
    for rule in RULES:
        setting = found.get(rule.setting)
        if setting is not None and not rule.good(setting):
            yield Fault(rule.number, f"{rule.setting} is {setting}.", rule.hint)
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
    reserved = sum(found[name].number for name in names if name in found)
    highest = found.get("max_connections")
    if highest is not None and connections > highest.number - reserved:
        yield Fault(
            13,
            f"max_connections is {highest}, {reserved:.0f} of them reserved; the logins of Annals "
            f"may have {connections}.",
            f"Set {connections + reserved:.0f} or more, or lower the limits with ALTER ROLE "
            ".. CONNECTION LIMIT: otherwise one process takes the connections of another.",
        )


def _open_logs(settings: Settings) -> Iterator[str]:
    for name, quiet in QUIET_LOG.items():
        value = settings[name].value if name in settings else quiet
        if name.endswith("_libraries"):
            is_open = "auto_explain" in value
        else:
            is_open = value not in (quiet, "fatal", "panic")
        if is_open:
            yield name


NAMES: Final = (
    *(rule.setting for rule in RULES),
    *QUIET_LOG,
    *("max_connections", "superuser_reserved_connections", "reserved_connections"),
)


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
            for fault in faults(_settings(each.result), most):
                yield replace(fault, text=f"On the worker {each.node}: {fault.text}")


# Of new sessions, in one row.
_QUERY: Final = sql.SQL("""
SELECT json_object_agg(name, json_build_array(coalesce(reset_val, setting), unit))::text
FROM pg_settings WHERE name = ANY({names}) AND (name <> 'jit' OR pg_jit_available())
""").format(names=sql.Literal(list(NAMES)))


def _settings(result: str) -> Settings:
    return {name: Setting(*given) for name, given in json.loads(result).items()}


def read(connection: BaseDatabaseWrapper) -> Settings:
    """The settings of new sessions, not those that this session has set for itself."""
    with connection.cursor() as cursor:
        cursor.execute(_QUERY)
        (result,) = cursor.fetchone() or ("{}",)
    return _settings(result)
