"""The threads that write to the database, and the repetition of their work through outages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import TypeVar

import psycopg

from history.common.complaints import ExplainedError
from history.common.database_errors import explain_no_connection, is_refused
from history.common.error_text import describe
from ingest.consumer import metrics
from ingest.consumer.lanes import Flight, NoFlightError
from ingest.messages.message import TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch, Claim, Claims, Ends
from ingest.store.ledger import Connection, FencedError
from ingest.store.session import terminate_frozen
from ingest.store.sqlstate import ErrorCause, classify_error, is_permanent
from ingest.store.transaction import BatchWriter, WriteResult

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class WriterThreads:
    """The writers of a consumer, each with a thread and a connection; numbered as the lanes.

    No method waits unless its name says so. The first writer also claims partitions and runs the
    jobs of `submit_job`, in the order in which they were submitted.
    """

    def __init__(self, writers: Sequence[RetryingWriter]) -> None:
        self._threads = [_WriterThread(writer) for writer in writers]

    def write(self, number: int, flight: Flight, high: Ends) -> None:
        """Begin to write a batch. See `list_done` and `take_result`."""
        thread = self._threads[number]
        thread.writer.allow_waiting()
        thread.launched_at = time.monotonic()
        thread.written = thread.worker.submit(
            partial(thread.writer.write, flight.batch, flight.claims, high)
        )

    @property
    def writing(self) -> bool:
        """Whether the result of a write was not taken yet."""
        return any(thread.written is not None for thread in self._threads)

    def list_done(self) -> list[int]:
        """Return the numbers of the writers with a finished write that was not taken."""
        return [
            number
            for number, thread in enumerate(self._threads)
            if thread.written is not None and thread.written.done()
        ]

    def take_result(self, number: int) -> WriteResult:
        """Take the result of a finished write. Raises what `RetryingWriter.write` raised."""
        thread = self._threads[number]
        written, thread.written = thread.written, None
        if written is None:
            raise NoFlightError(f"writer {number} has no write whose result was not taken")
        return written.result()

    def wait_for_one(self, seconds: float) -> bool:
        """Wait until one write has ended. Return False if none did in this time."""
        return bool(wait(self._list_futures(), max(0.0, seconds), FIRST_COMPLETED).done)

    def wait_for_all(self, seconds: float) -> bool:
        """Wait until all writes have ended. Return False if some did not in this time."""
        return not wait(self._list_futures(), max(0.0, seconds), ALL_COMPLETED).not_done

    def claim(
        self,
        sources: Mapping[TopicPartition, tuple[int, int | None]],
        cut: Container[TopicPartition],
    ) -> Future[list[Claim]]:
        """Claim partitions; see `RetryingWriter.claim`. Only while nothing is being written."""
        first = self._threads[0]
        first.writer.allow_waiting()
        return first.worker.submit(partial(first.writer.claim, sources, cut))

    def submit_job(self, job: Callable[[Connection], object]) -> Future[None]:
        """Run a job once on the first writer and log a failure."""
        first = self._threads[0]
        return first.worker.submit(partial(first.writer.run_job, job))

    def abandon_waiting_work(self) -> None:
        """Give up work that waits for the database. A running statement is not interrupted."""
        for thread in self._threads:
            thread.writer.stop_waiting()

    def get_oldest_age(self) -> float:
        """Return the age in seconds of the oldest batch being written, or 0. Thread-safe."""
        return max(thread.age for thread in self._threads)

    def is_database_up(self) -> bool:
        """Return whether no writer repeats its work after an error. Thread-safe."""
        return not any(thread.writer.failing for thread in self._threads)

    def end(self, seconds: float) -> None:
        """End the threads. Work other than writes gets `seconds`, then its connection is cut."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            ended = thread.worker.close(0 if thread.pending else until - time.monotonic())
            if not ended:
                thread.writer.writer.break_connection()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.worker.close(max(0.0, until - time.monotonic())):
                thread.writer.writer.close()

    def _list_futures(self) -> list[Future[WriteResult]]:
        return [thread.written for thread in self._threads if thread.written is not None]


class _WriterThread:
    """The thread of one writer, with its newest write."""

    def __init__(self, writer: RetryingWriter) -> None:
        self.writer = writer
        self.worker = WorkerThread("database")
        self.written: Future[WriteResult] | None = None
        self.launched_at = 0.0

    @property
    def pending(self) -> bool:
        return self.written is not None and not self.written.done()

    @property
    def age(self) -> float:
        return time.monotonic() - self.launched_at if self.pending else 0.0


class AbandonedError(Exception):
    """The work was given up between two attempts. Nothing is known to be committed."""


class RefusedByDatabaseError(ExplainedError):
    """Raised where the database goes on to refuse the work. Nothing of it was committed."""


