"""Handles rows of a batch that are older than the window, or on a day without a partition.

Missing partitions are created, if possible. See docs/decisions/0021.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from django.conf import settings
from psycopg import errors

from history.common import clock
from history.common.error_text import describe
from history.common.text_tables import pluralize
from history.kinds.entities import BY_NAME
from history.store.days import days
from history.store.days.window import Window
from ingest.kafka.client import ThrottledLog
from ingest.messages.explanations import Code, Explanation
from ingest.store.batch import Batch, EntityDay
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)
logger.addFilter(ThrottledLog())

# Errors after which a further attempt to create a day would fail, too: the login lacks the right,
# the partition was changed while it was detached, or another partition covers part of the day.
REFUSED_ERRORS = (
    errors.InsufficientPrivilege,
    days.ForeignTableError,
    psycopg.IntegrityError,
    errors.DatatypeMismatch,
    errors.InvalidObjectDefinition,
    errors.InvalidTableDefinition,
    errors.InternalError_,
)


class MissingDayError(psycopg.ProgrammingError):
    """Raised when the database login has no right to create a missing partition of a table.

    The consumer then repeats the batch until somebody has created the partition.
    """


@dataclass(frozen=True, slots=True)
class DayRefusal:
    """Why a day cannot be created."""

    explanation: Explanation
    privilege: bool  # whether another login, or another node of a cluster, could create the day


def admit_expired(
    connection: Connection, batch: Batch, window: Callable[[Connection], Window]
) -> None:
    """Accept expired rows for storing, if their day has a partition or is in the window.

    The decoder used the clock of this machine to decide which rows are expired. `window` does not
    rely on this clock alone. If the batch has no expired rows, no query is sent.

    Args:
        window: Returns the days that are kept. See `get_safe_window`.
    """
    if not batch.expired:
        return
    expired_days = {row.day for row in batch.expired}
    admitted = find_attached_days(connection, expired_days)
    if expired_days - admitted:
        oldest = window(connection).oldest
        if young := {day for day in expired_days - admitted if day[1] >= oldest}:
            admitted |= young
            try:
                clock.check_clocks(connection)
            except clock.WrongClockError as error:
                logger.warning(
                    "versions of %s are older than retention by the clock of this machine; they "
                    "are stored anyway, because the clock of the PostgreSQL server differs (%s)",
                    ", ".join(sorted({str(day) for _, day in young})),
                    error,
                )
    batch.accept_expired(admitted)


def create_missing_partitions(connection: Connection, batch: Batch, window: Window) -> bool:
    """Create the partitions that a batch needs. Return False if none is missing.

    Rows of a day that cannot be created go to quarantine.

    Args:
        connection: A connection that must be in autocommit mode.

    Raises:
        MissingDayError: A day up to tomorrow has no partition, and the database login of this
            process has no right to create the partition.
    """
    batch_days = batch.get_days()
    missing = batch_days - find_attached_days(connection, batch_days)
    if not missing:
        return False
    batch.expire({(name, day) for name, day in missing if day < window.oldest})
    reasons_to_wait = []
    # A day after tomorrow comes from a wrong message, so nothing waits for it.
    tomorrow = clock.now().date() + timedelta(days=1)
    for day, refusal in create_partitions(connection, missing, window).items():
        if refusal.privilege and day[1] <= tomorrow:
            reasons_to_wait.append(refusal.explanation.english)
        else:
            batch.refuse(day, refusal.explanation)
    if reasons_to_wait:
        days_have = pluralize(len(reasons_to_wait), "day has", "days have")
        raise MissingDayError(
            f"{reasons_to_wait[0]}. {days_have} no partition: run `annals partitions maintain` as "
            "the owner of the tables"
        )
    return True


def create_partitions(
    connection: Connection, missing: Collection[EntityDay], window: Window
) -> dict[EntityDay, DayRefusal]:
    """Create the partitions of these days, except for days before the window.

    Returns:
        The days for which no partition can be created, with the reasons.
    """
    refused = {}
    young_days = {(name, day) for name, day in missing if day >= window.oldest}
    for name, day in sorted(young_days):
        table = BY_NAME[name].table
        partition = days.build_partition_name(table, day)
        try:
            created = days.create_partition(connection, table, day)
        except REFUSED_ERRORS as error:
            # In a Citus cluster only the coordinator may create tables. On other nodes the error is
            # an InternalError_.
            privilege = isinstance(error, errors.InsufficientPrivilege | errors.InternalError_)
            explanation = Explanation(Code.DAY_NOT_CREATED, table=partition, error=describe(error))
            refused[name, day] = DayRefusal(explanation, privilege)
        else:
            # A table with this name exists. Either another process has just created the day, or the
            # table has other bounds.
            if not created and not find_attached_days(connection, {(name, day)}):
                explanation = Explanation(Code.DAY_HAS_OTHER_BOUNDS, table=partition)
                refused[name, day] = DayRefusal(explanation, privilege=False)
    return refused


def find_attached_days(connection: Connection, days_: Collection[EntityDay]) -> set[EntityDay]:
    """Return the days that have a partition to which rows can be written."""
    tables = {(BY_NAME[name].table, day): (name, day) for name, day in days_}
    return {tables[table] for table in days.find_attached(connection, tables)}


def get_local_window() -> Window:
    """Return the days that are kept now, by the clock of this machine."""
    annals = settings.ANNALS
    return Window.at(clock.now(), annals.retention_days, annals.ahead_days)


def get_safe_window(connection: Connection) -> Window:
    """Return the days that are kept now, by the clock of this machine or of the database server.

    The clock with the earlier time counts. Rows of days before the window are not stored, so a
    clock that is ahead must not move the window.
    """
    annals = settings.ANNALS
    return Window.at(clock.get_earlier_time(connection), annals.retention_days, annals.ahead_days)
