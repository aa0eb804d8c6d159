"""Checks whether sealed days are unchanged and whether the chain of their seals is complete."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
import psycopg
from django.db.models import Min
from psycopg import sql

from history.common import clock
from history.common.error_text import describe
from history.common.explained_errors import ExplainedError
from history.common.text_tables import pluralize
from history.kinds.kind import DayClosing, DayRows
from history.models import ArchivedDay, DaySeal, LateRow, SealedDay, VerifiedTable
from history.retention import runs
from history.retention.seals import day_snapshot, late_rows
from history.retention.seals.seal import GENESIS, compute_seal
from history.store import distribution
from history.store.blocks.codec import DamagedBlockError
from history.store.days import days
from history.store.days.canonical import (
    Connection,
    DayDigest,
    RowRange,
    compute_digest,
)
from history.store.days.day_reading import open_day
from history.store.days.days import DayState

_LATE: Final = "late rows are noted, but this table never gets late rows"
_UNSEALED: Final = "the day does not have a seal, although an earlier day has a seal or rows"


def find_fault_after_sealing(day_seal: DaySeal) -> str | None:
    """Return a description of the fault if a day got rows after it was sealed, or None.

    Only for tables in which each late row is a fault. Reads the table `late_row` and the seals of
    the day, not its rows.
    """
    if LateRow.objects.filter(table=day_seal.table, day=day_seal.day).exists():
        return _LATE
    seals_of_day = DaySeal.objects.filter(table=day_seal.table, day=day_seal.day)
    if seals_of_day.values("digest").distinct().count() > 1:
        return "the day was sealed again with other rows"
    return None


def find_unsealed_days(connection: Connection, day_rows: DayRows) -> Iterator[tuple[date, str]]:
    """Yield the days without a seal that are faults, oldest first, each with a description.

    Yields nothing for a table that can get rows for past days. In a table that never gets rows for
    past days, two kinds of days without a seal are faults:

    - a day since the oldest row or seal that `maintain` should have sealed by now
    - a day for which the table `late_row` has rows
    """
    if day_rows.closing is None:
        return
    sealed = set(DaySeal.objects.filter(table=day_rows.table).values_list("day", flat=True))
    late = set(LateRow.objects.filter(table=day_rows.table).values_list("day", flat=True))
    first_filled = _find_first_filled_day(connection, day_rows)
    first = min((*sealed, *([first_filled] if first_filled else ())), default=date.max)
    end = _compute_sealing_end(sealed, day_rows.closing)
    expected_days = {first + timedelta(days=number) for number in range((end - first).days)}
    for day in sorted((late | (expected_days if day_rows.closing.seal_after else set())) - sealed):
        yield day, _LATE if day in late else _UNSEALED


def _compute_sealing_end(sealed: Collection[date], closing: DayClosing) -> date:
    """Return the day before which every day must have a seal.

    This is the first day that the latest flawless run of `maintain` could not seal yet. If no
    flawless run is recorded, it is the last sealed day.
    """
    run = runs.load_latest_flawless_run()
    if run is None:
        return max(sealed, default=date.min)
    return run.started_at.astimezone(UTC).date() - timedelta(days=closing.seal_after)


def _find_first_filled_day(connection: Connection, day_rows: DayRows) -> date | None:
    query = sql.SQL("SELECT (min({}) AT TIME ZONE 'UTC')::date FROM {}").format(
        sql.Identifier(day_rows.order[0]), sql.Identifier(day_rows.table)
    )
    row = connection.execute(query).fetchone()
    return row[0] if row else None


@dataclass(frozen=True, slots=True)
class SealVerdict:
    """The result of checking one day against the seal of the day."""

    table: str
    day: date
    rows: int  # how many rows the seal has
    late: int  # how many rows have entered the day since this seal
    seal: str
    fault: str | None  # what is wrong, or None
    note: str  # what was compared


def find_chain_fault(day_rows: DayRows) -> str | None:
    """Return the first fault in the chain of a table's seals, or None if the chain is whole."""
    previous = GENESIS
    for day_seal in DaySeal.objects.filter(table=day_rows.table).defer("ranges").order_by("id"):
        if day_seal.previous != previous:
            return f"the seal before the seal of {day_seal.day} is missing or was replaced"
        if day_seal.seal != compute_seal(
            previous, day_seal.table, day_seal.day, day_seal.rows, day_seal.digest
        ):
            return f"the seal of {day_seal.day} does not match its row count and digest"
        previous = day_seal.seal
    return None


def load_newest_seal(day_rows: DayRows) -> str | None:
    """Return the newest seal of a table in hex, or None. It depends on all earlier seals."""
    newest = DaySeal.objects.filter(table=day_rows.table).order_by("-id").first()
    return newest.seal if newest else None


