"""The consumer's view of losses."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from ingest.consumer.heartbeats import Beats
from ingest.consumer.positions import Positions
from ingest.consumer.worker import Worker
from ingest.forecast import Outlook
from ingest.source.client import Unreachable
from ingest.source.kafka import Source
from ingest.source.message import KafkaPartition

logger = logging.getLogger(__name__)

# A consumer that ends at once asks nothing.
FIRST_SECONDS = 3.0
FORECAST_SECONDS = 30.0
# Measured over at least this long, while so many stay unread: else it is the senders' rate.
MEASURE_SECONDS = 5.0
MEASURE_UNREAD = 1_000
RATE_WEIGHT = 0.3

Ask = Callable[[Mapping[KafkaPartition, int | None]], dict[KafkaPartition, Outlook]]


class Foresight:
    """Called by the thread of the consumer's loop; never waits."""

    def __init__(self, ask: Ask, beats: Beats) -> None:
        self._ask = ask
        self._beats = beats
        self._worker = Worker("forecast")
        self._asked: Future[dict[KafkaPartition, Outlook]] | None = None
        self._due = time.monotonic() + FIRST_SECONDS
        self._measured: tuple[float, int, int] | None = None
        self.reading_rate: float | None = None

    def turn(self, source: Source, positions: Positions) -> None:
        """Take the answer that has come, and ask again if that is due."""
        self._measure(source, positions)
        self._take(positions)
        if self._asked is None and time.monotonic() >= self._due and positions.claimed:
            self._due = time.monotonic() + FORECAST_SECONDS
            nexts = {place: each.expected for place, each in positions.claimed.items()}
            self._asked = self._worker.submit(lambda: self._ask(nexts))

    def close(self) -> None:
        """End; waits for no answer."""
        self._worker.close(0)

    def _take(self, positions: Positions) -> None:
        if self._asked is None or not self._asked.done():
            return
        asked, self._asked = self._asked, None
        try:
            known = asked.result()
        except Unreachable as error:
            logger.warning("no forecast of losses: %s", error)
            return
        except Exception:  # reading must go on, whatever a broker answered
            logger.exception("no forecast of losses")
            return
        found = {
            positions.claimed[place].claim: each
            for place, each in known.items()
            if place in positions.claimed
        }
        self._beats.foresee(found, self.reading_rate)

    def _measure(self, source: Source, positions: Positions) -> None:
        """Measure the rate of reading while there is more to read than is read."""
        now = time.monotonic()
        at = sum(each.expected for each in positions.claimed.values())
        before, generation = self._measured, positions.generation
        if before is None or before[2] != generation:
            self._measured = (now, at, generation)
        elif now - before[0] >= MEASURE_SECONDS:
            self._measured = (now, at, generation)
            highs = ((source.high_watermark(p), c.expected) for p, c in positions.claimed.items())
            unread = sum(max(0, high - expected) for high, expected in highs if high is not None)
            rate = (at - before[1]) / (now - before[0])
            if rate > 0 and unread > MEASURE_UNREAD:
                old = rate if self.reading_rate is None else self.reading_rate
                self.reading_rate = old + RATE_WEIGHT * (rate - old)
