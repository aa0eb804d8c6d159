"""Which days a table should have: psqlextra's partition and strategy, for UTC days; without a lock
of the whole table, or an end at the first missing day."""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, Protocol

from psqlextra.backend.schema import PostgresSchemaEditor
from psqlextra.models import PostgresPartitionedModel
from psqlextra.partitioning import PostgresRangePartition, PostgresRangePartitioningStrategy

from history.kinds.entities import ENTITIES
from history.kinds.kind import DayRows
from history.models import VERSION_MODELS
from history.retention.catalog import Partition
from history.store.days import days
from history.store.days.window import Window


class Archiver(Protocol):
    """Archives a day before it is dropped; if a method raises, the day is not dropped."""

    def archive(self, connection: days.Connection, table: str, day: date) -> None:
        """Archive the rows of a day, while the table is in use."""

    def confirm(self, connection: days.Connection, table: str, day: date) -> None:
        """Make sure that all rows of the day are archived, when nobody can write to it any more."""


# Asked about a table and its day before the day is archived and dropped; raises what is against it.
CheckDay = Callable[[days.Connection, str, date], None]


class DayPartition(PostgresRangePartition):
    """One UTC day of one table, to be created or dropped, and why. found: its table now, or None.
    check, archiver: called before it is dropped. waited: seconds until the detach."""

    archiver: Archiver | None = None
    check: CheckDay | None = None
    waited = 0.0

    def __init__(
        self, table: str, day: date, reason: str, existing: Partition | None = None
    ) -> None:
        super().__init__(*days.compute_bounds(day))
        self.table = table
        self.day = day
        self.reason = reason
        self.existing = existing

    def name(self) -> str:
        return f"{self.day:%Y%m%d}"

    @property
    def full_name(self) -> str:
        return days.build_partition_name(self.table, self.day)

    def deconstruct(self) -> dict[str, Any]:
        return {**super().deconstruct(), "reason": self.reason}

    def create(
        self,
        model: type[PostgresPartitionedModel],
        schema_editor: PostgresSchemaEditor,
        comment: str | None = None,  # noqa: ARG002 - psqlextra's signature; days marks by itself
    ) -> None:
        days.create_partition(schema_editor.connection.connection, model._meta.db_table, self.day)

    def delete(
        self, model: type[PostgresPartitionedModel], schema_editor: PostgresSchemaEditor
    ) -> None:
        plain, table = schema_editor.connection.connection, model._meta.db_table
        if self.check is not None:
            self.check(plain, table, self.day)
        archiver = self.archiver
        if archiver is not None:
            archiver.archive(plain, table, self.day)

        def confirm(_: days.DayTable) -> None:
            if archiver is not None:
                archiver.confirm(plain, table, self.day)

        days.drop_partition(plain, table, self.day, confirm=confirm, report_wait=self._note_wait)

    def _note_wait(self, seconds: float) -> None:
        self.waited = seconds


@dataclass(frozen=True)
class DayStrategy(PostgresRangePartitioningStrategy):
    """Creates the missing days of a window and drops the days before it. today: the current UTC
    day. existing: the table's partitions. holds: by day, with the reason. past: also days before
    today."""

    table: str
    window: Window
    today: date
    existing: Sequence[Partition]
    holds: Mapping[date, str] = field(default_factory=dict)
    past: bool = True

    def to_create(self) -> Generator[DayPartition, None, None]:
        """The missing days, the most urgent first."""
        today = self.today
        window_days = list(self.window.iterate_days())
        split = window_days.index(today)
        detached = {
            part.day: part for part in self.existing if part.state is not days.DayState.ATTACHED
        }
        attached = [part for part in self.existing if part.state is days.DayState.ATTACHED]
        attached_days = {part.day for part in attached}
        foreign = [part for part in attached if part.day is None]
        for day in [*window_days[split:], *reversed(window_days[:split])]:
            if day in attached_days or any(part.has_part_of_day(day) for part in foreign):
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
        for held_day in self.holds:
            if held_day in detached:
                # Only an attached day takes the rows for which it is held.
                yield DayPartition(self.table, held_day, "held; attached again", detached[held_day])

    def to_delete(self) -> Generator[DayPartition, None, None]:
        """Our partitions before the window that are not held, oldest first."""
        for part in self.existing:
            if part.day and part.day < self.window.oldest and part.day not in self.holds:
                reason = f"before {self.window.oldest}, the oldest day kept"
                if part.state is days.DayState.PENDING:
                    reason += "; its detach was interrupted"
                elif part.state is days.DayState.DETACHED:
                    reason += "; detached already"
                yield DayPartition(self.table, part.day, reason, part)

    def to_keep(self) -> Iterator[tuple[Partition, str]]:
        """What stays, and why, in the order of the names."""
        for part in self.existing:
            if part.day is None:
                yield part, _explain_foreign(part)
            elif part.day < self.window.oldest:
                if part.day in self.holds and part.state is days.DayState.ATTACHED:
                    yield part, f"held: {self.holds[part.day]}"
            elif part.day > self.window.newest:
                yield part, f"after {self.window.newest}, the newest day made ahead"
            elif part.state is days.DayState.ATTACHED:
                yield part, "inside the window"


def _explain_foreign(part: Partition) -> str:
    if part.restored:
        return "restored from the archive; `partitions release` lets maintain drop it"
    if not part.marked:
        return "not made by Annals, never dropped"
    return "marked, but not a whole UTC day by name and bounds; never dropped"


@dataclass(frozen=True, slots=True)
class PartitionedTable:
    """One kind of partitioned table. rows: its columns, for seals. retention_days: None for the
    tables of versions, which follow the window of the policy; of another table past days are not
    created, and nothing is archived."""

    model: type[PostgresPartitionedModel]
    rows: DayRows
    retention_days: int | None = None

    @property
    def name(self) -> str:
        return self.rows.table

    @property
    def of_versions(self) -> bool:
        return self.retention_days is None

    def compute_window(self, versions: Window, today: date) -> Window:
        """The days that are kept. versions: those of the tables of versions."""
        if self.retention_days is None:
            return versions
        return Window(today - timedelta(days=self.retention_days), versions.newest)


VERSION_TABLES = tuple(PartitionedTable(VERSION_MODELS[entity.name], entity) for entity in ENTITIES)
