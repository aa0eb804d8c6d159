"""The state of the partitions, for metrics and readiness. It is read from the catalog."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Q

from history.models import MaintainRun
from history.retention.maintain import MaintainOutcome
from history.retention.plan import DayPlan, PartitionPolicy, build_plans
from history.retention.strategy import VERSION_TABLES, PartitionedTable


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One table. Counts are partitions; bytes include indexes and TOAST. ahead: days after today
    without a gap; -1 if today's is missing. missing: days of the window without one, without the
    newest, which the next run makes. overdue: to be dropped."""

    table: str
    bytes: int
    ahead: int
    missing: int
    overdue: int


def load_statuses(
    policy: PartitionPolicy, tables: Sequence[PartitionedTable] = VERSION_TABLES
) -> list[PartitionStatus]:
    """Return the status of each table. Raises PostgresPartitioningError if one is missing."""
    return [_build_status(table, policy.today) for table in build_plans(policy, tables)]


def _build_status(table: DayPlan, today: date) -> PartitionStatus:
    strategy = table.strategy
    missing_days = {part.day for part in table.creations}
    ahead = -1
    while ahead < (strategy.window.newest - today).days:
        if today + timedelta(days=ahead + 1) in missing_days:
            break
        ahead += 1
    return PartitionStatus(
        table=strategy.table,
        bytes=sum(part.bytes for part in strategy.existing),
        ahead=ahead,
        missing=sum(part.day < strategy.window.newest for part in table.creations),
        overdue=len(table.deletions),
    )


RUNS_KEPT = timedelta(days=90)


def record_run(outcome: MaintainOutcome, started_at: datetime, seconds: float) -> None:
    """Record a run, and delete the records of old ones, and of those that began later."""
    MaintainRun.objects.create(
        started_at=started_at,
        seconds=seconds,
        exit_code=outcome.exit_code,
        created=len(outcome.created),
        dropped=len(outcome.dropped),
        held=len(outcome.held),
        busy=len(outcome.busy),
        broken=len(outcome.broken),
        search_keys_before=outcome.search_keys_before,
    )
    recent_runs = Q(started_at__gte=started_at - RUNS_KEPT, started_at__lte=started_at)
    MaintainRun.objects.exclude(recent_runs).delete()


def load_latest_run() -> MaintainRun | None:
    """Return the latest completed run, or None."""
    return MaintainRun.objects.order_by("-started_at").first()


def load_latest_complete_run() -> MaintainRun | None:
    """Return the latest completed run without failures, or None."""
    return MaintainRun.objects.filter(busy=0, broken=0).order_by("-started_at").first()
