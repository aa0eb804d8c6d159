"""The steps, each one transaction: interrupted anywhere, a step was done or was not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from typing import Final, LiteralString

from psycopg import sql

from history import days, distribution
from history.day_locks import LOCK_TIMEOUT_MS, lock_day, retry_lock
from history.days import Connection, State
from history.distributing.plan import Plan
from history.distribution import COPIED, DISTRIBUTED_BY, fit, homes
from history.entities import BY_TABLE
from history.partitions.catalog import Partition

# For how long a step waits until readers give it a table.
WAIT_S: Final = 60.0

_LAST_NUMBER: Final[LiteralString] = """
SELECT pg_sequence_last_value(pg_get_serial_sequence(attrelid::regclass::text, attname)::regclass)
FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'id' AND attidentity <> ''
"""


def distribute(connection: Connection, table: str, partitions: Iterable[Partition]) -> None:
    """Distribute a table of versions without its days: they are detached in the same transaction,
    which copies nothing. Waits for readers, and lets none wait for longer than a moment."""
    entity = BY_TABLE[table]
    attached = [part.name for part in partitions if part.state is State.ATTACHED]

    def attempt() -> None:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            for name in attached:
                detach = sql.SQL("ALTER TABLE {} DETACH PARTITION {}")
                connection.execute(detach.format(sql.Identifier(table), sql.Identifier(name)))
            fit.with_application(connection, entity, sql.Identifier(table))
            _create_distributed(connection, table)

    retry_lock(attempt, WAIT_S)


def spread(connection: Connection, table: str) -> None:
    """Distribute a table that has no days, with its rows."""
    with connection.transaction():
        _create_distributed(connection, table)
        distribution.free_coordinator(connection, sql.Identifier(table))


def share(connection: Connection, table: str) -> None:
    """Have each node reach a table that stays on the coordinator, or give it a copy."""
    with connection.transaction():
        if table in COPIED:
            connection.execute("SELECT create_reference_table(%s)", [table])
            return
        number = _last_number(connection, table)
        connection.execute(
            "SELECT citus_add_local_table_to_metadata(%s, cascade_via_foreign_keys => true)"
            " WHERE NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = %s::regclass)",
            [table, table],
        )
        _go_on_from(connection, table, number)


def _last_number(connection: Connection, table: str) -> int | None:
    """The last one that the database gave a row of a table as its id; None: it gave none."""
    row = connection.execute(_LAST_NUMBER, [table]).fetchone()
    return None if row is None else row[0]


def _go_on_from(connection: Connection, table: str, number: int | None) -> None:
    """Citus has made the table anew, whose numbers begin with 1: let them go on."""
    if number is not None:
        connection.execute(
            "SELECT setval(pg_get_serial_sequence(%s, 'id')::regclass, %s)", [table, number]
        )


def move(connection: Connection, table: str, day: date) -> bool:
    """Copy the rows of a detached day to the workers, attach it, and free the disk of the
    coordinator; False if it is attached."""
    name = days.partition_name(table, day)

    def attempt() -> bool:
        with connection.transaction():
            lock_day(connection, name)
            place = days.locate(connection, table, day)
            if place.state is not State.DETACHED or not place.ours:
                return False
            fit.prepare(connection, table, day, place.child)
            days.attach(connection, place, day)
            return True

    return retry_lock(attempt, WAIT_S)


def run(
    connection: Connection,
    left: Plan,
    partitions: Iterable[Partition],
    shards: int | None,
    report: Callable[[str], None],
) -> None:
    """Do what is left. report gets a sentence after each step. Raises psycopg.Error."""
    found = list(partitions)
    if shards is not None:
        connection.execute("SELECT set_config('citus.shard_count', %s, false)", [str(shards)])
    for table in left.parents:
        distribute(connection, table, [part for part in found if part.table == table])
        report(f"{table}: distributed by {DISTRIBUTED_BY[table]}, its days are detached")
    distribution.remember(connection, None)
    for table in left.lookups:
        spread(connection, table)
        report(f"{table}: distributed by {DISTRIBUTED_BY[table]}")
    for table in left.locals:
        share(connection, table)
        where = (
            "copied to each node"
            if table in COPIED
            else "on the coordinator, reachable from each node"
        )
        report(f"{table}: {where}")
    for number, each in enumerate(left.days, 1):
        if move(connection, each.table, each.day):
            report(f"{each.name}: attached, day {number} of {len(left.days)}")
    homes.note_moved(connection)


def _create_distributed(connection: Connection, table: str) -> None:
    """Distribute a table next to those that are distributed already."""
    row = connection.execute(
        "SELECT logicalrelid::text FROM pg_dist_partition JOIN pg_class c ON c.oid = logicalrelid"
        " WHERE partmethod = 'h' AND relname = ANY(%s) ORDER BY logicalrelid LIMIT 1",
        [list(DISTRIBUTED_BY)],
    ).fetchone()
    # Not the default: tables of somebody else may be of the same type.
    beside = "none" if row is None else row[0]
    distribution.one_by_one(connection)
    connection.execute(
        "SELECT create_distributed_table(%s, %s, colocate_with => %s)",
        [table, DISTRIBUTED_BY[table], beside],
    )
