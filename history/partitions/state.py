"""The state of the partitions, for metrics and readiness. It is read from the catalog."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.db.models import Q

from history.models import MaintainRun
from history.partitions.maintain import Outcome
from history.partitions.plan import DayPlan, Policy, plan
from history.partitions.strategy import VERSIONS, Partitioned


@dataclass(frozen=True, slots=True)
class Status:
    """One table. Counts are partitions; bytes include indexes and TOAST. ahead: days after today
    without a gap; -1 if today's is missing. missing: days of the window without one, without the
    newest, which the next run makes. overdue: to be dropped."""

    table: str
    bytes: int
    ahead: int
    missing: int
    overdue: int


def status(policy: Policy, tables: Sequence[Partitioned] = VERSIONS) -> list[Status]:
    """The status of each of the tables. Raises PostgresPartitioningError: one is missing."""
    return [_status(table, policy.today) for table in plan(policy, tables)]


def _status(table: DayPlan, today: date) -> Status:
    strategy = table.strategy
    lacking = {part.day for part in table.creations}
    ahead = -1
    while ahead < (strategy.window.newest - today).days:
        if today + timedelta(days=ahead + 1) in lacking:
            break
        ahead += 1
    return Status(
        table=strategy.table,
        bytes=sum(part.bytes for part in strategy.existing),
        ahead=ahead,
        missing=sum(part.day < strategy.window.newest for part in table.creations),
        overdue=len(table.deletions),
    )


KEPT = timedelta(days=90)


def note(outcome: Outcome, started_at: datetime, seconds: float) -> None:
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
    kept = Q(started_at__gte=started_at - KEPT, started_at__lte=started_at)
    MaintainRun.objects.exclude(kept).delete()


def latest() -> MaintainRun | None:
    """The latest run that was completed; None if there was none yet."""
    return MaintainRun.objects.order_by("-started_at").first()


def latest_whole() -> MaintainRun | None:
    """The latest completed run in which nothing failed; None if there was none yet."""
    return MaintainRun.objects.filter(busy=0, broken=0).order_by("-started_at").first()