class RetryingWriter:
    """A consumer's work in the database, repeated through outages. Belongs to one thread."""

    def __init__(self, writer: BatchWriter, refused_seconds: float | None = None) -> None:
        """Set up the writer.

        Args:
            refused_seconds: How long to repeat the work after an error that does not pass by
                waiting, such as a missing right. None: without an end, because somebody may
                correct it.
        """
        self.writer = writer
        self._refused_seconds = refused_seconds
        self._abandoned = Event()
        self.failing = False  # the work is being repeated after an error

    def stop_waiting(self) -> None:
        """Give up work that waits for the database. A running statement is not interrupted."""
        self._abandoned.set()

    def allow_waiting(self) -> None:
        """Undo `stop_waiting`, for new work."""
        self._abandoned.clear()

    def write(self, batch: Batch, claims: Claims, high: Ends) -> WriteResult:
        """Store a batch. Waits while the database is not available.

        Raises:
            FencedError: Another consumer has claimed or advanced one of the partitions.
            AbandonedError: `stop_waiting` was called.
            RefusedByDatabaseError: The database refused the batch for `refused_seconds`.
        """
        return self._repeat_until_done(lambda retry: self._write_once(batch, claims, high, retry))

    def claim(
        self,
        sources: Mapping[TopicPartition, tuple[int, int | None]],
        cut: Container[TopicPartition] = (),
    ) -> list[Claim]:
        """Claim partitions in the ledger.

        Args:
            sources: Each with the first offset at the broker and, if its log may have been
                truncated, the end offset.
            cut: See `ledger.claim_partition`.

        Raises:
            AbandonedError, RefusedByDatabaseError: See `write`.
        """

        def once(_: bool) -> list[Claim]:
            connection = self.writer.connection
            with connection.transaction():
                # Always in the same order: two consumers that claim at once must not deadlock.
                return [
                    ledger.claim_partition(connection, partition, *sources[partition], cut)
                    for partition in sorted(sources)
                ]

        claims = self._repeat_until_done(once)
        metrics.LOGS_CUT.inc(sum(claim.epoch == 1 and claim.source.cuts > 0 for claim in claims))
        return claims

    def run_job(self, job: Callable[[Connection], object]) -> None:
        """Run a job once and log a failure. For jobs that are repeated anyway."""
        try:
            job(self.writer.connection)
        except psycopg.Error as error:
            logger.warning("not written, the next attempt follows: %s", describe(error))
            self.writer.close()

    def _write_once(self, batch: Batch, claims: Claims, high: Ends, retry: bool) -> WriteResult:
        # A commit whose answer was lost may succeed: the ledger is asked before each attempt.
        if retry and self._is_written(batch, claims):
            return _make_assumed_result(batch)
        with metrics.WRITE_SECONDS.time():
            try:
                return self.writer.write(batch, claims, high)
            except FencedError:
                if retry and self._is_written(batch, claims):
                    return _make_assumed_result(batch)
                raise

    def _is_written(self, batch: Batch, claims: Claims) -> bool:
        ends = {claims[source]: progress.next for source, progress in batch.progress.items()}
        return ledger.is_at_offsets(self.writer.connection, ends)

    def _repeat_until_done(self, once: Callable[[bool], T]) -> T:
        pause, retry = FIRST_PAUSE_SECONDS, False
        refused_since: float | None = None
        while True:
            try:
                result = once(retry)
            except psycopg.Error as error:
                _log_error(error)
                if not _is_lasting(error):
                    refused_since = None
                elif refused_since is None:
                    refused_since = time.monotonic()
                if self._is_refused_long_enough(refused_since):
                    raise RefusedByDatabaseError(_explain_refusal(error)) from error
                self.failing = True
                metrics.LOGIN_REFUSED.labels("postgresql").set(is_refused(error))
                metrics.RETRIES.inc()
                self.writer.close()
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    self.run_job(terminate_frozen)
            else:
                self.failing = False
                metrics.LOGIN_REFUSED.labels("postgresql").set(0)
                return result
            if self._abandoned.wait(pause):
                self.failing = False
                raise AbandonedError
            pause, retry = min(pause * 2, LONGEST_PAUSE_SECONDS), True

    def _is_refused_long_enough(self, refused_since: float | None) -> bool:
        if refused_since is None or self._refused_seconds is None:
            return False
        return time.monotonic() - refused_since >= self._refused_seconds


def _make_assumed_result(batch: Batch) -> WriteResult:
    """Return the result of a batch that the ledger has counted although the answer was lost."""
    return WriteResult({source: progress.good for source, progress in batch.progress.items()}, {})


def _is_lasting(error: psycopg.Error) -> bool:
    """Return whether an error stays until somebody corrects its cause."""
    return is_refused(error) or is_permanent(error)


def _explain_refusal(error: psycopg.Error) -> str:
    """Return what the database refuses, and who can correct it."""
    if (sentence := explain_no_connection(error)) is not None:
        return f"{sentence}. Nothing is lost"
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


def _log_error(error: psycopg.Error) -> None:
    if _is_lasting(error):
        logger.error("%s; trying again", _explain_refusal(error))
    elif (sentence := explain_no_connection(error)) is not None:
        logger.warning("%s. Nothing is lost; trying again", sentence)
    elif classify_error(error) is ErrorCause.OUTAGE:
        logger.warning("the database is not available, trying again: %s", describe(error))
    else:
        logger.error(
            "the database refuses to store the batch: check its schema and its log. No message is "
            "lost or quarantined; trying again: %s",
            describe(error),
        )


class WorkerThread:
    """A daemon thread that runs jobs in order.

    The process can end while a job waits for a server that does not answer.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run a job after all jobs that were submitted before."""
        future: Future[T] = Future()

        def run() -> None:
            if self._closed:
                future.cancel()
                return
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(run)
        return future

    def close(self, seconds: float) -> bool:
        """Finish the jobs, for at most `seconds`; those that have not begun by then are cancelled.

        May be called again, to wait longer. Returns whether the thread has ended.
        """
        self._jobs.put(None)
        self._thread.join(seconds)
        self._closed = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
