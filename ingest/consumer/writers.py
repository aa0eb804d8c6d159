"""Writes batches to the database in threads, and repeats the work during outages.

`WriterThreads` is what the loop uses. `RetryingWriter` does the work of one thread.
"""

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

from history.common.database_errors import explain_no_connection, is_refused
from history.common.error_text import describe
from history.common.explained_errors import ExplainedError
from ingest.consumer import metrics
from ingest.consumer.lanes import Flight, NoFlightError
from ingest.messages.message import TopicPartition
from ingest.store import ledger
from ingest.store.batch import Batch
from ingest.store.claim import Claim, Claims, Ends
from ingest.store.ledger import Connection, FencedError
from ingest.store.session import terminate_frozen
from ingest.store.sqlstate import ErrorCause, classify_error, is_permanent
from ingest.store.transaction import BatchWriter, WriteResult

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


class WriterThreads:
    """The writers of a consumer, one for each lane. A writer has the number of its lane.

    Each writer has its own thread and connection. No method waits, except `end` and the `wait`
    methods. The first writer also claims partitions and runs the jobs of `submit_job`, in the order
    in which they were submitted.
    """

    def __init__(self, writers: Sequence[RetryingWriter]) -> None:
        self._threads = [_WriterThread(writer) for writer in writers]

    def write(self, number: int, flight: Flight, end_offsets: Ends) -> None:
        """Begin to write a batch. When it is written, `list_done` returns the writer's number.

        Args:
            number: The number of the writer.
            end_offsets: The end offset of each partition; None if it is not known.
        """
        thread = self._threads[number]
        thread.writer.allow_waiting()
        thread.launched_at = time.monotonic()
        thread.written = thread.worker.submit(
            partial(thread.writer.write, flight.batch, flight.claims, end_offsets)
        )

    @property
    def writing(self) -> bool:
        """Whether a batch is being written, or a result waits for `take_result`."""
        return any(thread.written is not None for thread in self._threads)

    def list_done(self) -> list[int]:
        """Return the numbers of the writers that have a result to take."""
        return [
            number
            for number, thread in enumerate(self._threads)
            if thread.written is not None and thread.written.done()
        ]

    def take_result(self, number: int) -> WriteResult:
        """Take the result of a finished write.

        Raises:
            FencedError, AbandonedError, RefusedByDatabaseError: See `RetryingWriter.write`.
        """
        thread = self._threads[number]
        written, thread.written = thread.written, None
        if written is None:
            raise NoFlightError(
                f"writer {number} has no result: it got no batch, or the result was taken already"
            )
        return written.result()

    def wait_for_one(self, seconds: float) -> bool:
        """Wait until one write has ended. Return False if none ended in this time."""
        return bool(wait(self._list_futures(), max(0.0, seconds), FIRST_COMPLETED).done)

    def wait_for_all(self, seconds: float) -> bool:
        """Wait until all writes have ended. Return False if one has not ended in this time."""
        return not wait(self._list_futures(), max(0.0, seconds), ALL_COMPLETED).not_done

    def claim(
        self,
        bounds: Mapping[TopicPartition, tuple[int, int | None]],
        truncated: Container[TopicPartition],
    ) -> Future[list[Claim]]:
        """Begin to claim partitions. Call it only while no batch is being written.

        The parameters are those of `RetryingWriter.claim`.
        """
        first = self._threads[0]
        first.writer.allow_waiting()
        return first.worker.submit(partial(first.writer.claim, bounds, truncated))

    def submit_job(self, job: Callable[[Connection], object], purpose: str) -> Future[None]:
        """Begin to run a job on the first writer. See `RetryingWriter.run_job`."""
        first = self._threads[0]
        return first.worker.submit(partial(first.writer.run_job, job, purpose))

    def abandon_waiting_work(self) -> None:
        """Give up all work that waits for the database. Running statements are not interrupted."""
        for thread in self._threads:
            thread.writer.stop_waiting()

    def get_oldest_age(self) -> float:
        """Return how many seconds ago the oldest unfinished write began, or 0 if there is none.

        Thread-safe.
        """
        return max(thread.age for thread in self._threads)

    def is_database_up(self) -> bool:
        """Return False if a writer is repeating work after a database error, otherwise True.

        Thread-safe.
        """
        return not any(thread.writer.failing for thread in self._threads)

    def end(self, seconds: float) -> None:
        """End the threads.

        Claims and the jobs of `submit_job` have `seconds` to finish. If a batch is being written,
        this method does not wait for it: the connection is broken at once, PostgreSQL rolls the
        batch back, and the next consumer reads the messages again.
        """
        until = time.monotonic() + seconds
        for thread in self._threads:
            has_ended = thread.worker.close(0 if thread.pending else until - time.monotonic())
            if not has_ended:
                thread.writer.batch_writer.break_connection()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.worker.close(max(0.0, until - time.monotonic())):
                thread.writer.batch_writer.close()

    def _list_futures(self) -> list[Future[WriteResult]]:
        return [thread.written for thread in self._threads if thread.written is not None]


