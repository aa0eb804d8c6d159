"""The part of a consumer that forecasts when the brokers will delete unread messages."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.consumer.positions import Positions
from ingest.consumer.writers import WorkerThread
from ingest.kafka.client import UnreachableError
from ingest.kafka.retention_forecast import LogForecast
from ingest.kafka.source import GroupMember
from ingest.messages.message import KafkaPartition

logger = logging.getLogger(__name__)

# The time before the first forecast. A short run ends earlier, and makes no forecast.
FIRST_SECONDS = 3.0
FORECAST_SECONDS = 30.0
# The rate of reading is measured over at least this time.
MEASURE_SECONDS = 5.0
# The rate of reading is measured only while more messages than this are unread. A consumer with
# fewer unread messages waits for producers, so that its rate would be theirs.
MEASURE_UNREAD = 1_000
# The weight of a new measurement in the mean rate; the earlier mean has the rest.
RATE_WEIGHT = 0.3

# Fetches the offsets and the loss forecasts of topic partitions. The argument has the next offset
# to read of each topic partition.
AskLogForecasts = Callable[[Mapping[KafkaPartition, int | None]], dict[KafkaPartition, LogForecast]]


class RateSample(NamedTuple):
    """How far a consumer had read at one moment."""

    at: float  # time.monotonic()
    position: int  # the sum of the next offsets of all claimed partitions
    claims_revision: int  # `Positions.claims_revision` when the sample was taken


class LossForecaster:
    """Forecasts which unread messages the brokers will delete.

    The forecasts are written to the ledger. A separate thread waits for the brokers, so the methods
    of this class never wait.
    """

    def __init__(self, ask: AskLogForecasts, heartbeats: HeartbeatWriter) -> None:
        self._ask = ask
        self._heartbeats = heartbeats
        self._worker = WorkerThread("forecast")
        self._request: Future[dict[KafkaPartition, LogForecast]] | None = None
        self._due = time.monotonic() + FIRST_SECONDS
        self._sample: RateSample | None = None
        self.reading_rate: float | None = None

    def ask_when_due(self, member: GroupMember, positions: Positions) -> None:
        """Submit a finished forecast to the ledger, and begin the next forecast if it is due."""
        self._measure_rate(member, positions)
        self._record_answer(positions)
        if self._request is None and time.monotonic() >= self._due and positions.claimed:
            self._due = time.monotonic() + FORECAST_SECONDS
            next_offsets = {name: claimed.expected for name, claimed in positions.claimed.items()}
            self._request = self._worker.submit(lambda: self._ask(next_offsets))

    def close(self) -> None:
        """End the thread that makes forecasts, without waiting for the brokers."""
        self._worker.close(0)

    def _record_answer(self, positions: Positions) -> None:
        if self._request is None or not self._request.done():
            return
        future, self._request = self._request, None
        try:
            log_forecasts = future.result()
        except UnreachableError as error:
            logger.warning("forecasting losses failed; the consumer tries again: %s", error)
            return
        except Exception:  # reading must go on, whatever a broker answered
            logger.exception("forecasting losses failed; the consumer tries again")
            return
        log_forecasts_by_claim = {
            positions.claimed[name].claim: log_forecast
            for name, log_forecast in log_forecasts.items()
            if name in positions.claimed
        }
        self._heartbeats.submit_forecast(log_forecasts_by_claim, self.reading_rate)

    def _measure_rate(self, member: GroupMember, positions: Positions) -> None:
        """Measure how fast this consumer reads while more than MEASURE_UNREAD messages wait."""
        position = sum(claimed.expected for claimed in positions.claimed.values())
        sample = RateSample(time.monotonic(), position, positions.claims_revision)
        earlier = self._sample
        if earlier is None or earlier.claims_revision != sample.claims_revision:
            self._sample = sample
        elif sample.at - earlier.at >= MEASURE_SECONDS:
            self._sample = sample
            rate = (sample.position - earlier.position) / (sample.at - earlier.at)
            if rate > 0 and _count_unread(member, positions) > MEASURE_UNREAD:
                mean = rate if self.reading_rate is None else self.reading_rate
                self.reading_rate = mean + RATE_WEIGHT * (rate - mean)


def _count_unread(member: GroupMember, positions: Positions) -> int:
    """Return how many offsets are unread in the partitions with a known end offset."""
    unread = 0
    for name, claimed in positions.claimed.items():
        end = member.get_end_offset(name)
        if end is not None:
            unread += max(0, end - claimed.expected)
    return unread
