"""Computes the disk space for all days from the load of one day, measured or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from django.db.backends.base.base import BaseDatabaseWrapper

from history.kinds.entities import (
    CHILDREN,
    ENTITIES,
    ROOT,
    EntityKind,
)
from history.models import SealedDay
from history.retention.catalog import Partition
from history.store.distribution.disk_use import measure_disk_use

SECONDS_PER_DAY: Final = 86_400
SAMPLE_DAYS: Final = 7
# Bytes on disk for each byte of the simulator's messages, with TOAST. 1.02 were measured with pglz.
# Since decision 31 rows are compressed less, so this is multiplied by 2,119 / 1,856.
DATA_PER_MESSAGE_BYTE: Final = 1.17
# Bytes of indexes for each row, with random keys. The tables of children have a second index.
INDEX_PER_ROW: Final = 80.0
INDEX_PER_CHILD_ROW: Final = 155.0
# The size of a packed day as a share of its plain size. `python -m benchmarks pack` prints it for a
# simulated day of all kinds.
PACKED_SHARE: Final = 0.079
# How many days are plain besides the days that wait for packing: today, and a day being packed.
PLAIN_DAYS: Final = 2
# This share is added for vacuum, for sorting a day that is sealed or archived, and so that people
# have time to react.
RESERVE: Final = 0.2
# The root kind's share of all messages, and the size of its messages relative to the mean size.
ROOT_SHARE: Final = 0.8
ROOT_SIZE: Final = 1.14

_SIZES: Final = """
SELECT coalesce(sum(pg_table_size(name::regclass)), 0)::bigint,
    coalesce(sum(pg_indexes_size(name::regclass)), 0)::bigint
FROM unnest(%s::text[]) AS name
"""


@dataclass(frozen=True, slots=True)
class DiskNeed:
    """How many bytes on disk something needs, without WAL."""

    data: float = 0.0
    index: float = 0.0

    @property
    def reserve(self) -> float:
        return RESERVE * (self.data + self.index)

    @property
    def total(self) -> float:
        return self.data + self.index + self.reserve

    def __add__(self, addend: DiskNeed) -> DiskNeed:
        return DiskNeed(self.data + addend.data, self.index + addend.index)


@dataclass(frozen=True, slots=True)
class TableLoad:
    """How many rows one table receives in a day, and how large they are."""

    table: str
    rows_per_day: float
    data: float  # bytes of the table on disk for each row
    index: float  # bytes of the indexes on disk for each row

    def compute_need(self, retention_days: int, pack_after_days: int) -> DiskNeed:
        """Compute the space for all days of retention and the current day.

        Args:
            pack_after_days: How many days after its end a day is packed; 0: never.
        """
        days: float = retention_days + 1
        if pack_after_days:
            plain = min(days, pack_after_days + PLAIN_DAYS)
            days = plain + (days - plain) * PACKED_SHARE
        rows = self.rows_per_day * days
        return DiskNeed(rows * self.data, rows * self.index)


@dataclass(frozen=True, slots=True)
class MeasuredLoads:
    """The load of each table, averaged over the days from `since` to `until`, both included."""

    loads: list[TableLoad]
    since: date
    until: date


def from_rate(rps: float, average_bytes: float) -> list[TableLoad]:
    """Return the loads for a rate in messages per second and a mean message size in bytes.

    The kinds have the same shares as in the simulator: four of five messages are of the main kind,
    and these messages are larger than the others. If no kind has a parent, all kinds get the same
    load.
    """
    has_root_and_children = ROOT is not None and CHILDREN
    root_share, root_size = (
        (ROOT_SHARE, ROOT_SIZE) if has_root_and_children else (1 / len(ENTITIES), 1.0)
    )
    share = (1 - root_share) / max(1, len(ENTITIES) - 1)
    child_size = (1 - root_share * root_size) / (1 - root_share) if has_root_and_children else 1.0

    def load(entity: EntityKind) -> TableLoad:
        rows = rps * SECONDS_PER_DAY * (root_share if entity.root else share)
        bytes_ = average_bytes * (root_size if entity.root else child_size)
        index = INDEX_PER_ROW if entity.parent is None else INDEX_PER_CHILD_ROW
        return TableLoad(entity.table, rows, bytes_ * DATA_PER_MESSAGE_BYTE, index)

    return [load(entity) for entity in ENTITIES]


def measure_loads(
    connection: BaseDatabaseWrapper, partitions: Sequence[Partition], today: date
) -> MeasuredLoads | None:
    """Measure how many rows each table gets in a day, and how many bytes a row takes.

    The numbers are averages over the last SAMPLE_DAYS finished days that have plain rows.

    Returns:
        None if no finished day has plain rows.
    """
    packed = set(SealedDay.objects.filter(packed_at__isnull=False).values_list("table", "day"))
    complete = [
        partition
        for partition in partitions
        if partition.day
        and partition.day < today
        and partition.rows
        and (partition.table, partition.day) not in packed
    ]
    days = sorted({partition.day for partition in complete if partition.day})[-SAMPLE_DAYS:]
    if not days:
        return None
    span = (days[-1] - days[0]).days + 1
    loads = []
    for entity in ENTITIES:
        table_partitions = [
            partition
            for partition in complete
            if partition.table == entity.table and partition.day in days
        ]
        rows = sum(partition.rows for partition in table_partitions)
        data, index = _measure_sizes(connection, [partition.name for partition in table_partitions])
        if rows:
            loads.append(TableLoad(entity.table, rows / span, data / rows, index / rows))
    return MeasuredLoads(loads, days[0], days[-1])


def _measure_sizes(connection: BaseDatabaseWrapper, names: Sequence[str]) -> tuple[int, int]:
    """Return the bytes of the tables and of their indexes."""
    if disk_uses := measure_disk_use(connection.connection, names).values():
        return sum(disk_use.table for disk_use in disk_uses), sum(
            disk_use.indexes for disk_use in disk_uses
        )
    with connection.cursor() as cursor:
        cursor.execute(_SIZES, [list(names)])
        return cursor.fetchone() or (0, 0)
