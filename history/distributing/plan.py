"""What is left to do until an installation is distributed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, LiteralString

from history.days import Connection, State
from history.distribution import COPIED, DISTRIBUTED_BY
from history.entities import ENTITIES
from history.partitions.catalog import Partition

_KNOWN: Final[LiteralString] = """
SELECT relname, repmodel = 't' FROM pg_dist_partition JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relnamespace = 'public'::regnamespace
"""
_EXISTING: Final[LiteralString] = """
SELECT name FROM unnest(%s::text[]) name WHERE to_regclass(name) IS NOT NULL ORDER BY name
"""
_SHARDS: Final[LiteralString] = """
SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = to_regclass(%s)
"""


@dataclass(frozen=True, slots=True)
class DayLeft:
    """A day whose rows are on the coordinator only. rows: an estimate; bytes: on disk."""

    table: str
    name: str
    day: date
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """parents: tables of versions to be distributed. lookups: other tables to be distributed.
    locals: tables that become reachable from each node, or are copied to it. days: newest
    first, as they are worked on. shards: of a table; 0: none is distributed yet."""

    parents: Sequence[str]
    lookups: Sequence[str]
    locals: Sequence[str]
    days: Sequence[DayLeft]
    shards: int

    @property
    def done(self) -> bool:
        return not (self.parents or self.lookups or self.locals or self.days)


def plan(connection: Connection, partitions: Sequence[Partition], local: Collection[str]) -> Plan:
    """local: the tables that each node must reach. Only reads."""
    known: dict[str, bool] = dict(connection.execute(_KNOWN).fetchall())
    there = known.keys() - {name for name in COPIED if not known.get(name)}
    tables = [entity.table for entity in ENTITIES]
    parents = [table for table in tables if table not in there]
    lookups = [table for table in DISTRIBUTED_BY if table not in {*there, *tables}]
    row = connection.execute(_SHARDS, [next(iter(set(tables) & there), None)]).fetchone()
    left = [
        DayLeft(part.table, part.name, found, part.rows, part.bytes)
        for part in partitions
        if part.name not in there and (found := day_of(part)) is not None
        if part.state is State.DETACHED or part.table in parents
    ]
    left.sort(key=lambda each: (-each.day.toordinal(), each.table))
    return Plan(parents, lookups, sorted({*local, *COPIED} - there), left, row[0] if row else 0)


def left_out(connection: Connection, local: Collection[str]) -> list[str]:
    """The tables that are not distributed, or that the nodes do not reach: of kinds and migrations
    that came after `annals distribute`. Of those that exist. local: as of plan."""
    wanted = {*local, *DISTRIBUTED_BY}
    there = {name for name, _ in connection.execute(_KNOWN)}
    found = connection.execute(_EXISTING, [sorted(wanted - there)])
    return [name for (name,) in found]


def day_of(part: Partition) -> date | None:
    """The UTC day of a partition of ours, restored ones among them."""
    if not part.restored:
        return part.day
    return datetime.strptime(part.name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()
