"""Computes disk space from loads. Pure; the constants are measured (docs/capacity.md)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

from history.entities import CHILDREN, ENTITIES, ROOT, Entity

SECONDS_PER_DAY = 86_400
YEAR = 365.25
PAGE = 8192

# Bytes on disk for each byte of the simulator's messages, with TOAST and pglz (1.02 measured, times
# 2,119 / 1,856: decision 31), and bytes of index for each row, with random keys.
DATA_PER_MESSAGE_BYTE = 1.17
INDEX_PER_ROW = {True: 80.0, False: 155.0}  # the root kind has one index, the others two
# Bytes that the first change of a page after a checkpoint writes to the WAL, without the hole.
PAGE_IMAGE = 4096
PAGE_IMAGE_COMPRESSED = 2300
ROW_WAL_OVERHEAD = 120
# Share added for vacuum, for the sort of a day that is sealed or archived, for time to react.
RESERVE = 0.2
# Share of messages of the root kind, and their size relative to the mean of all messages.
ROOT_SHARE = 0.8
ROOT_SIZE = 1.14
HORIZON_DAYS = 3653


@dataclass(frozen=True, slots=True)
class Load:
    """What one table receives in a day. data, index: bytes on disk for each row."""

    table: str
    rows_per_day: float
    data: float
    index: float


@dataclass(frozen=True, slots=True)
class Server:
    """The server settings that matter. checkpoint_s: checkpoint_timeout in seconds; compressed:
    whether wal_compression is on."""

    checkpoint_s: float = 300.0
    compressed: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes on disk. wal: the WAL of one day, kept while the WAL archive or a standby is away."""

    data: float
    index: float
    wal: float

    @property
    def reserve(self) -> float:
        return RESERVE * (self.data + self.index + self.wal)

    @property
    def total(self) -> float:
        return (1 + RESERVE) * (self.data + self.index + self.wal)

    def __add__(self, other: Need) -> Need:
        return Need(self.data + other.data, self.index + other.index, self.wal + other.wal)


def from_rate(rps: float, average_bytes: float) -> list[Load]:
    """The loads for a rate in messages per second and a mean message size in bytes, with the
    simulator's mix: four of five messages are of the main kind and larger than the others. Without
    children, all kinds are alike."""
    usual = ROOT is not None and CHILDREN
    root_share, root_size = (ROOT_SHARE, ROOT_SIZE) if usual else (1 / len(ENTITIES), 1.0)
    share = (1 - root_share) / max(1, len(ENTITIES) - 1)
    child_size = (1 - root_share * root_size) / (1 - root_share) if usual else 1.0

    def load(entity: Entity) -> Load:
        rows = rps * SECONDS_PER_DAY * (root_share if entity.root else share)
        bytes_ = average_bytes * (root_size if entity.root else child_size)
        index = INDEX_PER_ROW[entity.parent is None]
        return Load(entity.table, rows, bytes_ * DATA_PER_MESSAGE_BYTE, index)

    return [load(entity) for entity in ENTITIES]


def wal_per_row(load: Load, server: Server) -> float:
    """Bytes of WAL for each row: the row, its index entries, and its share of the page images."""
    rows = load.rows_per_day * server.checkpoint_s / SECONDS_PER_DAY
    pages = load.rows_per_day / 2 * load.index / PAGE  # the day's indexes are half full on average
    image = PAGE_IMAGE_COMPRESSED if server.compressed else PAGE_IMAGE
    touched = pages * -math.expm1(-rows / pages) if pages else 0.0
    images = touched * image / rows if rows else 0.0
    return load.data + load.index + ROW_WAL_OVERHEAD + images


def need(load: Load, retention_days: int, server: Server) -> Need:
    """The disk space of a table with all days of retention and the current day."""
    rows = load.rows_per_day * (retention_days + 1)
    wal = load.rows_per_day * wal_per_row(load, server)
    return Need(rows * load.data, rows * load.index, wal)


def grown(load: Load, growth: float, days: float) -> Load:
    """The load after `days` days. growth: per year; 0.25 means 25% more."""
    return replace(load, rows_per_day=load.rows_per_day * (1 + growth) ** (days / YEAR))


def full_on(
    loads: Sequence[Load],
    stored: Sequence[tuple[date, float]],
    today: date,
    retention_days: int,
    disk: float,
    server: Server,
    growth: float = 0.0,
) -> date | None:
    """The first day on which stored days, WAL and reserve exceed `disk` bytes; None: not within ten
    years. stored: the days before today with their bytes; from today on each day adds its load."""
    kept = deque(sorted((day, size) for day, size in stored if day < today))
    held = sum(size for _, size in kept)
    for number in range(HORIZON_DAYS):
        day = today + timedelta(days=number)
        now = [grown(load, growth, number) for load in loads]
        brought = sum(load.rows_per_day * (load.data + load.index) for load in now)
        kept.append((day, brought))
        held += brought
        while kept[0][0] < day - timedelta(days=retention_days):
            held -= kept.popleft()[1]
        wal = sum(load.rows_per_day * wal_per_row(load, server) for load in now)
        if (1 + RESERVE) * (held + wal) > disk:
            return day
    return None
