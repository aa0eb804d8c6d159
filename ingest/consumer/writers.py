"""The threads that write to the database: one for each lane, each with a connection of its own."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, wait
from functools import partial

from ingest.consumer.lanes import Flight
from ingest.consumer.worker import Worker
from ingest.source.message import TopicPartition
from ingest.store.batch import Claim, Ends
from ingest.store.ledger import Connection
from ingest.store.retrying import RetryingWriter
from ingest.store.transaction import Written


class _Thread:
    """The thread of one writer, and the write that it was given last."""

    def __init__(self, writer: RetryingWriter) -> None:
        self.writer = writer
        self.worker = Worker("database")
        self.written: Future[Written] | None = None
        self.launched_at = 0.0

    @property
    def pending(self) -> bool:
        return self.written is not None and not self.written.done()

    @property
    def age(self) -> float:
        return time.monotonic() - self.launched_at if self.pending else 0.0


class Writers:
    """Numbered as the lanes. Never waits, except where it says so. The first writer also claims,
    and does the jobs of note(), in the order in which they were given."""

    def __init__(self, writers: Sequence[RetryingWriter]) -> None:
        self._threads = [_Thread(writer) for writer in writers]

    def write(self, number: int, flight: Flight, high: Ends) -> None:
        """Begin to write a batch. done() tells when it is written, result() what became of it."""
        thread = self._threads[number]
        thread.writer.proceed()
        thread.launched_at = time.monotonic()
        thread.written = thread.worker.submit(
            partial(thread.writer.write, flight.batch, flight.claims, high)
        )

    @property
    def writing(self) -> bool:
        """Whether there is a write whose result was not taken."""
        return any(thread.written is not None for thread in self._threads)

    def done(self) -> list[int]:
        """The writers whose write has ended, and whose result was not taken."""
        return [
            number
            for number, thread in enumerate(self._threads)
            if thread.written is not None and thread.written.done()
        ]

    def result(self, number: int) -> Written:
        """Take the result of a write that is done. Raises what RetryingWriter.write() raised."""
        thread = self._threads[number]
        written, thread.written = thread.written, None
        assert written is not None  # noqa: S101 - the caller's contract
        return written.result()

    def wait_for_one(self, seconds: float) -> bool:
        """Wait until a write has ended. False: none did in this time."""
        return bool(wait(self._results(), max(0.0, seconds), FIRST_COMPLETED).done)

    def wait_for_all(self, seconds: float) -> bool:
        """Wait until all writes have ended. False: some did not in this time."""
        return not wait(self._results(), max(0.0, seconds), ALL_COMPLETED).not_done

    def claim(
        self,
        sources: Mapping[TopicPartition, tuple[int, int | None]],
        cut: Container[TopicPartition],
    ) -> Future[list[Claim]]:
        """Claim partitions, as RetryingWriter.claim() does. Only while nothing is written."""
        first = self._threads[0]
        first.writer.proceed()
        return first.worker.submit(partial(first.writer.claim, sources, cut))

    def note(self, job: Callable[[Connection], object]) -> Future[None]:
        """Run a job once; a failure is logged."""
        first = self._threads[0]
        return first.worker.submit(partial(first.writer.note, job))

    def abandon(self) -> None:
        """Stop work that waits for the database. A statement that runs is not interrupted."""
        for thread in self._threads:
            thread.writer.abandon()

    def oldest_seconds(self) -> float:
        """The age of the oldest batch that is being written; 0 if there is none. Thread-safe."""
        return max(thread.age for thread in self._threads)

    def up(self) -> bool:
        """Whether no writer repeats its work after an error. Thread-safe."""
        return not any(thread.writer.failing for thread in self._threads)

    def end(self, seconds: float) -> None:
        """End the threads. Other work than writes gets this long; what does not end is cut off."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            ended = thread.worker.close(0 if thread.pending else until - time.monotonic())
            if not ended:
                thread.writer.writer.cut()
        until = time.monotonic() + seconds
        for thread in self._threads:
            if thread.worker.close(max(0.0, until - time.monotonic())):
                thread.writer.writer.close()

    def _results(self) -> list[Future[Written]]:
        return [thread.written for thread in self._threads if thread.written is not None]
