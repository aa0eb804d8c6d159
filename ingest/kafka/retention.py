"""Asks the brokers for the data of a forecast of losses: retention, offsets, times and sizes.

retention_forecast.py computes the forecast. The consumer uses this module in a separate thread,
because its requests wait for the brokers.
"""

import logging
import time
from collections.abc import Collection, Mapping

import confluent_kafka as ck
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from ingest.kafka.brokers import Bounds, Brokers
from ingest.kafka.client import TIMEOUT_SECONDS
from ingest.kafka.retention_forecast import (
    LogForecast,
    PartitionLog,
    Retention,
    SeenEnd,
    forecast_deletion,
)
from ingest.kafka.source import create_reader
from ingest.messages.message import KafkaPartition

logger = logging.getLogger(__name__)

# How long the configuration of topics is cached.
REFRESH_SECONDS = 600.0
# The arrival rate of a partition is measured between two end offsets that were read at least this
# many seconds apart.
MEASURE_SECONDS = 20.0
# How many bytes a message needs in the log besides its key and value.
OVERHEAD_BYTES = 20
# How many messages are read to estimate the mean size in a topic.
SAMPLE = 100


class BrokerForecaster(Brokers):
    """Forecasts when brokers delete unread messages. Not thread-safe.

    It keeps its connections open, and remembers answers for the next forecast.
    """

    def __init__(self, bootstrap: str, overrides: Mapping[str, str]) -> None:
        super().__init__(bootstrap, overrides)
        self._consumer: ck.Consumer | None = None
        self._retention: dict[str, Retention | None] = {}
        self._refreshed_at = 0.0
        self._sizes: dict[str, float] = {}
        self._seen: dict[KafkaPartition, SeenEnd] = {}

    def fetch_log_forecasts(
        self,
        positions: Mapping[KafkaPartition, int | None],
        seen: Mapping[KafkaPartition, SeenEnd] | None = None,
    ) -> dict[KafkaPartition, LogForecast]:
        """Return the offsets and the loss forecast of each topic partition that exists.

        Args:
            positions: For each partition, the next offset to read; None if it was never read.
            seen: End offsets that a consumer has recorded, for measuring the arrival rate.

        Raises:
            UnreachableError: No broker answered in time.
        """
        self._refresh_retention({topic for topic, _ in positions})
        self._seen = {**(seen or {}), **self._seen}
        bounds = {
            topic_partition.kafka: offsets
            for topic_partition, offsets in self.fetch_bounds(positions).items()
        }
        now = time.time()
        try:
            return self._make_log_forecasts(positions, bounds, now)
        except ck.KafkaException as error:
            raise self._status.make_unreachable_error(self._admin, error) from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _refresh_retention(self, topics: Collection[str]) -> None:
        """Ask for the retention of topics if it is not known, or older than REFRESH_SECONDS."""
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            self._retention = {}
            self._refreshed_at = time.monotonic()
        missing = sorted(set(topics) - self._retention.keys())
        if not missing:
            return
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in missing]
        futures = self._admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS)
        for resource, future in futures.items():
            try:
                config = {name: str(entry.value) for name, entry in future.result().items()}
            except ck.KafkaException as error:
                code = error.args[0].code()
                if code == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                if code != ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._status.make_unreachable_error(self._admin, error) from error
                logger.warning(
                    "no forecast of losses for topic %s: the login may not read the topic's "
                    "configuration; allow it DESCRIBE_CONFIGS on the topic",
                    resource.name,
                )
                config = {}
            self._retention[resource.name] = Retention.from_configuration(config)

    def _measure_rate(self, partition: KafkaPartition, end: int, now: float) -> float:
        """Return how many offsets of a partition arrive in a second, or 0 if not measured yet.

        The rate is measured between two end offsets that were seen at least MEASURE_SECONDS apart.
        """
        seen = self._seen.get(partition, SeenEnd(now, end, 0.0))
        seconds = now - seen.at
        if seconds >= MEASURE_SECONDS:
            seen = SeenEnd(now, end, max(0, end - seen.end) / seconds)
        self._seen[partition] = seen
        return seen.arriving

    def _make_log_forecasts(
        self,
        positions: Mapping[KafkaPartition, int | None],
        bounds: Mapping[KafkaPartition, Bounds],
        now: float,
    ) -> dict[KafkaPartition, LogForecast]:
        next_offsets = {
            p: start if (n := positions[p]) is None else n for p, (start, _) in bounds.items()
        }
        retention = {p: rule for p in bounds if (rule := self._retention.get(p[0])) is not None}
        behind = {
            p: next_offsets[p] for p in retention if bounds[p][0] <= next_offsets[p] < bounds[p][1]
        }
        sample_starts = {
            p: max(start, end - SAMPLE)
            for p, (start, end) in bounds.items()
            if p in retention and retention[p].bytes and p[0] not in self._sizes and start < end
        }
        times = self._read_times({**sample_starts, **behind})
        log_forecasts = {}
        for p, (start, end) in bounds.items():
            log = PartitionLog(
                at=now,
                start=start,
                end=end,
                arriving=self._measure_rate(p, end, now),
                message_bytes=self._sizes.get(p[0]),
            )
            forecast = (
                forecast_deletion(retention[p], log, next_offsets[p], times.get(p))
                if p in retention
                else None
            )
            log_forecasts[p] = LogForecast(log, forecast)
        return log_forecasts

    def _read_times(self, offsets: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, float]:
        """Return by partition the timestamp of the first message at or after an offset.

        Partitions without such a message, or without an answer in time, are left out. The mean size
        of the messages that are read is remembered as an estimate for their topic.

        Args:
            offsets: The offsets by partition.
        """
        if not offsets:
            return {}
        reader = self._get_reader()
        reader.assign(
            [ck.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        )
        times: dict[KafkaPartition, float] = {}
        sizes: dict[str, list[int]] = {}
        waiting = set(offsets)
        until = time.monotonic() + TIMEOUT_SECONDS
        while waiting and time.monotonic() < until:
            for raw in reader.consume(SAMPLE, 0.1):
                partition = (str(raw.topic()), int(raw.partition() or 0))
                if raw.error() is None:
                    size = len(raw.key() or b"") + len(raw.value() or b"") + OVERHEAD_BYTES
                    sizes.setdefault(partition[0], []).append(size)
                if partition in waiting:
                    waiting.discard(partition)
                    reader.pause([ck.TopicPartition(*partition)])
                    kind, stamp = raw.timestamp() if raw.error() is None else (0, -1)
                    if kind and stamp >= 0:
                        times[partition] = stamp / 1000
        # librdkafka keeps a partition paused through assignments.
        reader.resume([ck.TopicPartition(*partition) for partition in offsets])
        reader.assign([])
        self._sizes |= {
            topic: sum(partition_sizes) / len(partition_sizes)
            for topic, partition_sizes in sizes.items()
        }
        return times

    def _get_reader(self) -> ck.Consumer:
        if self._consumer is None:
            self._consumer = create_reader(self._settings, self._status)
        return self._consumer
