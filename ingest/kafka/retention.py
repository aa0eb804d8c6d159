"""Forecasts when brokers delete unread messages: how long they keep them, how fast new ones come.

Requests may wait, so the thread of the consumer's loop never makes them.
"""

import logging
import time
from collections.abc import Collection, Mapping

import confluent_kafka as ck
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from ingest.kafka.brokers import Bounds, Brokers
from ingest.kafka.client import TIMEOUT_SECONDS
from ingest.kafka.retention_forecast import (
    Outlook,
    PartitionLog,
    Retention,
    SeenEnd,
    forecast_deletion,
)
from ingest.kafka.source import create_reader
from ingest.messages.message import KafkaPartition

logger = logging.getLogger(__name__)

# How long a topic's configuration is believed.
REFRESH_SECONDS = 600.0
# The least time between two looks at an end, to measure the rate of arrival.
SEEN_SECONDS = 20.0
# Bytes of a message in the log besides key and value.
OVERHEAD_BYTES = 20
# How many messages are read to estimate the mean size in a topic.
SAMPLE = 100


class BrokerForecaster(Brokers):
    """Forecasts losses. Keeps its connections and answers. Not thread-safe."""

    def __init__(self, bootstrap: str, given: Mapping[str, str]) -> None:
        super().__init__(bootstrap, given)
        self._consumer: ck.Consumer | None = None
        self._retention: dict[str, Retention | None] = {}
        self._refreshed_at = 0.0
        self._sizes: dict[str, float] = {}
        self._seen: dict[KafkaPartition, SeenEnd] = {}

    def fetch_outlooks(
        self,
        positions: Mapping[KafkaPartition, int | None],
        seen: Mapping[KafkaPartition, SeenEnd] | None = None,
    ) -> dict[KafkaPartition, Outlook]:
        """Return the outlook of each partition that exists. Raises Unreachable.

        Args:
            positions: The oldest unread offset; None for a partition that was never read.
            seen: What an earlier run saw of each partition.
        """
        self._refresh_retention({topic for topic, _ in positions})
        self._seen = {**(seen or {}), **self._seen}
        bounds = {source.kafka: found for source, found in self.fetch_bounds(positions).items()}
        at = time.time()
        try:
            return self._make_outlooks(positions, bounds, at)
        except ck.KafkaException as error:
            raise self._heard.make_unreachable_error(self._admin, error) from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _refresh_retention(self, topics: Collection[str]) -> None:
        """Ask for the configuration of topics for which it is unknown or old."""
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
                    raise self._heard.make_unreachable_error(self._admin, error) from error
                logger.warning(
                    "no forecast of losses for %s: the brokers refuse its configuration; allow "
                    "DESCRIBE_CONFIGS on the topic",
                    resource.name,
                )
                config = {}
            self._retention[resource.name] = Retention.from_configuration(config)

    def _measure_rate(self, place: KafkaPartition, end: int, at: float) -> float:
        """Return the offsets per second since the end was seen before, or 0 if it was not."""
        before = self._seen.get(place, SeenEnd(at, end, 0.0))
        seconds = at - before.at
        if seconds >= SEEN_SECONDS:
            before = SeenEnd(at, end, max(0, end - before.end) / seconds)
        self._seen[place] = before
        return before.arriving

    def _make_outlooks(
        self,
        positions: Mapping[KafkaPartition, int | None],
        bounds: Mapping[KafkaPartition, Bounds],
        at: float,
    ) -> dict[KafkaPartition, Outlook]:
        next_offsets = {
            p: start if (n := positions[p]) is None else n for p, (start, _) in bounds.items()
        }
        retention = {p: kept for p in bounds if (kept := self._retention.get(p[0])) is not None}
        behind = {
            p: next_offsets[p] for p in retention if bounds[p][0] <= next_offsets[p] < bounds[p][1]
        }
        sizes = {
            p: max(start, end - SAMPLE)
            for p, (start, end) in bounds.items()
            if p in retention and retention[p].bytes and p[0] not in self._sizes and start < end
        }
        times = self._read_times({**sizes, **behind})
        outlooks = {}
        for p, (start, end) in bounds.items():
            log = PartitionLog(
                at, start, end, self._measure_rate(p, end, at), self._sizes.get(p[0])
            )
            prediction = (
                forecast_deletion(retention[p], log, next_offsets[p], times.get(p))
                if p in retention
                else None
            )
            outlooks[p] = Outlook(log, prediction)
        return outlooks

    def _read_times(self, offsets: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, float]:
        """Return the time of the message at or after each offset, where there is one.

        Keeps the mean size of the messages there as that of their topic.
        """
        if not offsets:
            return {}
        reader = self._get_reader()
        reader.assign([ck.TopicPartition(*place, offset) for place, offset in offsets.items()])
        times: dict[KafkaPartition, float] = {}
        sizes: dict[str, list[int]] = {}
        waiting = set(offsets)
        until = time.monotonic() + TIMEOUT_SECONDS
        while waiting and time.monotonic() < until:
            for raw in reader.consume(SAMPLE, 0.1):
                place = (str(raw.topic()), int(raw.partition() or 0))
                if raw.error() is None:
                    size = len(raw.key() or b"") + len(raw.value() or b"") + OVERHEAD_BYTES
                    sizes.setdefault(place[0], []).append(size)
                if place in waiting:
                    waiting.discard(place)
                    reader.pause([ck.TopicPartition(*place)])
                    kind, stamp = raw.timestamp() if raw.error() is None else (0, -1)
                    if kind and stamp >= 0:
                        times[place] = stamp / 1000
        # librdkafka keeps a partition paused through assignments.
        reader.resume([ck.TopicPartition(*place) for place in offsets])
        reader.assign([])
        self._sizes |= {
            topic: sum(partition_sizes) / len(partition_sizes)
            for topic, partition_sizes in sizes.items()
        }
        return times

    def _get_reader(self) -> ck.Consumer:
        if self._consumer is None:
            self._consumer = create_reader(self._settings, self._heard)
        return self._consumer
