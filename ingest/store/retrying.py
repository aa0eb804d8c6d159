"""Database work that outlives outages: it is repeated until it succeeds or is abandoned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event
from typing import TypeVar

import psycopg

from history.days import ForeignTableError
from ingest import metrics
from ingest.source.message import TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch
from ingest.store.connect import end_frozen
from ingest.store.ledger import Claim, Connection, Fenced
from ingest.store.transaction import Writer, Written

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class Abandoned(Exception):
    """The work was given up between two tries; as far as known nothing of it was done."""


class RetryingWriter:
    """All that the consumer does in the database, on one connection and one thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._abandoned = Event()

    def abandon(self) -> None:
        """Let work that waits for the database give up. Work that runs is not disturbed."""
        self._abandoned.set()

    def proceed(self) -> None:
        """Take abandon() back, for work that comes now."""
        self._abandoned.clear()

    def write(
        self,
        batch: Batch,
        claims: Mapping[TopicPartition, Claim],
        high: Mapping[TopicPartition, int],
    ) -> Written:
        """Store a batch, waiting as long as the database cannot. Raises Fenced and Abandoned."""
        return self._until_done(lambda retry: self._write_once(batch, claims, high, retry))

    def claim(self, sources: Mapping[TopicPartition, tuple[int, int | None]]) -> list[Claim]:
        """Claim partitions; sources: each with the first offset that the broker has and, where
        its log may have been cut, the one after its last."""

        def once(_: bool) -> list[Claim]:
            connection = self._writer.connection
            with connection.transaction():
                # Always in one order: two consumers that claim at once must not lock crosswise.
                return [ledger.claim(connection, each, *sources[each]) for each in sorted(sources)]

        return self._until_done(once)

    def note(self, job: Callable[[Connection], object]) -> None:
        """Write something down that may as well be written next time."""
        try:
            job(self._writer.connection)
        except psycopg.Error as error:
            logger.warning("not noted: %s", _first_line(error))
            self._writer.close()

    def cut(self) -> None:
        """Break the connection under work that waits in the database, from another thread: it
        ends as if the database were away. To be called after abandon()."""
        self._writer.cut()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def _write_once(
        self,
        batch: Batch,
        claims: Mapping[TopicPartition, Claim],
        high: Mapping[TopicPartition, int],
        retry: bool,
    ) -> Written:
        # A commit whose answer was lost may have been done, or be done just now: before every
        # new try, and where it is refused, the ledger is asked whether it stands at the end.
        if retry and self._is_written(batch, claims):
            return _as_counted(batch)
        with metrics.WRITE_SECONDS.time():
            try:
                return self._writer.write(batch, claims, high)
            except Fenced:
                if retry and self._is_written(batch, claims):
                    return _as_counted(batch)
                raise

    def _is_written(self, batch: Batch, claims: Mapping[TopicPartition, Claim]) -> bool:
        ends = {claims[source]: progress.next for source, progress in batch.progress.items()}
        return ledger.holds(self._writer.connection, ends)

    def _until_done(self, once: Callable[[bool], T]) -> T:
        pause, retry = FIRST_PAUSE_SECONDS, False
        while True:
            try:
                result = once(retry)
            except (psycopg.Error, ForeignTableError) as error:
                logger.warning("the database cannot serve, trying again: %s", _first_line(error))
                metrics.DATABASE_UP.set(0)
                metrics.RETRIES.inc()
                self._writer.close()
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    self.note(_end_frozen)
            else:
                metrics.DATABASE_UP.set(1)
                return result
            if self._abandoned.wait(pause):
                raise Abandoned
            pause, retry = min(pause * 2, LONGEST_PAUSE_SECONDS), True


def _as_counted(batch: Batch) -> Written:
    """What became of a batch that the ledger has counted already, as far as is known here."""
    return Written({source: progress.good for source, progress in batch.progress.items()}, {})


def _end_frozen(connection: Connection) -> None:
    if ended := end_frozen(connection):
        logger.warning("ended %d sessions of consumers that are frozen in a write", ended)


def _first_line(error: Exception) -> str:
    """What went wrong, without the DETAIL and CONTEXT lines: those quote the row."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