def verify_days(
    connection: Connection, day_rows: DayRows, day: date | None = None
) -> Iterator[SealVerdict]:
    """Check each sealed day against its newest seal, oldest day first.

    Then yield a verdict with a fault for each day that must have a seal and does not have one. The
    digest of a day is computed again from the rows of the day, without the late rows. If the day is
    only in the archive, the seal is compared with the digest that the database noted when the day
    was archived. Needs a `connection` in autocommit mode.

    Args:
        day: Check only this day. None: all days.

    Raises:
        psycopg.Error: The connection was lost. If a day cannot be read for a different reason, no
            error is raised: the verdict on the day has the error as its fault.
    """
    seals = DaySeal.objects.filter(table=day_rows.table)
    if day is not None:
        seals = seals.filter(day=day)
    newest = seals.order_by("day", "-id").distinct("day")
    for day_seal in newest.iterator(chunk_size=1):
        try:
            verdict = _compare_day(connection, day_rows, day_seal)
        except (psycopg.Error, DamagedBlockError) as error:
            if connection.closed:
                raise
            verdict = _build_verdict(
                day_seal, 0, f"cannot be read: {describe(error)}", "not compared"
            )
        yield verdict
    for unsealed_day, reason in find_unsealed_days(connection, day_rows):
        if day in (None, unsealed_day):
            yield SealVerdict(day_rows.table, unsealed_day, 0, 0, "", reason, "not compared")


class SealedDayChangedError(ExplainedError, RuntimeError):
    """Raised when the rows of a sealed day differ from the rows that were sealed."""


def check_sealed_day(connection: Connection, day_rows: DayRows, day: date) -> None:
    """Compare a day with its newest seal before the day is archived, dropped or sealed again.

    Does nothing if the day has no seal. Needs a `connection` in autocommit mode.

    Raises:
        SealedDayChangedError: The rows of the day differ from the seal.
    """
    day_seal = DaySeal.objects.filter(table=day_rows.table, day=day).order_by("-id").first()
    if day_seal is None:
        return
    if fault := _compare_day(connection, day_rows, day_seal).fault:
        raise SealedDayChangedError(f"{day_rows.table} {day} is not as it was sealed: {fault}")


def check_locked(
    connection: Connection, day_rows: DayRows, day: date, day_table: days.DayTable
) -> None:
    """Compare a day with its newest seal in a transaction that has locked out all other writers.

    Raises:
        SealedDayChangedError: The rows of the day differ from the seal.
    """
    day_seal = DaySeal.objects.filter(table=day_rows.table, day=day).order_by("-id").first()
    if day_seal is not None and (
        fault := _compare_in_snapshot(connection, day_rows, day_seal, day_table).fault
    ):
        raise SealedDayChangedError(f"{day_rows.table} {day} is not as it was sealed: {fault}")


def accept_changed_day(table: str, day: date) -> None:
    """Let `maintain` drop a day although the rows of the day differ from the seal.

    The drop of such a day is not recorded, so `verify_days` keeps reporting the day.
    """
    SealedDay.objects.filter(table=table, day=day).delete()


def _compare_day(connection: Connection, day_rows: DayRows, day_seal: DaySeal) -> SealVerdict:
    """Compare the rows of a day with the newest seal of the day.

    On a cluster, the comparison might read the nodes at different moments. So if it finds a
    difference there, it is repeated until no late row is noted during the comparison.
    """
    with open_day(connection, day_rows.table, day_seal.day) as day_table:
        verdict = _compare_in_snapshot(connection, day_rows, day_seal, day_table)
    if verdict.fault and distribution.is_distributed_table(connection, day_rows.table):
        return day_snapshot.run_in_one_state(
            connection,
            day_rows.table,
            day_seal.day,
            lambda day_table: _compare_in_snapshot(connection, day_rows, day_seal, day_table),
        )
    return verdict


def _compare_in_snapshot(
    connection: Connection, day_rows: DayRows, day_seal: DaySeal, day_table: days.DayTable
) -> SealVerdict:
    count = (
        0
        if day_rows.closing
        else late_rows.count_late_rows(connection, day_rows.table, day_seal.day)
    )
    day_seal = _load_newest(connection, day_seal)
    digest, late_found = DayDigest(), 0
    if day_table.state is not DayState.ABSENT and not count:
        digest = compute_digest(connection, day_rows, day_table.child)
    elif day_table.state is not DayState.ABSENT:
        digests = late_rows.compute_digests(connection, day_rows, day_seal.day, day_table.child)
        digest, late_found = digests.without_late, digests.late_count
    note = "digest computed from the rows"
    fault: str | None = None
    if (digest.finish(), digest.rows) != (day_seal.digest, day_seal.rows):
        fault = _describe_difference(
            msgspec.convert(day_seal.ranges, list[RowRange]), digest, day_seal
        )
        if not digest.rows and day_table.comment != days.RESTORED:
            fault, note = _compare_dropped(day_rows, day_seal, fault)
    if count > late_found:
        missing = f"{count - late_found} of {pluralize(count, 'late row')} missing or changed"
        fault = f"{fault}; {missing}" if fault else missing
    if day_rows.closing:
        fault = fault or find_fault_after_sealing(day_seal)
    return _build_verdict(day_seal, count, fault, note)


