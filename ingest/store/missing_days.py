"""Rows whose day is older than the window, or has no partition (docs/decisions/0021)."""

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

# The partition is not ours, was changed while detached, or another one covers part of the day.
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
    """Raised when a day is missing that this login may not create. Treated as an outage."""


@dataclass(frozen=True, slots=True)
class DayRefusal:
    """Why a day cannot be created."""

    explanation: Explanation
    privilege: bool  # only because this login, or this node of a cluster, may not


def admit_expired(
    connection: Connection, batch: Batch, window: Callable[[Connection], Window]
) -> None:
    """Let a batch store expired rows whose day exists or is inside this window.

    Makes at most two queries, and none for a batch without expired rows.
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
                logger.warning("versions that are expired by our clock only are stored: %s", error)
    batch.admit(admitted)


def create_missing_partitions(connection: Connection, batch: Batch, window: Window) -> bool:
    """Create the partitions that a batch needs. Return False if none is missing.

    `connection` is in autocommit mode. Rows of a day that cannot be created go to quarantine.

    Raises:
        MissingDayError: A day up to tomorrow is missing that only another login may create.
    """
    batch_days = batch.get_days()
    missing = batch_days - find_attached_days(connection, batch_days)
    if not missing:
        return False
    batch.expire({place for place in missing if place[1] < window.oldest})
    waiting = []
    # Only a wrong message has a day that is further ahead.
    tomorrow = clock.now().date() + timedelta(days=1)
    for day, refusal in create_partitions(connection, missing, window).items():
        if refusal.privilege and day[1] <= tomorrow:
            waiting.append(refusal.explanation.english)
        else:
            batch.refuse(day, refusal.explanation)
    if waiting:
        raise MissingDayError(
            f"{waiting[0]}. {pluralize(len(waiting), 'day is', 'days are')} missing: run `annals "
            "partitions maintain` as the owner of the tables"
        )
    return True


def create_partitions(
    connection: Connection, missing: Collection[EntityDay], window: Window
) -> dict[EntityDay, DayRefusal]:
    """Create the partitions of these days, except before the window.

    Returns the days that this login cannot create, however long it waits.
    """
    refused = {}
    young_days = {place for place in missing if place[1] >= window.oldest}
    for name, day in sorted(young_days):
        table = BY_NAME[name].table
        partition = days.build_partition_name(table, day)
        try:
            created = days.create_partition(connection, table, day)
        except REFUSED_ERRORS as error:
            # In a Citus cluster only the coordinator creates tables: the error is an internal one.
            privilege = isinstance(error, errors.InsufficientPrivilege | errors.InternalError_)
            explanation = Explanation(Code.DAY_NOT_CREATED, table=partition, error=describe(error))
            refused[name, day] = DayRefusal(explanation, privilege)
        else:
            # The partition exists: another process created it, or it has other bounds.
            if not created and not find_attached_days(connection, {(name, day)}):
                explanation = Explanation(Code.DAY_HAS_OTHER_BOUNDS, table=partition)
                refused[name, day] = DayRefusal(explanation, privilege=False)
    return refused


def find_attached_days(connection: Connection, days_: Collection[EntityDay]) -> set[EntityDay]:
    """Return the days that have a partition to which rows can be written."""
    tables = {(BY_NAME[name].table, day): (name, day) for name, day in days_}
    return {tables[table] for table in days.find_attached(connection, tables)}


def get_local_window() -> Window:
    """Return the window at this moment, by the clock of this machine."""
    annals = settings.ANNALS
    return Window.at(clock.now(), annals.retention_days, annals.ahead_days)


def get_safe_window(connection: Connection) -> Window:
    """Return the window at this moment, by the earlier of our clock and the database server's.

    Rows before the window may be lost for good, so a single wrong clock must not decide that.
    """
    annals = settings.ANNALS
    return Window.at(clock.get_earlier_time(connection), annals.retention_days, annals.ahead_days)
