"""What partitions exist, read from PostgreSQL's catalog in one query."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from django.db.backends.base.base import BaseDatabaseWrapper

from history.daily.days import MARK, RESTORED, DayState, partition_name
from history.distribution.disk_use import held

# Bounds are printed and read in one session's time zone. A marked table with a day's name and no
# parent was detached, and not dropped yet. A bound has no columns, so pg_get_expr needs no table:
# for one that was replaced since the snapshot it would say nothing.
QUERY = """
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
SELECT child.parent, c.relname, child.pending, obj_description(c.oid, 'pg_class'),
       bound[1]::timestamptz, bound[2]::timestamptz,
       (CASE WHEN c.reltuples < 0 THEN pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END)::bigint,
       coalesce(pg_total_relation_size(c.oid), 0)
FROM child JOIN pg_class c ON c.oid = child.oid
CROSS JOIN LATERAL (SELECT regexp_match(
    pg_get_expr(c.relpartbound, 0), $$^FOR VALUES FROM \\('([^']+)'\\) TO \\('([^']+)'\\)$$
)) AS range(bound)
ORDER BY child.parent, c.relname
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as it is now. start, end: UTC, the second excluded; None for a default and for
    a detached one. rows: an estimate. bytes: on disk, with indexes and TOAST."""

    table: str
    name: str
    start: datetime | None
    end: datetime | None
    state: DayState
    marked: bool
    rows: int
    bytes: int
    restored: bool = False  # brought back from the archive

    @property
    def day(self) -> date | None:
        """The UTC day of the partition; None if its name, bounds or comment are not those of a day
        that Annals created: such a partition is never changed."""
        try:
            day = date.fromisoformat(self.name.removeprefix(f"{self.table}_"))
        except ValueError:
            return None
        whole = midnight(day), midnight(day) + timedelta(days=1)
        bound = self.start is None or (self.start, self.end) == whole
        attached = self.state is not DayState.DETACHED
        named = self.name == partition_name(self.table, day)
        if named and self.marked and bound and attached == (self.start is not None):
            return day
        return None

    def covers(self, day: date) -> bool:
        """Whether the bounds include a part of that day, so that it cannot have a partition."""
        if self.start is None or self.end is None:
            return False
        return self.start < midnight(day) + timedelta(days=1) and midnight(day) < self.end


def midnight(day: date) -> datetime:
    """The first moment of a UTC day."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def read(connection: BaseDatabaseWrapper, tables: Iterable[str]) -> list[Partition]:
    """The partitions of the tables, ordered by table and name; a missing table has none."""
    with connection.cursor() as cursor:
        cursor.execute(QUERY, {"tables": list(tables)})
        found = [_partition(row) for row in cursor.fetchall()]
    if not found:
        return found
    # A node that is away takes nothing from what there is; its share is missing in the sizes.
    there = held(connection.connection, [part.name for part in found], whole=False)
    return [
        replace(part, rows=its.rows, bytes=its.bytes) if (its := there.get(part.name)) else part
        for part in found
    ]


def missing_tables(connection: BaseDatabaseWrapper, tables: Sequence[str]) -> list[str]:
    """Those of the tables that do not exist: migrate was not run."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL",
            [list(tables)],
        )
        return [name for (name,) in cursor.fetchall()]


def _partition(row: tuple[str, str, bool | None, str, datetime, datetime, int, int]) -> Partition:
    table, name, pending, comment, start, end, rows, size = row
    state = {None: DayState.DETACHED, True: DayState.PENDING, False: DayState.ATTACHED}[pending]
    return Partition(
        table,
        name,
        start.astimezone(UTC) if start else None,
        end.astimezone(UTC) if end else None,
        state,
        comment == MARK,
        rows,
        size,
        comment == RESTORED,
    )
