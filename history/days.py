"""The SQL that gives a table the partition of one UTC day, or takes it away. Only psycopg.

Ingest calls it for a day that is missing, `manage.py partitions` for all the others. A lock is
asked for briefly and often instead of once and long: who waits for a strong lock makes everybody
wait who comes after.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors, sql

# psqlextra's mark of a partition made by a program: one without it is never dropped.
MARK = "psqlextra_auto_partitioned"
# The mark of one that came back from the archive: it stays until somebody lets it go.
RESTORED = "annals_restored"
LOCK_TIMEOUT_MS = 100
PATIENCE_S = 10.0
ADVISORY_SPACE = 0x41_4E_4E_41  # "ANNA": our space of advisory locks, one lock for each day

Connection = psycopg.Connection[Any]
T = TypeVar("T")


class State(Enum):
    """Where the table of a day stands."""

    ABSENT = "absent"
    ATTACHED = "attached"
    PENDING = "pending"  # DETACH CONCURRENTLY was cut short; FINALIZE ends it
    DETACHED = "detached"


class ForeignTableError(RuntimeError):
    """A table with the name of a day's partition stands there that no program of ours made."""


class Place(NamedTuple):
    """A day's partition and the table it belongs to, quoted, with the schema of the latter."""

    parent: sql.Identifier
    child: sql.Identifier
    state: State
    comment: str | None
    default: bool  # whether the parent has a default partition

    @property
    def marked(self) -> bool:
        return self.comment == MARK


def partition_name(table: str, day: date) -> str:
    """`product_instance_aud_20251121`."""
    return f"{table}_{day:%Y%m%d}"


def bounds(day: date) -> tuple[str, str]:
    """First moment of the day and of the next one, with the offset: no session's zone matters."""
    return f"{day.isoformat()} 00:00:00+00", f"{(day + timedelta(1)).isoformat()} 00:00:00+00"


def create(connection: Connection, table: str, day: date, patience_s: float = PATIENCE_S) -> bool:
    """Give `table` the partition of a day; False where it is there already.

    Safe when several processes do it at once, and never in the way of readers and writers of the
    table. A detached partition of that day, which a cut-short maintain left, is attached again.
    `connection` is in autocommit mode. Raises psycopg.errors.LockNotAvailable when the locks could
    not be had in `patience_s` seconds, ForeignTableError when a table that is not ours has the
    partition's name.
    """
    name = partition_name(table, day)

    def attempt() -> bool:
        if locate(connection, table, day).state is State.PENDING:
            finalize(connection, table, day)
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
            connection.execute(
                "SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [ADVISORY_SPACE, name]
            )
            place = locate(connection, table, day)
            if place.state is State.ATTACHED:
                return False
            if place.state is State.ABSENT:
                make_loose(connection, place, day)
            elif not place.marked:
                raise ForeignTableError(f"{name} is a table that Annals did not make")
            attach(connection, place, day)
            return True

    return patiently(attempt, patience_s)


def retire(
    connection: Connection,
    table: str,
    day: date,
    patience_s: float = PATIENCE_S,
    last_look: Callable[[Place], None] = lambda _: None,
) -> bool:
    """Detach the partition of a day and drop it; False where there is none.

    Readers and writers of the table go on. `connection` is in autocommit mode. last_look is called
    once nobody can write to it any more; what it raises leaves the table standing loose.

    A detach that an open transaction holds up for longer than `patience_s` seconds raises
    psycopg.errors.LockNotAvailable and may leave the partition pending: no query sees it any more,
    and the next call ends what was begun. Raises ForeignTableError for one without our mark.
    """
    name = partition_name(table, day)

    def attempt() -> bool:
        with _day_locked(connection, name):
            place = locate(connection, table, day)
            if place.state is State.ABSENT:
                return False
            if not place.marked:
                raise ForeignTableError(f"{name} is a partition that Annals did not make")
            if place.state is State.ATTACHED:
                _detach(connection, place, patience_s)
            elif place.state is State.PENDING:
                finalize(connection, table, day)
            last_look(place)
            with _lock_timeout(connection, LOCK_TIMEOUT_MS):
                connection.execute(sql.SQL("DROP TABLE {}").format(place.child))
            return True

    return patiently(attempt, patience_s)


