"""Ends requests that last too long or whose client has left: cancels what they ask PostgreSQL.

One thread of a web process watches all its requests, so a request costs no timer, and its
statements no statement_timeout of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from history.base.error_text import describe
from history.deadline import ClientLeftError, Deadline

LOOK_S: Final = 0.5
# Between two cancellations of one request: it may begin another statement after the first.
AGAIN_S: Final = 0.1
CANCEL_S: Final = 2.0
# The end of a request waits so long for its cancellation; then its connection is doubtful.
END_S: Final = 0.2

log = logging.getLogger(__name__)


class Guard:
    """The work for one request. database: Django's connection of the thread that does it."""

    def __init__(self, deadline: Deadline, database: Any) -> None:
        self.deadline = deadline
        self._database = database
        # Held while a cancellation is under way, so that it never meets the statement of another
        # request that was given the same connection.
        self._lock = threading.Lock()
        self._over = False
        # A cancellation got no answer: PostgreSQL may still act on it, whatever runs then.
        self.doubtful = False

    def client_left(self) -> None:
        self.deadline.stop(ClientLeftError)
        _watch.wake()

    def end(self) -> None:
        """After this nothing is cancelled any more, unless it is `doubtful`."""
        self._over = True
        if self._lock.acquire(timeout=END_S):
            self._lock.release()
        else:
            self.doubtful = True

    def give_up(self) -> None:
        """Close the connection, so that no other request gets it. For the thread of the request."""
        found: psycopg.Connection[Any] | None = self._database.connection
        if found is not None:
            log.warning("a connection to PostgreSQL is closed: its cancellation got no answer")
            found.close()
            self._database.close()

    def cancel_until_over(self) -> None:
        """Cancel every statement until the request ends, or a cancellation does not succeed."""
        while not self._over and not self.doubtful:
            self.cancel()
            time.sleep(AGAIN_S)

    def cancel(self) -> None:
        """Cancel the statement that PostgreSQL works on, if there is one."""
        with self._lock:
            found: psycopg.Connection[Any] | None = self._database.connection
            if self._over or found is None:
                return
            try:
                if found.info.transaction_status is TransactionStatus.ACTIVE:
                    found.cancel_safe(timeout=CANCEL_S)
            except psycopg.Error as error:
                self.doubtful = True
                log.warning("a statement cannot be cancelled: %s", describe(error))


class Watch:
    """The thread, and the requests that it watches. Each one that must end gets a thread of its own
    to cancel it: PostgreSQL may take long to accept a cancellation."""

    def __init__(self) -> None:
        self._guards: set[Guard] = set()
        self._ending: set[Guard] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, guard: Guard) -> Iterator[None]:
        """Watch this request while the block runs."""
        with self._changed:
            self._guards.add(guard)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._guards.discard(guard)
                self._ending.discard(guard)
            guard.end()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def stop_all(self) -> None:
        """The process ends: so does the work for every request."""
        with self._changed:
            for guard in self._guards:
                guard.deadline.stop(ClientLeftError)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due():
                    self._changed.wait(LOOK_S)
                due = self._due()
                self._ending.update(due)
            for guard in due:
                threading.Thread(target=guard.cancel_until_over, daemon=True).start()

    def _due(self) -> list[Guard]:
        """Those that must end and have no thread for it."""
        left = self._guards - self._ending
        return [guard for guard in left if guard.deadline.why is not None]


_watch: Final = Watch()
over: Final = _watch.over
stop_all: Final = _watch.stop_all
