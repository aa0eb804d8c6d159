"""Asks the brokers what a forecast of losses needs: how long they keep messages, and how fast new
ones come. It may wait: never called by the thread of the consumer's loop."""

import logging
import time
from collections.abc import Collection, Mapping

import confluent_kafka as ck
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from ingest.forecast import Log, Outlook, Retention, Seen, forecast
from ingest.source.brokers import Bounds, Brokers
from ingest.source.client import TIMEOUT_SECONDS
from ingest.source.kafka import reader
from ingest.source.message import KafkaPartition

logger = logging.getLogger(__name__)

# Configurations change seldom.
REFRESH_SECONDS = 600.0
# Ends that were seen more recently than this say little about the rate.
SEEN_SECONDS = 20.0
# What a message takes besides key and value.
OVERHEAD_BYTES = 20
# At a place in a log, the size of this many messages is seen.
SAMPLE = 100


class Forecaster(Brokers):
    """Keeps its connections and answers. Not thread-safe. given: librdkafka settings."""

    def __init__(self, bootstrap: str, given: Mapping[str, str]) -> None:
        super().__init__(bootstrap, given)
        self._consumer: ck.Consumer | None = None
        self._retention: dict[str, Retention | None] = {}
        self._refreshed_at = 0.0
        self._sizes: dict[str, float] = {}
        self._seen: dict[KafkaPartition, Seen] = {}

    def outlook(
        self,
        positions: Mapping[KafkaPartition, int | None],
        seen: Mapping[KafkaPartition, Seen] | None = None,
    ) -> dict[KafkaPartition, Outlook]:
        """The forecast of each partition that exists. positions: the oldest unread offset, None for
        a partition that was never read. seen: what an earlier run saw. Raises Unreachable."""
        self._refresh({topic for topic, _ in positions})
        self._seen = {**(seen or {}), **self._seen}
        bounds = {source.kafka: found for source, found in self.bounds(positions).items()}
        at = time.time()
        try:
            return self._forecasts(positions, bounds, at)
        except ck.KafkaException as error:
            raise self._heard.unreachable(self._admin, error) from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _refresh(self, topics: Collection[str]) -> None:
        """Ask for the configuration of these topics, if it is not known or old."""
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            self._retention = {}
            self._refreshed_at = time.monotonic()
        missing = sorted(set(topics) - self._retention.keys())
        if not missing:
            return
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in missing]
        asked = self._admin.describe_configs(resources, request_timeout=TIMEOUT_SECONDS)
        for resource, future in asked.items():
            try:
                found = {name: str(entry.value) for name, entry in future.result().items()}
            except ck.KafkaException as error:
                code = error.args[0].code()
                if code == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                if code != ck.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._heard.unreachable(self._admin, error) from error
                logger.warning(
                    "no forecast of losses for %s: the brokers refuse its configuration; allow "
                    "DESCRIBE_CONFIGS on the topic",
                    resource.name,
                )
                found = {}
            self._retention[resource.name] = Retention.of(found)

    def _rate(self, place: KafkaPartition, end: int, at: float) -> float:
        """Offsets per second that came since the end was seen before; 0 if it was not seen."""
        before = self._seen.get(place, Seen(at, end, 0.0))
        seconds = at - before.at
        if seconds >= SEEN_SECONDS:
            before = Seen(at, end, max(0, end - before.end) / seconds)
        self._seen[place] = before
        return before.arriving

    def _forecasts(
        self,
        positions: Mapping[KafkaPartition, int | None],
        bounds: Mapping[KafkaPartition, Bounds],
        at: float,
    ) -> dict[KafkaPartition, Outlook]:
        nexts = {p: start if (n := positions[p]) is None else n for p, (start, _) in bounds.items()}
        known = {p: kept for p in bounds if (kept := self._retention.get(p[0])) is not None}
        behind = {p: nexts[p] for p in known if bounds[p][0] <= nexts[p] < bounds[p][1]}
        sizes = {
            p: max(start, end - SAMPLE)
            for p, (start, end) in bounds.items()
            if p in known and known[p].bytes and p[0] not in self._sizes and start < end
        }
        times = self._read({**sizes, **behind})
        found = {}
        for p, (start, end) in bounds.items():
            log = Log(at, start, end, self._rate(p, end, at), self._sizes.get(p[0]))
            said = forecast(known[p], log, nexts[p], times.get(p)) if p in known else None
            found[p] = Outlook(log, said)
        return found

    def _read(self, offsets: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, float]:
        """The time of the message at or after each offset, of those partitions that have one. Keeps
        the mean size of the messages there as that of their topic: one partition stands for all."""
        if not offsets:
            return {}
        reader = self._reader()
        reader.assign([ck.TopicPartition(*place, offset) for place, offset in offsets.items()])
        found: dict[KafkaPartition, float] = {}
        sizes: dict[str, list[int]] = {}
        left = set(offsets)
        until = time.monotonic() + TIMEOUT_SECONDS
        while left and time.monotonic() < until:
            for raw in reader.consume(SAMPLE, 0.1):
                place = (str(raw.topic()), int(raw.partition() or 0))
                if raw.error() is None:
                    size = len(raw.key() or b"") + len(raw.value() or b"") + OVERHEAD_BYTES
                    sizes.setdefault(place[0], []).append(size)
                if place in left:
                    left.discard(place)
                    reader.pause([ck.TopicPartition(*place)])
                    kind, stamp = raw.timestamp() if raw.error() is None else (0, -1)
                    if kind and stamp >= 0:
                        found[place] = stamp / 1000
        # librdkafka keeps a partition paused through assignments.
        reader.resume([ck.TopicPartition(*place) for place in offsets])
        reader.assign([])
        self._sizes |= {topic: sum(each) / len(each) for topic, each in sizes.items()}
        return found

    def _reader(self) -> ck.Consumer:
        if self._consumer is None:
            self._consumer = reader(self._settings, self._heard)
        return self._consumer