def locate(connection: Connection, table: str, day: date) -> Place:
    """Where the partition of a day stands. Raises psycopg.errors.UndefinedTable without `table`."""
    row = connection.execute(
        "SELECT space.nspname, child.oid IS NOT NULL, link.inhparent IS NOT NULL,"
        " link.inhdetachpending, obj_description(child.oid, 'pg_class'), partitioned.partdefid <> 0"
        " FROM pg_class parent JOIN pg_namespace space ON space.oid = parent.relnamespace"
        " JOIN pg_partitioned_table partitioned ON partitioned.partrelid = parent.oid"
        " LEFT JOIN pg_class child"
        "  ON child.relname = %s AND child.relnamespace = parent.relnamespace"
        " LEFT JOIN pg_inherits link"
        "  ON link.inhrelid = child.oid AND link.inhparent = parent.oid"
        " WHERE parent.oid = %s::regclass",
        [partition_name(table, day), table],
    ).fetchone()
    assert row is not None  # noqa: S101 - the cast to regclass raises where there is no table
    schema, exists, linked, pending, comment, default = row
    if not exists:
        state = State.ABSENT
    elif not linked:
        state = State.DETACHED
    else:
        state = State.PENDING if pending else State.ATTACHED
    return Place(
        sql.Identifier(schema, table),
        sql.Identifier(schema, partition_name(table, day)),
        state,
        comment,
        default,
    )


def make_loose(connection: Connection, place: Place, day: date, mark: str = MARK) -> None:
    """Make the table of a day beside its parent, like it in everything, without attaching it.

    The CHECK spares ATTACH reading the rows, should somebody fill the table before.
    """
    connection.execute(
        sql.SQL(
            "CREATE TABLE {child} (LIKE {parent} INCLUDING ALL EXCLUDING IDENTITY,"
            " CONSTRAINT in_day CHECK (updated_at >= {start} AND updated_at < {end}))"
        ).format(child=place.child, parent=place.parent, **_literals(day))
    )
    mark_as(connection, place, mark)


def mark_as(connection: Connection, place: Place, mark: str) -> None:
    """Say on a day's table who made it: MARK or RESTORED."""
    connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(place.child, sql.Literal(mark)))


def attach(connection: Connection, place: Place, day: date) -> None:
    """Attach a loose table of a day. Its indexes become parts of the parent's."""
    connection.execute(
        sql.SQL(
            "ALTER TABLE {parent} ATTACH PARTITION {child} FOR VALUES FROM ({start}) TO ({end})"
        ).format(parent=place.parent, child=place.child, **_literals(day))
    )
    connection.execute(
        sql.SQL("ALTER TABLE {} DROP CONSTRAINT IF EXISTS in_day").format(place.child)
    )


def finalize(connection: Connection, table: str, day: date) -> None:
    """End a pending detach: the table of the day stands loose afterwards."""
    place = locate(connection, table, day)
    with _lock_timeout(connection, LOCK_TIMEOUT_MS):
        connection.execute(
            sql.SQL("ALTER TABLE {} DETACH PARTITION {} FINALIZE").format(place.parent, place.child)
        )


def _detach(connection: Connection, place: Place, patience_s: float) -> None:
    """DETACH CONCURRENTLY, which waits for open transactions without holding up anybody. Plain
    DETACH where a default partition or the engine forbids it: that one locks the whole table, so
    it may wait only briefly."""
    command = sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(place.parent, place.child)
    if not place.default:
        try:
            with _lock_timeout(connection, int(patience_s * 1000)):
                connection.execute(command + sql.SQL(" CONCURRENTLY"))
        except errors.FeatureNotSupported:
            pass
        else:
            return
    with _lock_timeout(connection, LOCK_TIMEOUT_MS):
        connection.execute(command)


def _literals(day: date) -> dict[str, sql.Literal]:
    start, end = bounds(day)
    return {"start": sql.Literal(start), "end": sql.Literal(end)}


@contextmanager
def _day_locked(connection: Connection, name: str) -> Iterator[None]:
    """Hold the lock of one day's partition, in the session, since DETACH CONCURRENTLY cannot run
    in a transaction: who creates that day meanwhile waits."""
    with _lock_timeout(connection, LOCK_TIMEOUT_MS):
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [ADVISORY_SPACE, name])
    try:
        yield
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [ADVISORY_SPACE, name])


@contextmanager
def _lock_timeout(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Let the session's statements wait at most so long for a lock, then as long as before."""
    row = connection.execute("SELECT current_setting('lock_timeout')").fetchone()
    before = row[0] if row else "0"
    connection.execute("SELECT set_config('lock_timeout', %s, false)", [str(milliseconds)])
    try:
        yield
    finally:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [before])


def patiently(attempt: Callable[[], T], patience_s: float) -> T:
    """Repeat what gave up on a lock, with pauses, until it succeeds or the time is over."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return attempt()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            if time.monotonic() > deadline:
                raise
        time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - spread, not secrecy
