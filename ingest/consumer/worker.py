"""A thread for jobs that may wait for a server: they run in order, and the end waits for none."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A daemon thread: the process can end while a job waits for a server that does not answer."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closed = False
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run a job after all that were submitted before."""
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
        """Finish the jobs, for at most this long; those that have not begun by then are cancelled.
        Returns whether the thread has ended. May be called again, to wait longer."""
        self._jobs.put(None)
        self._thread.join(seconds)
        self._closed = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
