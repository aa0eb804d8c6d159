"""What would be created, dropped and kept, and why: psqlextra's plan, for days."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import cast

import psycopg
from django.conf import settings
from django.db import connection
from psqlextra.partitioning import (
    PostgresModelPartitioningPlan,
    PostgresPartitioningConfig,
    PostgresPartitioningError,
)

from history.retention import catalog
from history.retention.catalog import Partition, compute_midnight
from history.retention.run_lock import reconnect
from history.retention.strategy import (
    VERSION_TABLES,
    Archiver,
    CheckDay,
    DayPartition,
    DayStrategy,
    PartitionedTable,
)
from history.store.days.days import DayState
from history.store.days.window import Window

# Given days that are about to be dropped, each a table and a day: those that must stay, and why.
FindHeldDays = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]
# Days are created this many days further ahead than versions are accepted: just after midnight, and
# a week without maintain, the newest accepted day has its partition.
SPARE_DAYS = 7

# what was done ("created" or "dropped"), the day, what went wrong
ReportStep = Callable[[str, DayPartition, Exception | None], None]


@dataclass(frozen=True, slots=True)
class PartitionPolicy:
    """What should be: the days of a window. today: the current UTC day. holds: asked about each day
    before it is dropped. hold_days: for how many days beyond the window a day can be held."""

    window: Window
    today: date
    holds: FindHeldDays | None = None
    hold_days: int = 0

    @classmethod
    def at(cls, now: datetime, holds: FindHeldDays | None = None) -> PartitionPolicy:
        """The policy of the settings at a moment, which has an offset."""
        annals_settings = settings.ANNALS
        window = Window.at(
            now, annals_settings.retention_days, annals_settings.ahead_days + SPARE_DAYS
        )
        return cls(window, now.astimezone(UTC).date(), holds, annals_settings.hold_days)


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One partition in a plan, with the bounds that it has or will have. action: create, drop or
    keep."""

    action: str
    part: Partition
    reason: str


@dataclass
class DayPlan(PostgresModelPartitioningPlan):
    """The plan of one table. creations: most urgent first. deletions: oldest first."""

    creations: list[DayPartition] = field(default_factory=list)  # type: ignore[assignment]
    deletions: list[DayPartition] = field(default_factory=list)  # type: ignore[assignment]
    kept_partitions: list[tuple[Partition, str]] = field(default_factory=list)
    of_versions: bool = True

    @property
    def strategy(self) -> DayStrategy:
        return cast(DayStrategy, self.config.strategy)

    def list_held(self) -> list[Partition]:
        """Return the partitions that would be dropped if they were not held."""
        return [part for part in self.strategy.existing if part.day in self.strategy.holds]

    def list_lines(self) -> Iterator[PlanLine]:
        """Yield a line for each partition that is dropped, kept or created, each group by name."""
        for part in self.deletions:
            yield _build_line("drop", part)
        for partition, reason in self.kept_partitions:
            yield PlanLine("keep", partition, reason)
        for part in sorted(self.creations, key=lambda part: part.day):
            yield _build_line("create", part)

    def apply(  # type: ignore[override]
        self, report: ReportStep, archiver: Archiver | None = None, check: CheckDay | None = None
    ) -> None:
        """Create and drop days one by one, and report each. A day that fails stops no other, but an
        open transaction delays later drops of the table too. check: asked about each day before it
        is dropped; archiver: archives days of versions. The caller holds the lock of the runs; if
        it cannot be taken again after a lost connection, no other day is tried."""
        connection.ensure_connection()
        editor = connection.schema_editor(atomic=False)
        steps: list[tuple[str, DayPartition, Callable[..., None]]] = [
            ("created", part, part.create) for part in self.creations
        ]
        steps += [("dropped", part, part.delete) for part in self.deletions]
        for action, part, act in steps:
            part.archiver, part.check = archiver if self.of_versions else None, check
            error = None
            try:
                act(self.config.model, editor)
            except Exception as failed:
                error = failed
            report(action, part, error)
            if connection.connection is None or connection.connection.closed:
                reconnect()
            if action == "dropped" and isinstance(error, psycopg.errors.LockNotAvailable):
                break


def build_plans(
    policy: PartitionPolicy, tables: Sequence[PartitionedTable] = VERSION_TABLES
) -> list[DayPlan]:
    """Build the plan of each table. Raises PostgresPartitioningError if a table is missing."""
    names = [table.name for table in tables]
    if missing := catalog.find_missing_tables(connection, names):
        raise PostgresPartitioningError(f"no table {', '.join(missing)}: run annals migrate")
    partitions = catalog.read_partitions(connection, names)
    holds = _find_held_days(
        policy, partitions, {table.name for table in tables if table.of_versions}
    )
    existing = {table: list(group) for table, group in groupby(partitions, lambda part: part.table)}
    plans = []
    for table in tables:
        held_days = {day: reason for (name, day), reason in holds.items() if name == table.name}
        strategy = DayStrategy(
            table.name,
            table.compute_window(policy.window, policy.today),
            policy.today,
            existing.get(table.name, []),
            held_days,
            past=table.of_versions,
        )
        plans.append(
            DayPlan(
                PostgresPartitioningConfig(table.model, strategy),
                list(strategy.to_create()),
                list(strategy.to_delete()),
                list(strategy.to_keep()),
                table.of_versions,
            )
        )
    return plans


def _find_held_days(
    policy: PartitionPolicy, partitions: Sequence[Partition], tables: Collection[str]
) -> Mapping[tuple[str, date], str]:
    """Find the held days of these tables, up to `hold_days` before the window."""
    oldest = policy.window.oldest
    limit = oldest - timedelta(days=policy.hold_days)
    overdue = {
        (part.table, part.day)
        for part in partitions
        if part.table in tables and part.day and limit <= part.day < oldest
    }
    return policy.holds(overdue) if policy.holds and overdue else {}


def _build_line(action: str, part: DayPartition) -> PlanLine:
    new = Partition(part.table, part.full_name, None, None, DayState.DETACHED, True, 0, 0)
    start = compute_midnight(part.day)
    partition = replace(part.existing or new, start=start, end=start + timedelta(days=1))
    return PlanLine(action, partition, part.reason)