class _WriterThread:
    """The thread of one writer, with its current or last write."""

    def __init__(self, writer: RetryingWriter) -> None:
        self.writer = writer
        self.worker = WorkerThread("database")
        self.written: Future[WriteResult] | None = None  # None once the result is taken
        self.launched_at = 0.0

    @property
    def pending(self) -> bool:
        """Whether the write has not ended yet."""
        return self.written is not None and not self.written.done()

    @property
    def age(self) -> float:
        """How many seconds ago the write began, or 0 if no write is running."""
        return time.monotonic() - self.launched_at if self.pending else 0.0


class AbandonedError(Exception):
    """Raised when work was given up after a failed attempt.

    That attempt may have been committed nevertheless, if PostgreSQL's answer was lost.
    """


class RefusedByDatabaseError(ExplainedError):
    """Raised when the database has refused work for too long. No part of it was committed."""


class RetryingWriter:
    """Does a consumer's work in the database, and repeats it until it succeeds.

    Only one thread may use a writer. Other threads may only call `stop_waiting`.
    """

    def __init__(self, batch_writer: BatchWriter, refused_seconds: float | None = None) -> None:
        """Set up the writer.

        Args:
            refused_seconds: How long to repeat work that fails with a lasting error, such as a
                missing right. None: for ever, because an operator may correct the cause.
        """
        self.batch_writer = batch_writer
        self._refused_seconds = refused_seconds
        self._abandoned = Event()
        self.failing = False  # True while work is repeated after an error

    def stop_waiting(self) -> None:
        """Give up work that waits for the database. A running statement is not interrupted."""
        self._abandoned.set()

    def allow_waiting(self) -> None:
        """Undo `stop_waiting`: work that begins now waits while the database is not available."""
        self._abandoned.clear()

    def write(self, batch: Batch, claims: Claims, end_offsets: Ends) -> WriteResult:
        """Store a batch. Waits while the database is not available.

        The parameters are those of `BatchWriter.write`.

        Raises:
            FencedError: Another consumer has claimed or advanced one of the partitions.
            AbandonedError: `stop_waiting` was called.
            RefusedByDatabaseError: The database refused the batch for `refused_seconds`.
        """
        return self._repeat_until_done(
            lambda is_retry: self._write_once(batch, claims, end_offsets, is_retry)
        )

    def claim(
        self,
        bounds: Mapping[TopicPartition, tuple[int, int | None]],
        truncated: Container[TopicPartition] = (),
    ) -> list[Claim]:
        """Claim partitions in the ledger.

        Args:
            bounds: The first offset and the end offset at the broker, by partition. The end
                offset of a log that may have been truncated is compared with the ledger; for
                other logs it is None.
            truncated: The partitions with a log that was certainly truncated.

        Raises:
            AbandonedError, RefusedByDatabaseError: See `write`.
        """

        def claim_once(_: bool) -> list[Claim]:
            connection = self.batch_writer.connection
            with connection.transaction():
                # Always in the same order: two consumers that claim at once must not deadlock.
                return [
                    ledger.claim_partition(connection, partition, *bounds[partition], truncated)
                    for partition in sorted(bounds)
                ]

        claims = self._repeat_until_done(claim_once)
        metrics.LOGS_TRUNCATED.inc(sum(claim.is_first_after_truncation for claim in claims))
        return claims

    def run_job(self, job: Callable[[Connection], object], purpose: str) -> None:
        """Run a job once. Log a failure, without raising an error.

        Use it only for jobs that the caller will submit again.

        Args:
            purpose: What the job does, for the log: "recording ...".
        """
        try:
            job(self.batch_writer.connection)
        except psycopg.Error as error:
            logger.warning("%s failed; the consumer tries again: %s", purpose, describe(error))
            self.batch_writer.close()

    def _write_once(
        self, batch: Batch, claims: Claims, end_offsets: Ends, is_retry: bool
    ) -> WriteResult:
        """Make one attempt to store a batch, unless an earlier attempt has stored it.

        An earlier attempt may have been committed although PostgreSQL's answer was lost. So a retry
        first checks in the ledger whether it was. If the ledger then refuses the write, the retry
        checks once more: the earlier attempt may have been committed in between.
        """
        if is_retry and self._is_written(batch, claims):
            return _make_assumed_result(batch)
        with metrics.WRITE_SECONDS.time():
            try:
                return self.batch_writer.write(batch, claims, end_offsets)
            except FencedError:
                if is_retry and self._is_written(batch, claims):
                    return _make_assumed_result(batch)
                raise

    def _is_written(self, batch: Batch, claims: Claims) -> bool:
        ends = {claims[partition]: progress.next for partition, progress in batch.progress.items()}
        return ledger.is_at_offsets(self.batch_writer.connection, ends)

    def _repeat_until_done(self, attempt: Callable[[bool], T]) -> T:
        """Make attempts until one succeeds, with growing pauses, and return its result.

        Args:
            attempt: Called with False the first time, and with True each time after that.

        Raises:
            AbandonedError, RefusedByDatabaseError: See `write`.
        """
        pause, is_retry = FIRST_PAUSE_SECONDS, False
        refused_since: float | None = None
        while True:
            try:
                result = attempt(is_retry)
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
                self.batch_writer.close()
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    self.run_job(terminate_frozen, "ending sessions of frozen consumers")
            else:
                self.failing = False
                metrics.LOGIN_REFUSED.labels("postgresql").set(0)
                return result
            if self._abandoned.wait(pause):
                self.failing = False
                raise AbandonedError
            pause, is_retry = min(pause * 2, LONGEST_PAUSE_SECONDS), True

    def _is_refused_long_enough(self, refused_since: float | None) -> bool:
        if refused_since is None or self._refused_seconds is None:
            return False
        return time.monotonic() - refused_since >= self._refused_seconds


def _make_assumed_result(batch: Batch) -> WriteResult:
    """Make a result for a batch that was committed, although PostgreSQL's answer was lost.

    How many messages were repeated or refused is not known: all count as stored.
    """
    return WriteResult({name: progress.good for name, progress in batch.progress.items()}, {})


def _is_lasting(error: psycopg.Error) -> bool:
    """Return whether an error stays until somebody corrects its cause."""
    return is_refused(error) or is_permanent(error)


def _explain_refusal(error: psycopg.Error) -> str:
    """Return a sentence that says what the database refuses, and what an operator must do."""
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
    """A thread that runs jobs in order.

    It is a daemon thread, so that the process can end while a job waits for a server that does
    not answer.
    """

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Queue a job: it runs after the jobs that were submitted earlier. Does not wait."""
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
        """Wait at most `seconds` for the jobs, then cancel the jobs that have not begun.

        Returns:
            Whether the thread has ended. If a job is still running, call `close` again to wait.
        """
        self._jobs.put(None)
        self._thread.join(seconds)
        self._closed = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
