"""Plans which days are created, dropped and kept, by subclasses of psqlextra's classes.

psqlextra's own plan locks the whole table, and stops deleting at the first day that has no
partition. Plans of this module do not lock the whole table, and go on after such a day.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import NamedTuple, Protocol, cast

import psycopg
from django.conf import settings
from django.db import connection
from psqlextra.backend.schema import PostgresSchemaEditor
from psqlextra.models import PostgresPartitionedModel
from psqlextra.partitioning import (
    PostgresModelPartitioningPlan,
    PostgresPartition,
    PostgresPartitioningConfig,
    PostgresPartitioningError,
    PostgresPartitioningStrategy,
)

from history.kinds.entities import ENTITIES
from history.kinds.kind import DayRows
from history.models import VERSION_MODELS
from history.retention import catalog
from history.retention.catalog import Partition, compute_midnight
from history.retention.run_lock import retake_lost_lock
from history.store.days import days
from history.store.days.days import DayState
from history.store.days.window import Window

# Called with the table and day of each day that is about to be dropped. Returns the days that must
# stay, with the reason.
FindHeldDays = Callable[[Collection[tuple[str, date]]], Mapping[tuple[str, date], str]]
# Called with a table and a day before the day is archived and dropped. Raises if the day must stay.
CheckDay = Callable[[days.Connection, str, date], None]
# Days are created this many days further ahead than versions are accepted. So the newest accepted
# day has a partition just after midnight, also if `maintain` has not run for a week.
SPARE_DAYS = 7


@dataclass(frozen=True, slots=True)
class PartitionPolicy:
    """The rules that say which days should have a partition."""

    window: Window
    today: date  # the current UTC day
    find_held_days: FindHeldDays | None = None  # called with the days that are about to be dropped
    hold_days: int = 0  # how many days before the window a day can still be held

    @classmethod
    def at(cls, now: datetime, find_held_days: FindHeldDays | None = None) -> PartitionPolicy:
        """Return the policy that the settings give at the moment `now`.

        Args:
            now: A moment with a time zone.
            find_held_days: Finds the days that must not be dropped. None: no day is held.
        """
        annals_settings = settings.ANNALS
        window = Window.at(
            now, annals_settings.retention_days, annals_settings.ahead_days + SPARE_DAYS
        )
        return cls(window, now.astimezone(UTC).date(), find_held_days, annals_settings.hold_days)


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """A table with a partition for each UTC day."""

    model: type[PostgresPartitionedModel]
    rows: DayRows  # the table's name, and what seals must know about its rows
    # None: the table has versions and keeps the days of the policy's window. A number: the table
    # has other rows, such as the access journal. Its past days are not created, and it is not
    # archived.
    retention_days: int | None = None

    @property
    def name(self) -> str:
        return self.rows.table

    @property
    def has_versions(self) -> bool:
        return self.retention_days is None

    def compute_window(self, versions: Window, today: date) -> Window:
        """Return the days for which this table has partitions.

        The window ends with the last day of `versions`. It begins `retention_days` before `today`,
        or with the first day of `versions` if `retention_days` is None.

        Args:
            versions: The window of the tables that store versions.
        """
        if self.retention_days is None:
            return versions
        return Window(today - timedelta(days=self.retention_days), versions.newest)


VERSION_TABLES = tuple(PartitionedTable(VERSION_MODELS[entity.name], entity) for entity in ENTITIES)


class Archiver(Protocol):
    """Archives a day before it is dropped. If a method raises, the day is not dropped."""

    def archive(self, connection: days.Connection, table: str, day: date) -> None:
        """Archive the rows of a day. Other sessions can read and write the table meanwhile."""

    def archive_rest(self, connection: days.Connection, table: str, day: date) -> None:
        """Archive the rows that the day got after the call of `archive`.

        Call this method while all writers are locked out.
        """


class DayPartition(PostgresPartition):
    """One UTC day of one table, to be created or dropped, and why.

    Attributes:
        existing: The day's table as the catalogue has it now; None if the day does not have one.
    """

    def __init__(
        self, table: str, day: date, reason: str, existing: Partition | None = None
    ) -> None:
        self.table = table
        self.day = day
        self.reason = reason
        self.existing = existing

    def name(self) -> str:
        return f"{self.day:%Y%m%d}"

    @property
    def full_name(self) -> str:
        return days.build_partition_name(self.table, self.day)

    def create(
        self,
        model: type[PostgresPartitionedModel],
        schema_editor: PostgresSchemaEditor,
        comment: str | None = None,  # noqa: ARG002 - psqlextra passes it; days sets its own comment
    ) -> None:
        days.create_partition(schema_editor.connection.connection, model._meta.db_table, self.day)

    def delete(
        self,
        model: type[PostgresPartitionedModel],
        schema_editor: PostgresSchemaEditor,
        *,
        check: CheckDay | None = None,
        archiver: Archiver | None = None,
        report_wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Check the day, archive it, and drop it.

        Args:
            check: Raises if the day must stay.
            archiver: Archives the day; None: it is dropped without an archive.
            report_wait: Called with the seconds that the detach waited for locks.
        """
        pg_connection, table = schema_editor.connection.connection, model._meta.db_table
        if check is not None:
            check(pg_connection, table, self.day)
        if archiver is not None:
            archiver.archive(pg_connection, table, self.day)

        def confirm(_: days.DayTable) -> None:
            if archiver is not None:
                archiver.archive_rest(pg_connection, table, self.day)

        days.drop_partition(
            pg_connection, table, self.day, confirm=confirm, report_wait=report_wait
        )


