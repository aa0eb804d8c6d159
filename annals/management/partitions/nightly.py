"""The night: what `annals partitions maintain` does, step by step.

`run_night` checks the clock, takes the run lock, calls the STEPS in their order, and records the
run. STEPS is at the end of this file, below the steps. A step gets the context of the night and
returns what it did. If a day or a step fails with a database error, the others still run. A run may
be killed between any two statements: nothing is lost, and the next run completes its work.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from datetime import time as time_of_day
from itertools import chain
from typing import Final

import psycopg
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection

from annals.access import sessions
from annals.access.journal import days as journal
from annals.access.journal.actions import AccessAction
from annals.access.journal.write import record_operator_access
from history.common import clock
from history.common.explained_errors import ExplainedError
from history.kinds.entities import BY_TABLE, ENTITIES
from history.models import ArchivedDay
from history.retention import catalog, indexing, packing, runs, search_keys
from history.retention.archive.manifest import Manifest
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.archive.write import DayArchiver
from history.retention.catalog import Partition
from history.retention.plan import (
    Archiver,
    DayChange,
    FindHeldDays,
    PartitionedTable,
    PartitionPolicy,
    build_plans,
)
from history.retention.run_lock import hold_run_lock, retake_lost_lock
from history.retention.runs import StepResult, UnsealedDay
from history.retention.seals import late_rows, verification
from history.retention.seals.seal import find_days_to_seal, seal_days
from history.store import late_list
from history.store.database import forms
from history.store.days import table_swap
from history.store.days.canonical import Connection
from history.store.days.days import build_partition_name, create_partition, is_packed
from ingest.completeness.holds import find_days_to_hold
from ingest.quarantine import messages as quarantine
from ingest.store import empty_offsets

# Finds the days that must not be dropped yet.
FIND_HELD_DAYS: FindHeldDays = find_days_to_hold
# For how many seconds a run packs days, and how many rows it packs per second at most.
PACK_SECONDS: Final = 1_800
PACK_ROWS_PER_SECOND: Final = 20_000
# For how many seconds a run creates indexes that older days lack.
INDEX_SECONDS: Final = 1_800


@dataclass(frozen=True, slots=True)
class DropExceptions:
    """Exceptions that the operator makes from the rules about which days `maintain` can drop."""

    force: bool = False  # also drop held days
    without_archive: bool = False  # also drop days that are not archived
    accept_changed: date | None = None  # also drop this day, whose rows changed after its seal
    reason: str = ""  # the operator's reason for accept_changed


@dataclass
class NightContext:
    """The values that the steps of one night share.

    Attributes:
        now: The moment of this night. Its steps do not read the clock again.
        policy: Which days should exist.
        exceptions: What the operator allows in this run.
        archiver: Archives days of versions before they are dropped. None: there is no archive.
        tables: The tables whose days are created and dropped.
        report_change: Called after each attempt to create or drop a day.
        report_progress: Called with 1 after each attempt to create, drop, seal or pack a day.
    """

    now: datetime
    policy: PartitionPolicy
    exceptions: DropExceptions = DropExceptions()
    archiver: Archiver | None = None
    tables: Sequence[PartitionedTable] = field(default_factory=journal.list_day_tables)
    report_change: Callable[[DayChange], None] = lambda _: None
    report_progress: Callable[[int], None] = lambda _: None
    _partitions: list[Partition] | None = field(default=None, init=False)

    @property
    def today(self) -> date:
        return self.policy.today

    def list_partitions(self) -> list[Partition]:
        """Return the partitions of all tables with days.

        The first call reads the catalogue of PostgreSQL. Later calls read it again only if days
        were created or dropped meanwhile.
        """
        if self._partitions is None:
            names = [table.name for table in self.tables]
            self._partitions = catalog.read_partitions(connection, names)
        return self._partitions

    def list_version_partitions(self) -> list[Partition]:
        """Return the partitions of the tables of versions. See `list_partitions`."""
        return [partition for partition in self.list_partitions() if partition.table in BY_TABLE]

    def list_journal_partitions(self) -> list[Partition]:
        """Return the partitions of the access journal. See `list_partitions`."""
        return [
            partition for partition in self.list_partitions() if partition.table == journal.TABLE
        ]

    def forget_partitions(self) -> None:
        """Make `list_partitions` read the catalogue again, because a day is created or dropped."""
        self._partitions = None


@dataclass(frozen=True, slots=True)
class NightReport:
    """The outcome of a night."""

    result: StepResult
    archived: tuple[Manifest, ...]
    seconds: float


Step = Callable[[NightContext], StepResult]


def run_night(
    exceptions: DropExceptions,
    report_change: Callable[[DayChange], None],
    report_progress: Callable[[int], None],
) -> NightReport:
    """Run all steps and record the run. See `NightContext` for the arguments.

    Raises:
        WrongClockError: The clocks of this machine and the server differ. No step was run, but a
            failed run was recorded.
        NoRunLockError: Another run is working on this database.
    """
    check_clock()
    now, began = clock.now(), time.monotonic()
    url = settings.ANNALS.archive_url
    archiver = DayArchiver(ArchiveStore(url)) if url else None
    context = NightContext(
        now=now,
        policy=PartitionPolicy.at(now, None if exceptions.force else FIND_HELD_DAYS),
        exceptions=exceptions,
        archiver=archiver,
        report_change=report_change,
        report_progress=report_progress,
    )
    with hold_run_lock():
        result = run_steps(context, STEPS)
    seconds = time.monotonic() - began
    runs.record_run(result, now, seconds)
    return NightReport(result, tuple(archiver.archived.values()) if archiver else (), seconds)


def check_clock() -> None:
    """Check that the clocks of this machine and the database server agree.

    With a wrong clock the night would drop days that are still needed. A failed check is recorded
    as a failed run.

    Raises:
        WrongClockError: The clocks of this machine and the server differ.
    """
    connection.ensure_connection()
    pg_connection = connection.connection
    try:
        clock.check_clocks(pg_connection)
    except clock.WrongClockError as error:
        result = StepResult()
        result.note_failure("clock", error)
        runs.record_run(result, clock.read_server_time(pg_connection), 0)
        raise


def run_steps(context: NightContext, steps: Iterable[Step]) -> StepResult:
    """Run the steps, and return their combined result. The caller holds the run lock.

    If a step fails with a database error, the result has the failure, and the next step still runs.
    Any other error would end the run, so each step handles its other errors itself. If a step loses
    the connection, the run lock is lost too: both are restored before the next step.
    """
    result = StepResult()
    for step in steps:
        retake_lost_lock()
        try:
            result.add(step(context))
        except (psycopg.Error, DatabaseError) as error:
            result.note_failure(step.__name__.replace("_", " "), error)
    return result


def create_and_drop_days(context: NightContext) -> StepResult:
    """Create the days that each table lacks, then archive and drop the days before its window.

    Before a day is dropped, it is compared with its seal and archived.
    """
    plans = build_plans(context.policy, context.tables, context.list_partitions())
    result = StepResult(held=[partition.name for plan in plans for partition in plan.list_held()])

    def check_day(pg_connection: Connection, table: str, day: date) -> None:
        check_day_before_drop(pg_connection, table, day, context.exceptions)

    for plan in plans:
        for change in plan.apply(check=check_day, archiver=context.archiver):
            context.forget_partitions()
            result.note_change(change)
            context.report_change(change)
            context.report_progress(1)
    return result


def check_day_before_drop(
    pg_connection: Connection, table: str, day: date, exceptions: DropExceptions
) -> None:
    """Check that a day may be archived and dropped.

    Args:
        exceptions: What the operator allows, such as the changed rows of one day.

    Raises:
        ArchiveError: The installation archives days, but no archive is configured now.
        SealedDayChangedError: The rows of the day changed after it was sealed.
        ExplainedError: The operator accepts the changed rows of the day, but the day is packed.
    """
    is_journal = table == journal.TABLE
    has_archive = is_journal or settings.ANNALS.archive_url or exceptions.without_archive
    if not has_archive and ArchivedDay.objects.exists():
        # The report puts the name of the day before this text.
        raise ArchiveError(
            "the day is not dropped, because it is not archived: this installation archives days, "
            "but ANNALS_ARCHIVE_URL is not set. Set it, or give --without-archive"
        )
    rows = journal.ROWS if is_journal else BY_TABLE[table]
    try:
        verification.check_sealed_day(pg_connection, rows, day)
    except verification.SealedDayChangedError:
        if day != exceptions.accept_changed:
            raise
        if is_packed(pg_connection, table, day):
            raise ExplainedError(
                f"{table} {day} is packed: run `partitions unpack {day}`, and then accept its "
                "changed rows with --accept-changed"
            ) from None
        record_operator_access(
            AccessAction.OTHER,
            f"partitions maintain --accept-changed {day}",
            exceptions.reason,
            entity=rows.name,
        )
        verification.accept_changed_day(table, day)


def create_skipped_journal_days(context: NightContext) -> StepResult:
    """Create past days that the access journal lacks because `maintain` did not run for weeks.

    They have no rows, but the chain of seals needs a seal for each day.
    """
    for day in journal.find_skipped_days(context.list_journal_partitions(), context.today):
        context.forget_partitions()
        create_partition(connection.connection, journal.TABLE, day)
    return StepResult()


def seal_finished_days(context: NightContext) -> StepResult:
    """Seal the finished days, except days that can still get rows. These are sealed later."""
    version_days = find_days_to_seal(
        context.list_version_partitions(),
        context.today,
        settings.ANNALS.seal_days,
        find_waiting=find_days_to_hold,
        tables=ENTITIES,
    )
    result = StepResult(
        unsealed=[
            UnsealedDay(table, day, reason)
            for (table, day), reason in sorted(version_days.waiting.items())
        ]
    )
    journal_days = journal.find_days_to_seal(context.list_journal_partitions(), context.today)
    for attempt in seal_days([*version_days.due, *journal_days]):
        name = build_partition_name(attempt.day_rows.table, attempt.day)
        result.note_result(result.sealed, name, attempt.error)
        context.report_progress(1)
    return result


def forget_late_rows_of_dropped_days(_: NightContext) -> StepResult:
    """Remove the notes about late rows of days that no longer exist."""
    late_rows.forget_dropped_days(connection.connection)
    return StepResult()


def pack_finished_days(context: NightContext) -> StepResult:
    """Pack finished days one by one, so slowly that the web and the consumers are not disturbed.

    If a different session locked or changed a day meanwhile, the day is tried once more at the end.
    After PACK_SECONDS this step does not begin a further day, and the next night continues. The
    step ends at once if a process of an earlier release is connected that cannot read packed days.
    The step does not read the list of partitions from PostgreSQL again, because packing does not
    create or drop days.
    """
    result = StepResult()
    table_swap.remove_leftover_triggers(connection.connection)  # of a run that was killed
    # On a packed day, a trigger refuses a row if a block already has the version of the row. An
    # earlier release packed days without this trigger.
    table_swap.guard_packed_days(connection.connection)
    end = time.monotonic() + PACK_SECONDS
    due_days = find_days_to_pack(context.list_version_partitions(), context.today)
    busy_days: list[tuple[str, date]] = []
    for table, day in chain(due_days, busy_days):
        name = build_partition_name(table, day)
        is_second_attempt = (table, day) in busy_days
        error: Exception | None = None
        try:
            packing.pack_day(connection.connection, BY_TABLE[table], day, rate=PACK_ROWS_PER_SECOND)
        except forms.EarlierReleaseError as reason:
            result.packing_waits = str(reason)
            return result
        except Exception as failure:  # any error: the next day may still succeed
            error = failure
        if is_second_attempt:
            result.busy.remove(name)
        result.note_result(result.packed, name, error)
        retake_lost_lock()
        if not is_second_attempt:
            context.report_progress(1)
            if name in result.busy:
                busy_days.append((table, day))
        if time.monotonic() > end:
            break
    return result


def find_days_to_pack(partitions: Iterable[Partition], today: date) -> list[tuple[str, date]]:
    """Return the table and the day of each day to pack, except held days.

    The newest day comes first. Days that could not be packed before come last.

    Args:
        partitions: The partitions of the tables of versions.
    """
    days = packing.find_due_days(partitions, today, settings.ANNALS.pack_after_days)
    waiting = find_days_to_hold(set(days))
    return [table_day for table_day in days if table_day not in waiting]


def remove_old_search_keys(context: NightContext) -> StepResult:
    """Remove the search keys whose newest version is older than the window."""
    oldest_day = search_keys.find_oldest_searchable_day(
        context.list_version_partitions(), context.policy.window.oldest
    )
    removed = search_keys.remove_old_keys(connection.connection, oldest_day)
    return StepResult(search_keys_removed=removed, search_keys_before=oldest_day)


def remove_old_messages(context: NightContext) -> StepResult:
    """Remove messages in quarantine whose versions are older than the window."""
    removed = quarantine.remove_old_messages(
        connection.connection, context.policy.window, settings.ANNALS.hold_days, context.now
    )
    return StepResult(quarantine_removed=removed)


def remove_old_empty_offsets(context: NightContext) -> StepResult:
    """Remove the records of empty offsets that are older than the window.

    An offset is empty if its message added no row.
    """
    empty_offsets.remove_old_ranges(connection.connection, context.policy.window)
    return StepResult()


def remove_old_late_versions(context: NightContext) -> StepResult:
    """Remove the rows of the late list that were added before the window."""
    window_start = datetime.combine(context.policy.window.oldest, time_of_day(), UTC)
    late_list.remove_old_batches(connection.connection, window_start)
    return StepResult()


def remove_ended_logins(context: NightContext) -> StepResult:
    """Remove sessions and logout tokens that have expired.

    Also remove the rows of provider sessions for which Annals has no session any more. The accounts
    of users stay.
    """
    return StepResult(logins_removed=sessions.remove_ended_sessions(context.now))


def add_missing_indexes(_: NightContext) -> StepResult:
    """Create the indexes for lists of changes on the days that do not have them.

    Earlier releases created days without these indexes. This is the last step, because it can take
    long. After INDEX_SECONDS it does not begin a further index, and the next night continues.
    """
    result = StepResult()
    indexing.add_missing_indexes(connection.connection, result, INDEX_SECONDS)
    retake_lost_lock()
    return result


STEPS: tuple[Step, ...] = (
    create_and_drop_days,
    create_skipped_journal_days,
    seal_finished_days,
    forget_late_rows_of_dropped_days,
    pack_finished_days,
    remove_old_search_keys,
    remove_old_messages,
    remove_old_empty_offsets,
    remove_old_late_versions,
    remove_ended_logins,
    add_missing_indexes,
)
