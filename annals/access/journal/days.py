"""The daily partitions of the access journal: how long they are kept, and how they are sealed."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connections

from annals.access import journal
from annals.access.models import JournalEntry
from history.common import clock
from history.kinds.kind import CanonicalColumn, CanonicalForm, DayClosing, DayRows
from history.models import DaySeal
from history.retention import catalog
from history.retention.catalog import Partition
from history.retention.plan import VERSION_TABLES, PartitionedTable, PartitionPolicy
from history.retention.seals import seal
from history.store.days import days
from history.store.days.window import Window

NAME: Final = journal.NAME
TABLE: Final = "access_journal"
# A day of the journal gets no rows after its end, so it can be sealed at once.
SEAL_AFTER_DAYS: Final = 1


@dataclass(frozen=True, slots=True)
class JournalRows:
    """The description of the access journal for seals: its table, columns and order of rows.

    Implements history.kinds.kind.DayRows.
    """

    name: str = NAME
    table: str = TABLE
    columns: tuple[CanonicalColumn, ...] = (
        CanonicalColumn("at", CanonicalForm.MOMENT),
        CanonicalColumn("id::text", CanonicalForm.TEXT),
        *(
            CanonicalColumn(name, CanonicalForm.TEXT)
            for name in (
                "login",
                "identity",
                "actor",
                "address",
                "request_id",
                "action",
                "entity",
                "entity_id",
                "application",
                "outcome",
            )
        ),
        CanonicalColumn("status", CanonicalForm.NUMBER),
        *(
            CanonicalColumn(name, CanonicalForm.TEXT)
            for name in ("method", "query", "path", "moment", "reason")
        ),
    )
    order: tuple[str, ...] = ("at", "id")
    # `annals partitions verify` names a changed row by its moment: two rows hardly ever have the
    # same microsecond.
    display_key: tuple[str, str] = ("to_char(at AT TIME ZONE 'UTC', 'HH24:MI:SS.US')", "0")

    @property
    def closing(self) -> DayClosing:
        return DayClosing(
            settings.ANNALS.journal_days, SEAL_AFTER_DAYS if settings.ANNALS.seal_days else 0
        )


ROWS: Final = JournalRows()


def list_day_tables() -> tuple[PartitionedTable, ...]:
    """Return the tables that have daily partitions: the tables of versions, and the journal."""
    return (*VERSION_TABLES, PartitionedTable(JournalEntry, ROWS, settings.ANNALS.journal_days))


def find_days_to_seal(partitions: Collection[Partition], today: date) -> list[tuple[DayRows, date]]:
    """Return the days of the access journal to seal now, each in a pair with the constant ROWS.

    ROWS describes the journal's rows. The list is empty if ANNALS_SEAL_DAYS is 0.

    Args:
        partitions: The daily partitions of the journal.
    """
    return seal.find_days_to_seal(
        partitions, today, ROWS.closing.seal_after, find_waiting=lambda _: {}, tables=[ROWS]
    ).due


def find_skipped_days(partitions: Collection[Partition], today: date) -> list[date]:
    """Return the past days that have no partition because `maintain` did not run for weeks.

    These days will never have a row, but the chain of seals needs a seal for each of them.

    Args:
        partitions: The partitions of the journal.
    """
    sealed = set(DaySeal.objects.filter(table=TABLE).values_list("day", flat=True))
    known_days = sealed | {partition.day for partition in partitions if partition.day}
    ended = today - timedelta(days=SEAL_AFTER_DAYS + 1)
    first = min(known_days, default=today)
    window = Window(max(first, today - timedelta(days=settings.ANNALS.journal_days)), ended)
    return [day for day in window.iterate_days() if day not in known_days]


def create_coming_days(using: str = "default", **_: Any) -> None:
    """Create the partitions of today and the coming days. A receiver of post_migrate."""
    database = connections[using]
    policy = PartitionPolicy.at(clock.now())
    coming_days = list(Window(policy.today, policy.window.newest).iterate_days())
    if catalog.find_missing_tables(database, [TABLE]):
        return  # `migrate history` alone does not create the table
    database.ensure_connection()
    attached = days.find_attached(database.connection, [(TABLE, day) for day in coming_days])
    for day in coming_days:
        if (TABLE, day) not in attached:
            days.create_partition(database.connection, TABLE, day)
