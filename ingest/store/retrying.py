"""Repeats database work through outages until it succeeds or is abandoned."""

import logging
import time
from collections.abc import Callable, Container, Mapping
from threading import Event
from typing import TypeVar

import psycopg

from history.base.error_text import describe
from history.failure.complaints import Complaint
from history.failure.database import is_refused, no_connection
from ingest import metrics
from ingest.source.message import TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch, Claim, Claims, Ends
from ingest.store.ledger import Connection, Fenced
from ingest.store.session import terminate_frozen
from ingest.store.sqlstate import Cause, cause, is_permanent
from ingest.store.transaction import Writer, Written

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class Abandoned(Exception):
    """The work was given up between two attempts; as far as is known nothing was committed."""


class RefusedByDatabaseError(Complaint):
    """The database refuses the work, and goes on to do so; nothing of it was committed."""


class RetryingWriter:
    """A consumer's work in the database, on one thread. failing: it is being repeated.

    Args:
        refused_seconds: how long an error that does not pass by waiting, such as a missing right,
            is waited for; None: without an end, because somebody may correct it.
    """

    def __init__(self, writer: Writer, refused_seconds: float | None = None) -> None:
        self.writer = writer
        self._refused_seconds = refused_seconds
        self._abandoned = Event()
        self.failing = False

    def abandon(self) -> None:
        """Stop work that waits for the database. A statement that runs is not interrupted."""
        self._abandoned.set()

    def proceed(self) -> None:
        """Undo abandon(), for new work."""
        self._abandoned.clear()

    def write(self, batch: Batch, claims: Claims, high: Ends) -> Written:
        """Store a batch, waiting while the database is unavailable. Raises Fenced, Abandoned,
        RefusedByDatabaseError."""
        return self._until_done(lambda retry: self._write_once(batch, claims, high, retry))

    def claim(
        self,
        sources: Mapping[TopicPartition, tuple[int, int | None]],
        cut: Container[TopicPartition] = (),
    ) -> list[Claim]:
        """Claim partitions. sources: each with the first offset at the broker and, if its log may
        have been truncated, the end offset. cut: as of ledger.claim(). Raises Abandoned,
        RefusedByDatabaseError."""

        def once(_: bool) -> list[Claim]:
            connection = self.writer.connection
            with connection.transaction():
                # Always in the same order: two consumers that claim at once must not deadlock.
                return [
                    ledger.claim(connection, each, *sources[each], cut) for each in sorted(sources)
                ]

        claims = self._until_done(once)
        metrics.LOGS_CUT.inc(sum(each.epoch == 1 and each.source.cuts > 0 for each in claims))
        return claims

    def note(self, job: Callable[[Connection], object]) -> None:
        """Run a job once; a failure is logged. For jobs that are repeated anyway."""
        try:
            job(self.writer.connection)
        except psycopg.Error as error:
            logger.warning("not written, the next attempt follows: %s", describe(error))
            self.writer.close()

    def _write_once(self, batch: Batch, claims: Claims, high: Ends, retry: bool) -> Written:
        # A commit whose answer was lost may succeed: the ledger is asked before each attempt.
        if retry and self._is_written(batch, claims):
            return _as_counted(batch)
        with metrics.WRITE_SECONDS.time():
            try:
                return self.writer.write(batch, claims, high)
            except Fenced:
                if retry and self._is_written(batch, claims):
                    return _as_counted(batch)
                raise

    def _is_written(self, batch: Batch, claims: Claims) -> bool:
        ends = {claims[source]: progress.next for source, progress in batch.progress.items()}
        return ledger.stands_at(self.writer.connection, ends)

    def _until_done(self, once: Callable[[bool], T]) -> T:
        pause, retry = FIRST_PAUSE_SECONDS, False
        refused_since: float | None = None
        while True:
            try:
                result = once(retry)
            except psycopg.Error as error:
                _report(error)
                refused_since = (refused_since or time.monotonic()) if _stays(error) else None
                if self._gives_up(refused_since):
                    raise RefusedByDatabaseError(_refusal(error)) from error
                self.failing = True
                metrics.LOGIN_REFUSED.labels("postgresql").set(is_refused(error))
                metrics.RETRIES.inc()
                self.writer.close()
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    self.note(terminate_frozen)
            else:
                self.failing = False
                metrics.LOGIN_REFUSED.labels("postgresql").set(0)
                return result
            if self._abandoned.wait(pause):
                self.failing = False
                raise Abandoned
            pause, retry = min(pause * 2, LONGEST_PAUSE_SECONDS), True

    def _gives_up(self, refused_since: float | None) -> bool:
        if refused_since is None or self._refused_seconds is None:
            return False
        return time.monotonic() - refused_since >= self._refused_seconds


def _as_counted(batch: Batch) -> Written:
    """The result of a batch that the ledger has counted already, as far as is known here."""
    return Written({source: progress.good for source, progress in batch.progress.items()}, {})


def _stays(error: psycopg.Error) -> bool:
    return is_refused(error) or is_permanent(error)


def _refusal(error: psycopg.Error) -> str:
    """Say what the database refuses, and who can correct it."""
    if (why := no_connection(error)) is not None:
        return f"{why}. Nothing is lost"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return (
            f"the database login of this consumer lacks a right ({describe(error)}): run `annals "
            "grants --apply` as the owner of the tables, and give the consumer its own login in "
            "DATABASE_URL. No message is lost or quarantined"
        )
    return (
        f"the tables are not those of this release ({describe(error)}): run `annals migrate` and "
        "`annals grants --apply` as the owner of the tables. No message is lost or quarantined"
    )


def _report(error: psycopg.Error) -> None:
    if _stays(error):
        logger.error("%s; trying again", _refusal(error))
    elif (why := no_connection(error)) is not None:
        logger.warning("%s. Nothing is lost; trying again", why)
    elif cause(error) is Cause.OUTAGE:
        logger.warning("the database is not available, trying again: %s", describe(error))
    else:
        logger.error(
            "the database refuses to store the batch: check its schema and its log. No message is "
            "lost or quarantined; trying again: %s",
            describe(error),
        )
