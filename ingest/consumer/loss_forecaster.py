"""Forecasts when the brokers delete messages that this consumer has not read."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.consumer.positions import Positions
from ingest.consumer.writers import WorkerThread
from ingest.kafka.client import UnreachableError
from ingest.kafka.retention_forecast import Outlook
from ingest.kafka.source import GroupMember
from ingest.messages.message import KafkaPartition

logger = logging.getLogger(__name__)

# When to ask first: a consumer that ends at once does not ask.
FIRST_SECONDS = 3.0
FORECAST_SECONDS = 30.0
# The rate of reading is measured over this time, while enough messages stay unread.
# With fewer unread messages it would be the rate of the senders.
MEASURE_SECONDS = 5.0
MEASURE_UNREAD = 1_000
RATE_WEIGHT = 0.3

AskOutlooks = Callable[[Mapping[KafkaPartition, int | None]], dict[KafkaPartition, Outlook]]


class LossForecaster:
    """Asks for forecasts on its own thread. Its methods never wait."""

    def __init__(self, ask: AskOutlooks, beats: HeartbeatWriter) -> None:
        self._ask = ask
        self._beats = beats
        self._worker = WorkerThread("forecast")
        self._asked: Future[dict[KafkaPartition, Outlook]] | None = None
        self._due = time.monotonic() + FIRST_SECONDS
        self._measured: tuple[float, int, int] | None = None
        self.reading_rate: float | None = None

    def ask_when_due(self, source: GroupMember, positions: Positions) -> None:
        """Record an answer that has come, and ask again if that is due."""
        self._measure(source, positions)
        self._record_answer(positions)
        if self._asked is None and time.monotonic() >= self._due and positions.claimed:
            self._due = time.monotonic() + FORECAST_SECONDS
            nexts = {place: claimed.expected for place, claimed in positions.claimed.items()}
            self._asked = self._worker.submit(lambda: self._ask(nexts))

    def close(self) -> None:
        """End the thread without waiting for an answer."""
        self._worker.close(0)

    def _record_answer(self, positions: Positions) -> None:
        if self._asked is None or not self._asked.done():
            return
        future, self._asked = self._asked, None
        try:
            outlooks = future.result()
        except UnreachableError as error:
            logger.warning("no forecast of losses: %s", error)
            return
        except Exception:  # reading must go on, whatever a broker answered
            logger.exception("no forecast of losses")
            return
        outlooks_by_claim = {
            positions.claimed[place].claim: outlook
            for place, outlook in outlooks.items()
            if place in positions.claimed
        }
        self._beats.submit_forecast(outlooks_by_claim, self.reading_rate)

    def _measure(self, source: GroupMember, positions: Positions) -> None:
        """Measure the rate of reading while there are enough unread messages."""
        now = time.monotonic()
        position = sum(claimed.expected for claimed in positions.claimed.values())
        before, generation = self._measured, positions.generation
        if before is None or before[2] != generation:
            self._measured = (now, position, generation)
        elif now - before[0] >= MEASURE_SECONDS:
            self._measured = (now, position, generation)
            highs = (
                (source.get_high_watermark(p), c.expected) for p, c in positions.claimed.items()
            )
            unread = sum(max(0, high - expected) for high, expected in highs if high is not None)
            rate = (position - before[1]) / (now - before[0])
            if rate > 0 and unread > MEASURE_UNREAD:
                old = rate if self.reading_rate is None else self.reading_rate
                self.reading_rate = old + RATE_WEIGHT * (rate - old)