def _load_newest(connection: Connection, day_seal: DaySeal) -> DaySeal:
    """Return the newest of those seals of the day that are visible to this transaction.

    A day might have been sealed again since `day_seal` was read. Then the newer seal includes the
    late rows of the day.
    """
    row = connection.execute(
        'SELECT max(id) FROM day_seal WHERE "table" = %s AND day = %s',
        [day_seal.table, day_seal.day],
    ).fetchone()
    if row is None or row[0] in (None, day_seal.id):
        return day_seal
    return DaySeal.objects.get(id=row[0])


def _build_verdict(day_seal: DaySeal, late: int, fault: str | None, note: str) -> SealVerdict:
    return SealVerdict(
        day_seal.table, day_seal.day, day_seal.rows, late, day_seal.seal, fault, note
    )


def _compare_dropped(day_rows: DayRows, day_seal: DaySeal, fault: str) -> tuple[str | None, str]:
    """Find out whether a sealed day without rows in the table is archived or rightly dropped.

    Args:
        fault: The fault to return if the day is neither archived nor recorded as dropped.

    Returns:
        The fault, or None; and a note on what was compared.
    """
    archived = ArchivedDay.objects.filter(table=day_seal.table, day=day_seal.day).first()
    if archived and archived.digest == day_seal.digest:
        return None, "archived; the digests are equal"
    if archived:
        return "the archived rows are not the sealed rows", "archived"
    dropped = SealedDay.objects.filter(
        table=day_seal.table, day=day_seal.day, dropped_at__isnull=False
    ).exists()
    kept_days = timedelta(days=day_rows.closing.kept_days if day_rows.closing else 0)
    if dropped and day_rows.closing and day_seal.day >= clock.now().date() - kept_days:
        return "the day was dropped before its retention was over", "dropped, not archived"
    return (None, "dropped, not archived") if dropped else (fault, "not archived")


def _describe_difference(sealed: list[RowRange], day_digest: DayDigest, day_seal: DaySeal) -> str:
    """Describe the first range of rows that differs from the sealed one."""
    change = day_digest.rows - day_seal.rows
    count = (
        f", {pluralize(abs(change), 'row')} {'more' if change > 0 else 'fewer'}" if change else ""
    )
    begin = 0
    for old, new in zip(sealed, day_digest.ranges, strict=False):
        if old != new:
            return (
                f"rows {begin + 1} to {begin + old.rows} differ, between "
                f"{_format_key(old.first)} and"
                f" {_format_key(old.last)}{count}"
            )
        begin += old.rows
    if len(sealed) < len(day_digest.ranges):
        first = _format_key(day_digest.ranges[len(sealed)].first)
        return f"rows after row {begin} are new, from {first}{count}"
    if len(sealed) > len(day_digest.ranges):
        first = _format_key(sealed[len(day_digest.ranges)].first)
        return f"rows from row {begin + 1} on are missing, from {first}{count}"
    return f"the ranges of the seal do not match its digest{count}"


def _format_key(key: tuple[str, int]) -> str:
    return f"{key[0]} v{key[1]}"


def record_check(table: str, started_at: datetime, days: int, faults: int) -> None:
    """Record a check of all sealed days of a table."""
    VerifiedTable.objects.update_or_create(
        table=table, defaults={"started_at": started_at, "days": days, "faults": faults}
    )


class LatestCheck(NamedTuple):
    """The latest check of all sealed days of a table."""

    table: str
    began_at: datetime  # if the table was never checked: the moment of its first seal
    # the number of days that differ, plus one if the chain is broken; None if never checked
    faults: int | None


def load_latest_checks() -> Iterator[LatestCheck]:
    """Yield the latest check of each table that was checked or has seals."""
    checked = {table_check.table: table_check for table_check in VerifiedTable.objects.all()}
    sealed = DaySeal.objects.values("table").annotate(first=Min("sealed_at")).order_by("table")
    for row in sealed:
        if row["table"] not in checked:
            yield LatestCheck(row["table"], row["first"], None)
    for table, check in checked.items():
        yield LatestCheck(table, check.started_at, check.faults)
