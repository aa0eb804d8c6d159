"""Rows whose day is older than the window, or has no partition (docs/decisions/0021)."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta

import psycopg
from django.conf import settings
from psycopg import errors

from history.base import clock
from history.base.error_text import describe
from history.base.table import counted
from history.daily import days
from history.daily.window import Window
from history.entities import BY_NAME
from ingest.source.client import ThrottledLog
from ingest.store.batch import Batch, EntityDay
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)
logger.addFilter(ThrottledLog())

# The partition is somebody else's, was changed while detached, or another has a part of the day.
REFUSED = (
    errors.InsufficientPrivilege,
    days.ForeignTableError,
    psycopg.IntegrityError,
    errors.DatatypeMismatch,
    errors.InvalidObjectDefinition,
    errors.InvalidTableDefinition,
    errors.InternalError_,
)


class MissingDayError(psycopg.ProgrammingError):
    """A day that should exist is missing, and this login may not create it: an outage."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a day cannot be created. privilege: only because this login, or this node, may not."""

    why: str
    privilege: bool


def admit_expired(
    connection: Connection, batch: Batch, window: Callable[[Connection], Window]
) -> None:
    """Store the expired rows of a batch after all if their day exists, or if it is inside this
    window. Two queries, and none for a batch without expired rows."""
    if not batch.expired:
        return
    wanted = {row.day for row in batch.expired}
    admitted = existing(connection, wanted)
    if wanted - admitted:
        oldest = window(connection).oldest
        if young := {each for each in wanted - admitted if each[1] >= oldest}:
            admitted |= young
            try:
                clock.check(connection)
            except clock.WrongClockError as error:
                logger.warning("versions that are expired by our clock only are stored: %s", error)
    batch.admit(admitted)


def provide(connection: Connection, batch: Batch, window: Window) -> bool:
    """Make a batch storable that has rows without a partition; False if none is missing.
    `connection` is in autocommit mode. Rows of a day that cannot be created go to quarantine.
    Raises MissingDayError for a day up to tomorrow that only another login may create."""
    wanted = batch.days()
    missing = wanted - existing(connection, wanted)
    if not missing:
        return False
    batch.expire({each for each in missing if each[1] < window.oldest})
    waiting = []
    # Only an odd message has a day that is further ahead.
    tomorrow = clock.now().date() + timedelta(days=1)
    for day, refusal in create(connection, missing, window).items():
        if refusal.privilege and day[1] <= tomorrow:
            waiting.append(refusal.why)
        else:
            batch.refuse(day, refusal.why)
    if waiting:
        raise MissingDayError(
            f"{waiting[0]}. {counted(len(waiting), 'day is', 'days are')} missing: run `annals "
            "partitions maintain` as the owner of the tables"
        )
    return True


def create(
    connection: Connection, missing: Collection[EntityDay], window: Window
) -> dict[EntityDay, Refusal]:
    """Create the partitions of these days, except before the window. Returns the days for which
    this login cannot, however long one waits."""
    refused = {}
    wanted = {each for each in missing if each[1] >= window.oldest}
    for name, day in sorted(wanted):
        table = BY_NAME[name].table
        why = f"{days.partition_name(table, day)} cannot be created: "
        try:
            created = days.create(connection, table, day)
        except REFUSED as error:
            # In a Citus cluster only the coordinator creates tables: the error is an internal one.
            privilege = isinstance(error, errors.InsufficientPrivilege | errors.InternalError_)
            refused[name, day] = Refusal(why + describe(error), privilege)
        else:
            # Missing, and yet there: another process created it, or it has other bounds.
            if not created and not existing(connection, {(name, day)}):
                refused[name, day] = Refusal(f"{why}it has other bounds than the day", False)
    return refused


def existing(connection: Connection, wanted: Collection[EntityDay]) -> set[EntityDay]:
    """Those of the days that have a partition to which rows can be written."""
    tables = {(BY_NAME[name].table, day): (name, day) for name, day in wanted}
    return {tables[each] for each in days.attached(connection, tables)}


def current() -> Window:
    """The window at this moment, by the clock of this machine."""
    annals = settings.ANNALS
    return Window.at(clock.now(), annals.retention_days, annals.ahead_days)


def kept(connection: Connection) -> Window:
    """The window at this moment, by the earlier of the clocks of this machine and of the database
    server. What is before it may be lost for good: no wrong clock may decide that alone."""
    annals = settings.ANNALS
    return Window.at(clock.earlier(connection), annals.retention_days, annals.ahead_days)
