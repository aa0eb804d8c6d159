"""The heartbeats of a consumer in the ledger: who holds a partition, its end, when it loses."""

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial

import psycopg

from history.base.error_text import describe
from ingest.consumer.worker import Worker
from ingest.forecast import Outlook
from ingest.store import ledger
from ingest.store.batch import Claim
from ingest.store.ledger import Connection
from ingest.store.session import Session

logger = logging.getLogger(__name__)

PACE_SECONDS = 60.0


class Beats:
    """Writes them on a thread and a connection of its own: no write of a batch delays them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._worker = Worker("beats")
        self._last: Future[None] | None = None
        self._pace_due = 0.0

    def give(
        self,
        ends: Mapping[Claim, int | None],
        answered: Container[Claim],
        seen_at: float | None,
    ) -> None:
        """Write a beat, as ledger.heartbeat() does, if the last one is written. Never waits."""
        if self._last is None or self._last.done():
            beat = partial(
                ledger.heartbeat,
                ends=ends,
                seen_at=seen_at,
                given_at=time.monotonic(),
                answered=answered,
            )
            self._last = self._worker.submit(partial(self._do, beat))
            if time.monotonic() >= self._pace_due:
                self._pace_due = time.monotonic() + PACE_SECONDS
                self._worker.submit(partial(self._do, ledger.note_pace))

    def wait(self, seconds: float) -> None:
        """Wait until the last beat is written, at most this long."""
        if self._last is not None:
            wait([self._last], seconds)

    def foresee(self, found: Mapping[Claim, Outlook], reading_rate: float | None) -> None:
        """Write when messages are lost: ledger.foresee(). Never waits. Safe in any thread."""
        self._worker.submit(
            partial(self._do, partial(ledger.foresee, found=found, reading_rate=reading_rate))
        )

    def note_topics(self, there: Sequence[str], absent: Sequence[str], asked_at: float) -> None:
        """Write which topics exist: ledger.note_topics(). Never waits."""
        noted = partial(ledger.note_topics, there=there, absent=absent, asked_at=asked_at)
        self._worker.submit(partial(self._do, noted))

    def close(self, seconds: float) -> None:
        """End, at most this long after the database stopped answering."""
        if not self._worker.close(0):
            self._session.cut()
        if self._worker.close(seconds):
            self._session.close()

    def _do(self, job: Callable[[Connection], None]) -> None:
        try:
            job(self._session.connection)
        except psycopg.Error as error:
            logger.warning("no heartbeat is written, the next follows: %s", describe(error))
            self._session.close()
