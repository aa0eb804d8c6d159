"""The state of the partitions, for metrics and readiness. It is read from the catalog, so a scrape
does not depend on the latest run of maintain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from history.days import State
from history.partitions.plan import DayPlan, Policy, plan
from history.partitions.tables import VERSIONS, Partitioned


@dataclass(frozen=True, slots=True)
class Status:
    """One table. Counts are partitions; rows is an estimate; bytes include indexes and TOAST.

    ahead: days after today that have their partition without a gap; -1 if today's is missing.
    missing: days of the window without a partition. overdue: those that maintain would drop. held:
    those that it would drop if they were not held. pending: detaches that were interrupted.
    """

    table: str
    partitions: int
    rows: int
    bytes: int
    ahead: int
    missing: int
    overdue: int
    held: int
    pending: int


def status(policy: Policy, tables: Sequence[Partitioned] = VERSIONS) -> list[Status]:
    """The status of each of the tables, in their order.

    Raises PostgresPartitioningError if a table is missing.
    """
    return [_status(table, policy.today) for table in plan(policy, tables=tables)]


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
        partitions=len(strategy.existing),
        rows=sum(part.rows for part in strategy.existing),
        bytes=sum(part.bytes for part in strategy.existing),
        ahead=ahead,
        missing=len(table.creations),
        overdue=len(table.deletions),
        held=len(table.held()),
        pending=sum(part.state is State.PENDING for part in strategy.existing),
    )
