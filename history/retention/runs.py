"""One run of `partitions maintain`: what its steps did, and the record of the run.

Also the status of the partitions, for metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from typing import Final, NamedTuple

import psycopg
from django.db.models import Q

from history.common.error_text import describe
from history.models import MaintainRun
from history.retention.plan import (
    VERSION_TABLES,
    DayChange,
    DayPlan,
    PartitionedTable,
    PartitionPolicy,
    build_plans,
)
from history.store.days.days import build_partition_name


class UnsealedDay(NamedTuple):
    """A finished day that might still get rows, and the reason."""

    table: str
    day: date
    reason: str


@dataclass
class StepResult:
    """The outcome of a step or of a whole run. Days are given by the names of their partitions."""

    created: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)
    packed: list[str] = field(default_factory=list)
    packing_waits: str = ""  # why packing stopped although days are due; empty if it did not stop
    unsealed: list[UnsealedDay] = field(default_factory=list)
    held: list[str] = field(default_factory=list)  # before the window, but held and so not dropped
    busy: list[str] = field(default_factory=list)  # locked by other sessions; next run tries again
    broken: list[tuple[str, str]] = field(default_factory=list)  # name and error of each failure
    freed: int = 0  # bytes of the dropped days
    longest_detach: float = 0.0  # seconds, including the wait for locks
    search_keys_before: date | None = None  # search keys last seen before this day were removed
    search_keys_removed: int = 0
    quarantine_removed: int = 0  # messages
    logins_removed: int = 0  # sessions and tokens of logins that have ended

    @property
    def exit_code(self) -> int:
        """The exit code. 0: done. 1: the next run tries again what is left. 2: something failed."""
        if self.broken:
            return 2
        return 1 if self.busy or self.held else 0

    def as_object(self) -> dict[str, object]:
        """Return the result for JSON."""
        before = self.search_keys_before
        return {
            **asdict(self),
            "unsealed": [
                (build_partition_name(unsealed.table, unsealed.day), unsealed.reason)
                for unsealed in self.unsealed
            ],
            "search_keys_before": before and before.isoformat(),
            "exitCode": self.exit_code,
        }

    def add(self, step: StepResult) -> None:
        """Add the result of a step to this result of a run."""
        self.created += step.created
        self.dropped += step.dropped
        self.sealed += step.sealed
        self.packed += step.packed
        self.packing_waits = self.packing_waits or step.packing_waits
        self.unsealed += step.unsealed
        self.held += step.held
        self.busy += step.busy
        self.broken += step.broken
        self.freed += step.freed
        self.longest_detach = max(self.longest_detach, step.longest_detach)
        self.search_keys_before = self.search_keys_before or step.search_keys_before
        self.search_keys_removed += step.search_keys_removed
        self.quarantine_removed += step.quarantine_removed
        self.logins_removed += step.logins_removed

    def note_change(self, change: DayChange) -> None:
        """Record that a day was created or dropped, or the error that prevented this."""
        names = self.created if change.action == "created" else self.dropped
        self.note_result(names, change.partition.full_name, change.error)
        if change.action == "dropped" and change.error is None:
            self.freed += change.partition.existing.bytes if change.partition.existing else 0
            self.longest_detach = max(self.longest_detach, round(change.waited, 3))

    def note_result(self, names: list[str], name: str, error: Exception | None) -> None:
        """Record whether a step of `maintain` succeeded for a day.

        Args:
            names: The list to which the day is added on success, for example `self.sealed`.
            name: The name of the day's partition.
            error: The error with which the step failed. None: the step succeeded.
        """
        if error is not None:
            self.note_failure(name, error)
        else:
            names.append(name)

    def note_failure(self, name: str, error: Exception) -> None:
        """Record the error of a day or a step: as `busy` if a lock was not free, else `broken`."""
        if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
            self.busy.append(name)
        else:
            self.broken.append((name, describe(error)))


RUNS_KEPT: Final = timedelta(days=90)


def record_run(result: StepResult, started_at: datetime, seconds: float) -> None:
    """Record a run, and delete the records of old runs.

    Records with a later date than this run are deleted too: a wrong clock has dated them.
    """
    MaintainRun.objects.create(
        started_at=started_at,
        seconds=seconds,
        exit_code=result.exit_code,
        created=len(result.created),
        dropped=len(result.dropped),
        held=len(result.held),
        busy=len(result.busy),
        broken=len(result.broken),
        search_keys_before=result.search_keys_before,
    )
    recent_runs = Q(started_at__gte=started_at - RUNS_KEPT, started_at__lte=started_at)
    MaintainRun.objects.exclude(recent_runs).delete()


def load_latest_run() -> MaintainRun | None:
    """Return the latest run, with or without failures. None if no run is recorded."""
    return MaintainRun.objects.order_by("-started_at").first()


def load_latest_flawless_run() -> MaintainRun | None:
    """Return the latest run in which all locks were free and nothing failed, or None."""
    return MaintainRun.objects.filter(busy=0, broken=0).order_by("-started_at").first()


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The state of the partitions of one table, for metrics and readiness."""

    table: str
    bytes: int  # with indexes and TOAST
    ahead: int  # how many days in a row after today have a partition; -1: today has none
    # How many days of the window have no partition. The newest day does not count: the next run
    # creates it.
    missing: int
    overdue: int  # how many partitions are to be dropped


def load_statuses(
    policy: PartitionPolicy, tables: Sequence[PartitionedTable] = VERSION_TABLES
) -> list[PartitionStatus]:
    """Return the status of each table.

    Raises:
        PostgresPartitioningError: A table is missing.
    """
    return [_build_status(plan, policy.today) for plan in build_plans(policy, tables)]


def _build_status(plan: DayPlan, today: date) -> PartitionStatus:
    strategy = plan.strategy
    missing_days = {partition.day for partition in plan.creations}
    ahead = -1
    while ahead < (strategy.window.newest - today).days:
        if today + timedelta(days=ahead + 1) in missing_days:
            break
        ahead += 1
    return PartitionStatus(
        table=strategy.table,
        bytes=sum(partition.bytes for partition in strategy.existing),
        ahead=ahead,
        missing=sum(partition.day < strategy.window.newest for partition in plan.creations),
        overdue=len(plan.deletions),
    )