@dataclass(frozen=True)
class DayStrategy(PostgresPartitioningStrategy):
    """Chooses which days of a table to create, to drop and to keep.

    Missing days of the window are created. Days before the window are dropped unless they are held.
    """

    table: str
    window: Window
    today: date  # the current UTC day
    existing: Sequence[Partition]  # of this table
    held_days: Mapping[date, str] = field(
        default_factory=dict
    )  # days that must stay, with the reason
    past: bool = True  # whether days before today are created too

    def to_create(self) -> Generator[DayPartition, None, None]:
        """Yield the missing days, the most urgent first."""
        today = self.today
        window_days = list(self.window.iterate_days())
        split = window_days.index(today)
        detached = {
            partition.day: partition
            for partition in self.existing
            if partition.state is not DayState.ATTACHED
        }
        attached = [
            partition for partition in self.existing if partition.state is DayState.ATTACHED
        ]
        attached_days = {partition.day for partition in attached}
        foreign_partitions = [partition for partition in attached if partition.day is None]
        for day in [*window_days[split:], *reversed(window_days[:split])]:
            if day in attached_days or any(
                partition.covers_part_of(day) for partition in foreign_partitions
            ):
                continue
            if day < today and not self.past and day not in detached:
                continue
            if day in detached:
                reason = "inside the window again; attached with its rows"
            elif day >= today:
                reason = "today" if day == today else "ahead"
            else:
                reason = "missing"
            yield DayPartition(self.table, day, reason, detached.get(day))
        for held_day in self.held_days:
            if held_day in detached:
                # The messages for which the day is held can be stored only if it is attached.
                yield DayPartition(self.table, held_day, "held; attached again", detached[held_day])

    def to_delete(self) -> Generator[DayPartition, None, None]:
        """Yield the partitions to drop, oldest first.

        A partition is dropped if it is before the window, if Annals made it, and if it is not held.
        """
        for partition in self.existing:
            if (
                partition.day
                and partition.day < self.window.oldest
                and partition.day not in self.held_days
            ):
                reason = f"before {self.window.oldest}, the oldest day kept"
                if partition.state is DayState.PENDING:
                    reason += "; its detach was interrupted"
                elif partition.state is DayState.DETACHED:
                    reason += "; detached already"
                yield DayPartition(self.table, partition.day, reason, partition)

    def to_keep(self) -> Iterator[tuple[Partition, str]]:
        """Yield the partitions that stay, each with the reason, in the order of their names."""
        for partition in self.existing:
            if partition.day is None:
                yield partition, _explain_foreign(partition)
            elif partition.day < self.window.oldest:
                if partition.day in self.held_days and partition.state is DayState.ATTACHED:
                    yield partition, f"held: {self.held_days[partition.day]}"
            elif partition.day > self.window.newest:
                yield partition, f"after {self.window.newest}, the newest day made ahead"
            elif partition.state is DayState.ATTACHED:
                yield partition, "inside the window"


def _explain_foreign(partition: Partition) -> str:
    if partition.restored:
        return "restored from the archive; `partitions release` lets maintain drop it"
    if not partition.marked:
        return "not made by Annals, never dropped"
    return "marked, but not a whole UTC day by name and bounds; never dropped"


class PlanLine(NamedTuple):
    """What `partitions maintain` would do with one partition, and why."""

    action: str  # create, drop or keep
    partition: Partition  # with the bounds that the partition has or will have
    reason: str


class DayChange(NamedTuple):
    """The result of creating or dropping the partition of one day."""

    action: str  # created or dropped
    partition: DayPartition
    error: Exception | None  # why the day was not created or dropped; None if it was
    waited: float = 0.0  # how many seconds the detach waited for locks


