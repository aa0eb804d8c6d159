"""What verify checks in addition of tables whose days get no row after their end: that no row came
late, that no day was sealed again with other rows, and that each day has a seal."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, date, timedelta
from typing import Final

from psycopg import sql

from history.canonical import Connection
from history.day_rows import Closed, DayRows
from history.models import DaySeal, LateRow
from history.partitions import runs

_LATE: Final = "rows are noted as late, and no row can be late here"


def fault(known: DaySeal) -> str | None:
    """What is wrong with a sealed day, whatever its rows are."""
    if LateRow.objects.filter(table=known.table, day=known.day).exists():
        return _LATE
    of_day = DaySeal.objects.filter(table=known.table, day=known.day)
    if of_day.values("digest").distinct().count() > 1:
        return "it was sealed again with other rows"
    return None


def may_be_dropped(closed: Closed, day: date, today: date) -> bool:
    """Whether retention is over for a day."""
    return day < today - timedelta(days=closed.kept_days)


def unsealed(connection: Connection, kept: DayRows) -> Iterator[tuple[date, str]]:
    """The days without a seal that must have one, oldest first, each with what is wrong: those that
    a run of maintain had to seal, since the oldest one with a seal or with rows. And those without
    a seal that have late rows.

    Where maintain has not run yet, was killed, or could not do everything, its next run seals the
    days that have ended: that it does not run, or fails, is what AnnalsMaintainFails reports.
    """
    if kept.closed is None:
        return
    sealed = set(DaySeal.objects.filter(table=kept.table).values_list("day", flat=True))
    late = set(LateRow.objects.filter(table=kept.table).values_list("day", flat=True))
    filled = _first_with_rows(connection, kept)
    first = min((*sealed, *([filled] if filled else ())), default=date.max)
    end = _passed(sealed, kept.closed)
    wanted = {first + timedelta(days=number) for number in range((end - first).days)}
    for day in sorted((late | (wanted if kept.closed.seal_after else set())) - sealed):
        yield day, _LATE if day in late else "it has no seal, and a day before it has one or rows"


def _passed(sealed: Collection[date], closed: Closed) -> date:
    """The day up to which, exclusive, maintain has sealed all days."""
    run = runs.latest_whole()
    if run is None:
        return max(sealed, default=date.min)
    return run.started_at.astimezone(UTC).date() - timedelta(days=closed.seal_after)


def _first_with_rows(connection: Connection, kept: DayRows) -> date | None:
    query = sql.SQL("SELECT (min({}) AT TIME ZONE 'UTC')::date FROM {}").format(
        sql.Identifier(kept.order[0]), sql.Identifier(kept.table)
    )
    row = connection.execute(query).fetchone()
    return row[0] if row else None
