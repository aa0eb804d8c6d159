"""The same tables on several workers: shards, the day one is too large, a rebalance. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from history.capacity.model import YEAR, Day, Load, Server, days_ahead, need
from history.capacity.rebalance import Workers
from history.capacity.skew import Large, applications, shares
from history.entities import ENTITIES, ROOT

MOST_SHARDS = 64_000  # Citus has no more
# A shard is too large if it takes more of a worker's disk than this. The worker that gets it needs
# the space while the other one still has it, out of the reserve of 20%, of which vacuum and sealing
# need the rest. And with fewer than ten shards a worker, Citus cannot balance them to 10%.
MOST_OF_A_DISK = 0.1
# Or if it takes longer to move: the worker that gives it keeps its WAL as long, and the disk has
# place for the WAL of one day.
MOST_HOURS = 24.0
PLANNED = 3 * YEAR  # days for which the number of shards should be enough


@dataclass(frozen=True, slots=True)
class Cluster:
    """What was asked. disk: bytes of each worker, None if not known. move_rate: bytes a second.
    large: applications with very many versions within the retention."""

    workers: int
    shards: int
    move_rate: float
    disk: float | None
    large: Large


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of the cluster, with what is stored already (days before `today`)."""

    loads: Sequence[Load]
    stored: Sequence[tuple[date, float]]
    today: date
    retention_days: int
    server: Server

    @property
    def rows(self) -> float:
        """Rows of all days of retention and the current day."""
        return sum(load.rows_per_day for load in self.loads) * (self.retention_days + 1)

    @property
    def versions_per_day(self) -> float:
        """Versions of applications; without applications, of all documents."""
        roots = [load for load in self.loads if ROOT is None or load.table == ROOT.table]
        return sum(load.rows_per_day for load in roots or self.loads)

    @property
    def bytes(self) -> float:
        """Data and indexes of all days of retention and the current day."""
        needs = [need(load, self.retention_days, self.server) for load in self.loads]
        return sum(each.data + each.index for each in needs)

    def shares(self, shards: int, large: Large) -> Sequence[float]:
        return shares(shards, applications(self.versions_per_day), self.rows, large)

    def ahead(self, growth: float) -> list[Day]:
        days = self.retention_days
        return list(days_ahead(self.loads, self.stored, self.today, days, self.server, growth))


@dataclass(frozen=True, slots=True)
class Outlook:
    """At one rate of growth; days are None if not within ten years. shards: how many are enough for
    three years; workers: how many are then needed (None: no disk given, or more than shards)."""

    too_large_on: date | None
    full_on: date | None
    shards: int | None
    workers: int | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """What adding one worker moves. before, after: bytes on each worker."""

    moves: int
    bytes: float
    hours: float
    before: Sequence[float]
    after: Sequence[float]


@dataclass(frozen=True, slots=True)
class Plan:
    """With full retention at the present rate.

    sizes: bytes of each shard, with all its tables and days. limit: from which size a shard is too
    large, by_disk: because of the disk. one_large: bytes of one application with very many
    versions. most_tables: tables of days on one worker.
    """

    sizes: Sequence[float]
    limit: float
    by_disk: bool
    one_large: float
    most_tables: int
    outlooks: Mapping[float, Outlook]
    rebalance: Rebalance


def plan(cluster: Cluster, demand: Demand, growths: Sequence[float]) -> Plan:
    """What the cluster looks like with the demand. growths: per year."""
    mine = demand.shares(cluster.shards, cluster.large)
    sizes = [demand.bytes * share for share in mine]
    limit, by_disk = _limit(cluster)
    days = len(ENTITIES) * (demand.retention_days + 1)
    return Plan(
        sizes=sizes,
        limit=limit,
        by_disk=by_disk,
        one_large=demand.bytes / demand.rows * cluster.large.versions if demand.rows else 0.0,
        most_tables=days * math.ceil(cluster.shards / cluster.workers),
        outlooks={growth: _outlook(cluster, demand, mine, limit, growth) for growth in growths},
        rebalance=_add_worker(sizes, cluster),
    )


def _limit(cluster: Cluster) -> tuple[float, bool]:
    """The size from which a shard is too large, and whether the disk is the reason."""
    by_time = cluster.move_rate * MOST_HOURS * 3600
    by_disk = math.inf if cluster.disk is None else cluster.disk * MOST_OF_A_DISK
    return min(by_time, by_disk), by_disk <= by_time


def _outlook(
    cluster: Cluster, demand: Demand, mine: Sequence[float], limit: float, growth: float
) -> Outlook:
    largest, fullest = max(mine), max(Workers(mine, cluster.workers).held())
    ahead = demand.ahead(growth)
    planned = [each for each in ahead if each.day <= demand.today + timedelta(days=PLANNED)]
    held, total = max(each.held for each in planned), max(each.total for each in planned)
    enough = _shards(cluster, demand, held, limit)
    disk = cluster.disk
    return Outlook(
        next((each.day for each in ahead if each.held * largest > limit), None),
        next((each.day for each in ahead if disk and each.total * fullest > disk), None),
        enough,
        _workers(disk, total, demand.shares(enough, cluster.large)) if enough and disk else None,
    )


def _shards(cluster: Cluster, demand: Demand, held: float, limit: float) -> int | None:
    """The smallest power of two of shards of which none is too large, and at least two for each
    worker; None if there is none."""
    shards = 32
    while shards <= MOST_SHARDS:
        enough = shards >= 2 * cluster.workers
        if enough and max(demand.shares(shards, cluster.large)) * held <= limit:
            return shards
        shards *= 2
    return None


def _workers(disk: float, total: float, mine: Sequence[float]) -> int | None:
    """How many workers of that disk hold `total` bytes; None if more than there are shards."""
    for count in range(max(1, math.ceil(total / disk)), len(mine) + 1):
        if max(Workers(mine, count).held()) * total <= disk:
            return count
    return None


def _add_worker(sizes: Sequence[float], cluster: Cluster) -> Rebalance:
    workers = Workers(sizes, cluster.workers)
    before = workers.held()
    workers.add()
    moves = workers.rebalance()
    moved = sum(sizes[move.shard] for move in moves)
    return Rebalance(len(moves), moved, moved / cluster.move_rate / 3600, before, workers.held())
