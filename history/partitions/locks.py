"""How many locks a table of many days needs, and how many the server has room for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

from history.partitions.plan import DayPlan


@dataclass(frozen=True, slots=True)
class Locks:
    """configured: max_locks_per_transaction. needed: the lowest value with which every connection
    can read a whole table at once; a statement over all days locks every partition and index."""

    configured: int
    needed: int

    @property
    def enough(self) -> bool:
        return self.configured >= self.needed


def count(connection: BaseDatabaseWrapper, plans: Iterable[DayPlan]) -> Locks:
    """The locks for the days that exist and those that the plan creates.

    Only the tables of versions count: no statement reads more than a few days of another one. A run
    itself never holds more locks than those of one day.
    """
    needed = 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('max_locks_per_transaction')::int")
        (configured,) = cursor.fetchone() or (0,)
        for table in plans:
            if not table.of_versions:
                continue
            cursor.execute(
                "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass",
                [table.strategy.table],
            )
            (indexes,) = cursor.fetchone() or (0,)
            days = len(table.strategy.existing) + len(table.creations) + 1
            needed = max(needed, days * (1 + indexes))
    return Locks(configured, needed)
