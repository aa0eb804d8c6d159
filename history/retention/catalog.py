"""The partitions that exist, read from PostgreSQL's catalogue in one query."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from django.db import connection as default_connection
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

from history.store.days.days import (
    MARK,
    RESTORED,
    DayState,
    build_partition_name,
)
from history.store.distribution.disk_use import measure_disk_use

# Selects the partitions of some tables, and the detached tables that have the name of a day. If
# Annals marked such a table, it was detached and not dropped yet. pg_get_expr prints the bounds in
# the time zone of the session, and the cast to timestamptz reads them in the same time zone.
# pg_get_expr gets 0 instead of the table's oid: it does not need the oid, because a bound has no
# columns. With the oid it would return NULL for a table that was swapped since PostgreSQL's
# snapshot.
_LIST_PARTITIONS: Final = """
WITH parent AS (
    SELECT c.oid, c.relname, c.relnamespace
    FROM unnest(%(tables)s::text[]) AS name JOIN pg_class c ON c.oid = to_regclass(name)
), child AS (
    SELECT parent.relname AS parent, i.inhrelid AS oid, i.inhdetachpending AS pending
    FROM parent JOIN pg_inherits i ON i.inhparent = parent.oid
    UNION ALL
    SELECT parent.relname, c.oid, NULL
    FROM parent JOIN pg_class c
      ON c.relnamespace = parent.relnamespace AND c.relkind = 'r' AND NOT c.relispartition
     AND c.relname ~ ('^' || parent.relname || '_[0-9]{8}$')
)
SELECT child.parent, c.relname AS name, child.pending,
       obj_description(c.oid, 'pg_class') AS comment,
       bound[1]::timestamptz AS start, bound[2]::timestamptz AS end,
       (CASE WHEN c.reltuples < 0 THEN pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END)::bigint
           AS rows,
       coalesce(pg_total_relation_size(c.oid), 0) AS bytes
FROM child JOIN pg_class c ON c.oid = child.oid
CROSS JOIN LATERAL (SELECT regexp_match(
    pg_get_expr(c.relpartbound, 0), $$^FOR VALUES FROM \\('([^']+)'\\) TO \\('([^']+)'\\)$$
)) AS range(bound)
ORDER BY child.parent, c.relname
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a table, or a detached table that has the name of a day."""

    table: str
    name: str
    start: datetime | None  # UTC; None for a default partition and for a detached table
    end: datetime | None  # UTC, excluded
    state: DayState
    marked: bool  # Annals made it, and it may be dropped
    rows: int  # an estimate
    bytes: int  # on disk, with indexes and TOAST
    restored: bool = False  # brought back from the archive
    shards: int = 1  # on a cluster: how many tables on the nodes make up the partition

    @property
    def day(self) -> date | None:
        """The UTC day of the partition.

        None if the name, the bounds or the comment show that Annals did not create the partition
        for a day. Annals never changes such a partition.
        """
        try:
            day = date.fromisoformat(self.name.removeprefix(f"{self.table}_"))
        except ValueError:
            return None
        day_bounds = compute_midnight(day), compute_midnight(day) + timedelta(days=1)
        has_day_bounds = self.start is None or (self.start, self.end) == day_bounds
        is_attached = self.state is not DayState.DETACHED
        has_day_name = self.name == build_partition_name(self.table, day)
        if (
            has_day_name
            and self.marked
            and has_day_bounds
            and is_attached == (self.start is not None)
        ):
            return day
        return None

    def covers_part_of(self, day: date) -> bool:
        """Return whether this partition covers a part of a day.

        If it does, PostgreSQL refuses another partition for the day.
        """
        if self.start is None or self.end is None:
            return False
        return (
            self.start < compute_midnight(day) + timedelta(days=1)
            and compute_midnight(day) < self.end
        )


def compute_midnight(day: date) -> datetime:
    """Return the first moment of a UTC day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def read_partitions(connection: BaseDatabaseWrapper, tables: Iterable[str]) -> list[Partition]:
    """Return the partitions of these tables in the order of table and name.

    A table that does not exist does not have partitions.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LIST_PARTITIONS, {"tables": list(tables)})
        partitions = [_to_partition(_CatalogueRow(*row)) for row in cursor.fetchall()]
    if not partitions:
        return partitions
    # If a node does not answer, all partitions are listed, but their sizes lack the shards of this
    # node.
    disk_uses = measure_disk_use(
        connection.connection, [partition.name for partition in partitions], whole=False
    )
    return [
        replace(partition, rows=disk_use.rows, bytes=disk_use.bytes, shards=len(disk_use.shards))
        if (disk_use := disk_uses.get(partition.name))
        else partition
        for partition in partitions
    ]


def find_missing_tables(connection: BaseDatabaseWrapper, tables: Sequence[str]) -> list[str]:
    """Return the tables that do not exist because `annals migrate` was not run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM unnest(%(tables)s::text[]) AS name WHERE to_regclass(name) IS NULL",
            {"tables": list(tables)},
        )
        return [name for (name,) in cursor.fetchall()]


def find_filled(names: Sequence[str]) -> set[str]:
    """Return the names of the partitions that have at least one row."""
    filled = set()
    with default_connection.cursor() as cursor:
        for name in names:
            # On a cluster, EXISTS would fetch all rows from the nodes.
            cursor.execute(sql.SQL("SELECT true FROM {} LIMIT 1").format(sql.Identifier(name)))
            if cursor.fetchone() is not None:
                filled.add(name)
    return filled


class _CatalogueRow(NamedTuple):
    """A row of the result of _LIST_PARTITIONS."""

    table: str
    name: str
    pending: bool | None  # whether a detach was interrupted; None: the table is detached
    comment: str | None
    start: datetime | None
    end: datetime | None
    rows: int
    bytes: int


def _to_partition(row: _CatalogueRow) -> Partition:
    if row.pending is None:
        state = DayState.DETACHED
    else:
        state = DayState.PENDING if row.pending else DayState.ATTACHED
    return Partition(
        table=row.table,
        name=row.name,
        start=row.start.astimezone(UTC) if row.start else None,
        end=row.end.astimezone(UTC) if row.end else None,
        state=state,
        marked=row.comment == MARK,
        rows=row.rows,
        bytes=row.bytes,
        restored=row.comment == RESTORED,
    )
