"""Executing the plan: one run at a time in a database, and its outcome."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date

import psycopg

from history.common.error_text import describe
from history.retention.plan import PartitionPolicy, ReportStep, build_plans
from history.retention.run_lock import hold_run_lock
from history.retention.strategy import (
    VERSION_TABLES,
    Archiver,
    CheckDay,
    DayPartition,
    PartitionedTable,
)
from history.store.days.days import build_partition_name


@dataclass
class MaintainOutcome:
    """What a run did, by the names of partitions. held: not dropped because they are held.
    unsealed: finished days, each a table and a day, that may still get rows, with the reason. busy:
    without their locks; the next run tries again. broken: failed, with the error. packing_waits:
    why no day was packed though some are due, or empty. longest_detach: seconds, with the wait.
    search_keys_removed: last seen before search_keys_before. quarantine_removed: messages."""

    created: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)
    packing_waits: str = ""
    unsealed: list[tuple[str, date, str]] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    freed: int = 0  # bytes
    longest_detach: float = 0.0
    search_keys_before: date | None = None
    search_keys_removed: int = 0
    quarantine_removed: int = 0
    logins_removed: int = 0

    @property
    def exit_code(self) -> int:
        """0: done. 1: the next run tries the rest again. 2: something failed."""
        if self.broken:
            return 2
        return 1 if self.busy or self.held else 0

    def as_object(self) -> dict[str, object]:
        """Return the outcome for JSON."""
        waiting = [
            (build_partition_name(table, day), reason) for table, day, reason in self.unsealed
        ]
        before = self.search_keys_before
        return {
            **asdict(self),
            "unsealed": waiting,
            "search_keys_before": before and before.isoformat(),
            "exitCode": self.exit_code,
        }

    def note_day(self, action: str, part: DayPartition, error: Exception | None) -> None:
        """Record the outcome of one day."""
        names = self.created if action == "created" else self.dropped
        self.note_result(names, part.full_name, error)
        if names is self.dropped and error is None:
            self.freed += part.existing.bytes if part.existing else 0
            self.longest_detach = max(self.longest_detach, round(part.waited, 3))

    def note_result(self, names: list[str], name: str, error: Exception | None) -> None:
        """Record whether a day was sealed or packed."""
        if error is not None:
            self.note_failure(name, error)
        else:
            names.append(name)

    def note_failure(self, name: str, error: Exception) -> None:
        """Record that something could not be done: busy or broken."""
        if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            self.busy.append(name)
        else:
            self.broken.append((name, describe(error)))


def execute_plans(
    policy: PartitionPolicy,
    report: ReportStep = lambda *_: None,
    archiver: Archiver | None = None,
    tables: Sequence[PartitionedTable] = VERSION_TABLES,
    check: CheckDay | None = None,
) -> MaintainOutcome:
    """Create and drop what the plan says. report: gets the steps; check looks at each day before it
    is dropped, archiver archives those of versions. Raises NoRunLockError."""
    outcome = MaintainOutcome()

    def note(action: str, part: DayPartition, error: Exception | None) -> None:
        outcome.note_day(action, part, error)
        report(action, part, error)

    with hold_run_lock():
        plans = build_plans(policy, tables)
        outcome.held += [part.name for table in plans for part in table.list_held()]
        for table in plans:
            table.apply(note, archiver, check)
    return outcome
