"""The days of the journal: its own retention, and its rows as seals see them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, connections

from annals.access import journal
from annals.access.models import JournalEntry
from history.base import clock
from history.daily import days
from history.daily.window import Window
from history.kinds.kind import Closed, Column, DayRows, Form
from history.models import DaySeal
from history.partitions import catalog
from history.partitions.plan import Policy
from history.partitions.strategy import VERSIONS, Partitioned
from history.seals import finished

NAME: Final = journal.NAME
TABLE: Final = "access_journal"
# A day of the journal gets no more rows when it has ended, so it is sealed as early as any day is.
SEAL_AFTER_DAYS: Final = 1


@dataclass(frozen=True, slots=True)
class JournalRows:
    """history.kinds.kind.DayRows of the journal."""

    name: str = NAME
    table: str = TABLE
    columns: tuple[Column, ...] = (
        Column("at", Form.MOMENT),
        Column("id::text", Form.TEXT),
        *(
            Column(name, Form.TEXT)
            for name in (
                *("login", "identity", "actor", "address", "request_id", "action", "entity"),
                *("entity_id", "application", "outcome"),
            )
        ),
        Column("status", Form.NUMBER),
        *(Column(name, Form.TEXT) for name in ("method", "query", "path", "moment", "reason")),
    )
    order: tuple[str, ...] = ("at", "id")
    # Every row has another microsecond, or nearly so.
    called: tuple[str, str] = ("to_char(at AT TIME ZONE 'UTC', 'HH24:MI:SS.US')", "0")

    @property
    def closed(self) -> Closed:
        return Closed(
            settings.ANNALS.journal_days, SEAL_AFTER_DAYS if settings.ANNALS.seal_days else 0
        )


ROWS: Final = JournalRows()


def tables() -> tuple[Partitioned, ...]:
    """Every table of days: those of versions, and the journal."""
    return (*VERSIONS, Partitioned(JournalEntry, ROWS, settings.ANNALS.journal_days))


def due(today: date) -> Sequence[tuple[DayRows, date]]:
    """The days of the journal that can be sealed now; none where ANNALS_SEAL_DAYS is 0."""
    existing = catalog.read(connection, [TABLE])
    return finished.due(existing, today, ROWS.closed.seal_after, lambda _: {}, [ROWS])[0]


def create_skipped(today: date) -> None:
    """Create the ended days that have no table because `maintain` did not run for weeks. They have
    no row and never get one, and each needs a seal. Raises psycopg.errors.LockNotAvailable."""
    sealed = set(DaySeal.objects.filter(table=TABLE).values_list("day", flat=True))
    known = sealed | {part.day for part in catalog.read(connection, [TABLE]) if part.day}
    ended = today - timedelta(days=SEAL_AFTER_DAYS + 1)
    first = min(known, default=today)
    kept = Window(max(first, today - timedelta(days=settings.ANNALS.journal_days)), ended)
    for day in kept.days():
        if day not in known:
            days.create(connection.connection, TABLE, day)


def create(using: str = "default", **_: Any) -> None:
    """A receiver of post_migrate: without a partition of today there is no journal."""
    database = connections[using]
    policy = Policy.at(clock.now())
    wanted = list(Window(policy.today, policy.window.newest).days())
    if catalog.missing_tables(database, [TABLE]):
        return  # after `migrate history` alone
    database.ensure_connection()
    there = days.attached(database.connection, [(TABLE, day) for day in wanted])
    for day in wanted:
        if (TABLE, day) not in there:
            days.create(database.connection, TABLE, day)