@dataclass
class DayPlan(PostgresModelPartitioningPlan):
    """The plan of one table: which days are created, dropped and kept."""

    creations: list[DayPartition] = field(default_factory=list)  # type: ignore[assignment]  # most urgent first
    deletions: list[DayPartition] = field(default_factory=list)  # type: ignore[assignment]  # oldest first
    kept_partitions: list[tuple[Partition, str]] = field(default_factory=list)
    has_versions: bool = True

    @property
    def strategy(self) -> DayStrategy:
        return cast(DayStrategy, self.config.strategy)

    def list_held(self) -> list[Partition]:
        """Return the partitions that are older than retention and stay because they are held."""
        return [
            partition
            for partition in self.strategy.existing
            if partition.day in self.strategy.held_days
        ]

    def list_lines(self) -> Iterator[PlanLine]:
        """Yield a line for each partition: first the dropped, then the kept, then the created ones.

        Within each of the three groups the lines are in the order of the names.
        """
        for day_partition in self.deletions:
            yield _build_line("drop", day_partition)
        for partition, reason in self.kept_partitions:
            yield PlanLine("keep", partition, reason)
        for day_partition in sorted(self.creations, key=attrgetter("day")):
            yield _build_line("create", day_partition)

    def apply(  # type: ignore[override]
        self, check: CheckDay | None = None, archiver: Archiver | None = None
    ) -> Iterator[DayChange]:
        """Create and drop the days one by one, and yield the outcome of each.

        If a day fails, the next days are tried, with one exception: if a drop waited in vain for an
        open transaction, no further day of this table is dropped, because the transaction would
        delay these drops, too. Needs the run lock.

        Args:
            check: Called before a day is dropped. Raises if the day must stay.
            archiver: Archives a day of versions before it is dropped.

        Raises:
            NoRunLockError, DatabaseError: The connection was lost, and the run lock cannot be taken
                again. No other day is tried.
        """
        connection.ensure_connection()
        model = self.config.model
        editor = cast(PostgresSchemaEditor, connection.schema_editor(atomic=False))
        for partition in self.creations:
            error = _catch_error(partial(partition.create, model, editor))
            yield DayChange("created", partition, error)
            retake_lost_lock()
        for partition in self.deletions:
            waits = [0.0]  # seconds; `delete` appends how long it waited, if it did
            error = _catch_error(
                partial(
                    partition.delete,
                    model,
                    editor,
                    check=check,
                    archiver=archiver if self.has_versions else None,
                    report_wait=waits.append,
                )
            )
            yield DayChange("dropped", partition, error, waits[-1])
            retake_lost_lock()
            if isinstance(error, psycopg.errors.LockNotAvailable):
                return


def build_plans(
    policy: PartitionPolicy,
    tables: Sequence[PartitionedTable] = VERSION_TABLES,
    partitions: Sequence[Partition] | None = None,
) -> list[DayPlan]:
    """Build a plan for each table: which days to create, drop and keep.

    Args:
        partitions: The partitions of these tables; None: they are read from the catalogue.

    Raises:
        PostgresPartitioningError: A table is missing.
    """
    names = [table.name for table in tables]
    if missing := catalog.find_missing_tables(connection, names):
        raise PostgresPartitioningError(f"no table {', '.join(missing)}: run annals migrate")
    if partitions is None:
        partitions = catalog.read_partitions(connection, names)
    held_days = _find_held_days(
        policy, partitions, {table.name for table in tables if table.has_versions}
    )
    existing = defaultdict(list)
    for partition in partitions:
        existing[partition.table].append(partition)
    plans = []
    for table in tables:
        strategy = DayStrategy(
            table=table.name,
            window=table.compute_window(policy.window, policy.today),
            today=policy.today,
            existing=existing[table.name],
            held_days={
                day: reason for (name, day), reason in held_days.items() if name == table.name
            },
            past=table.has_versions,
        )
        plans.append(
            DayPlan(
                PostgresPartitioningConfig(table.model, strategy),
                creations=list(strategy.to_create()),
                deletions=list(strategy.to_delete()),
                kept_partitions=list(strategy.to_keep()),
                has_versions=table.has_versions,
            )
        )
    return plans


def _find_held_days(
    policy: PartitionPolicy, partitions: Sequence[Partition], tables: Collection[str]
) -> Mapping[tuple[str, date], str]:
    """Find the held days of these tables, up to `hold_days` before the window.

    Returns:
        For each held day (table and day), the reason.
    """
    oldest = policy.window.oldest
    limit = oldest - timedelta(days=policy.hold_days)
    overdue = {
        (partition.table, partition.day)
        for partition in partitions
        if partition.table in tables and partition.day and limit <= partition.day < oldest
    }
    return policy.find_held_days(overdue) if policy.find_held_days and overdue else {}


def _catch_error(act: Callable[[], None]) -> Exception | None:
    """Call `act`. Return the error that it raised, or None."""
    try:
        act()
    except Exception as error:
        return error
    return None


def _build_line(action: str, day_partition: DayPartition) -> PlanLine:
    new = Partition(
        table=day_partition.table,
        name=day_partition.full_name,
        start=None,
        end=None,
        state=DayState.DETACHED,
        marked=True,
        rows=0,
        bytes=0,
    )
    start = compute_midnight(day_partition.day)
    partition = replace(day_partition.existing or new, start=start, end=start + timedelta(days=1))
    return PlanLine(action, partition, day_partition.reason)
