"""Writes heartbeats of the consumer, end offsets and forecasts of losses to the ledger."""

import logging
import time
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial

import psycopg

from history.common.error_text import describe
from ingest.consumer.writers import WorkerThread
from ingest.kafka.retention_forecast import LogForecast
from ingest.store import ledger
from ingest.store.claim import Claim
from ingest.store.ledger import Connection
from ingest.store.session import DatabaseSession

logger = logging.getLogger(__name__)

# How often to call `ledger.record_pace`, which writes a row only every ten minutes.
PACE_SECONDS = 60.0


class HeartbeatWriter:
    """Writes heartbeats in a separate thread and connection, so that batches do not delay them.

    The `submit` methods never wait. A write that fails is logged and not repeated: the next
    heartbeat follows in a few seconds.
    """

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session
        self._worker = WorkerThread("beats")
        self._last: Future[None] | None = None
        self._pace_due = 0.0

    def submit_heartbeat(
        self,
        ends: Mapping[Claim, int | None],
        answered: Container[Claim],
        seen_at: float | None,
    ) -> None:
        """Submit a heartbeat. Do nothing while the previous heartbeat is still being written.

        The parameters are those of `ledger.record_heartbeat`.
        """
        if self._last is None or self._last.done():
            heartbeat = partial(
                ledger.record_heartbeat,
                ends=ends,
                seen_at=seen_at,
                beat_at=time.monotonic(),
                answered=answered,
            )
            self._last = self._submit_job(heartbeat)
            if time.monotonic() >= self._pace_due:
                self._pace_due = time.monotonic() + PACE_SECONDS
                self._submit_job(ledger.record_pace)

    def wait(self, seconds: float) -> None:
        """Wait until the last heartbeat is written, for at most `seconds`."""
        if self._last is not None:
            wait([self._last], seconds)

    def submit_forecast(
        self, log_forecasts: Mapping[Claim, LogForecast], reading_rate: float | None
    ) -> None:
        """Submit a job that writes loss forecasts to the ledger. Safe in any thread."""
        self._submit_job(
            partial(ledger.record_forecast, log_forecasts=log_forecasts, reading_rate=reading_rate)
        )

    def submit_topics(
        self, existing: Sequence[str], absent: Sequence[str], asked_at: float
    ) -> None:
        """Submit a job that records which topics exist and which are absent.

        The parameters are those of `ledger.record_topics`.
        """
        self._submit_job(
            partial(ledger.record_topics, existing=existing, absent=absent, asked_at=asked_at)
        )

    def close(self, seconds: float) -> None:
        """End the thread. Cancel its running statement, and wait at most `seconds`."""
        if not self._worker.close(0):
            self._session.break_connection()
        if self._worker.close(seconds):
            self._session.close()

    def _submit_job(self, job: Callable[[Connection], None]) -> Future[None]:
        return self._worker.submit(partial(self._run_job, job))

    def _run_job(self, job: Callable[[Connection], None]) -> None:
        try:
            job(self._session.connection)
        except psycopg.Error as error:
            logger.warning(
                "the heartbeat was not written (%s); the next attempt follows in a few seconds",
                describe(error),
            )
            self._session.close()
