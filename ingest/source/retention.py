"""Asks the brokers what a forecast of losses needs: how long they keep messages, and how fast new
ones come. It may wait: never called by the thread of the consumer's loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

import confluent_kafka as ck
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)

from ingest.forecast.facts import Log, Retention, Unread
from ingest.forecast.loss import Outlook, forecast, segment_end
from ingest.source.client import COMMON, TIMEOUT_SECONDS, Config, Heard, made
from ingest.source.message import KafkaPartition
from ingest.source.sizes import message_bytes

logger = logging.getLogger(__name__)

# Configurations and sizes of messages change seldom.
REFRESH_SECONDS = 600.0
# The rate of new messages is the highest of these times that the log covers: a burst counts, and so
# does the average. The short one counts only if the log is shorter than the others.
WINDOWS_SECONDS = (600.0, 60.0)
SHORT_WINDOW_SECONDS = 10.0
# Ends that were seen more recently than this say little about the rate.
SEEN_SECONDS = 20.0


class Forecaster:
    """Keeps its connections, what it asked, and the ends that it saw. Not thread-safe. given:
    librdkafka settings."""

    def __init__(self, bootstrap: str, given: Mapping[str, str]) -> None:
        self._settings: Config = {**COMMON, "bootstrap.servers": bootstrap, **given}
        self._heard = Heard()
        self._admin_client: AdminClient | None = None
        self._consumer: ck.Consumer | None = None
        self._retention: dict[str, Retention | None] = {}
        self._refreshed_at = 0.0
        self._sizes: dict[str, float | None] = {}
        self._seen: dict[KafkaPartition, tuple[float, int]] = {}

    def partitions(self, topics: Iterable[str]) -> list[KafkaPartition]:
        """The partitions of those topics that exist. Raises Unreachable."""
        wanted = set(topics)
        try:
            there = self._admin.list_topics(timeout=TIMEOUT_SECONDS).topics
        except ck.KafkaException as error:
            raise self._heard.unreachable(self._admin, error) from error
        known = [each for each in there.values() if each.topic in wanted]
        return sorted((str(each.topic), int(n)) for each in known for n in each.partitions)

    def outlook(
        self,
        positions: Mapping[KafkaPartition, int | None],
        seen: Mapping[KafkaPartition, tuple[float, int]] | None = None,
    ) -> dict[KafkaPartition, Outlook]:
        """The forecast of each partition that exists. positions: the oldest unread offset, None for
        a partition that was never read. seen: a time (Unix) and the end offset of each partition
        then, from an earlier run. Raises Unreachable."""
        self._refresh({topic for topic, _ in positions})
        self._seen = {**(seen or {}), **self._seen}
        bounds = self.bounds(positions)
        at = time.time()
        try:
            rates = self._rates(bounds, at)
            logs = self._logs(bounds, rates, at)
            return self._forecasts(positions, logs)
        except ck.KafkaException as error:
            raise self._heard.unreachable(self._admin, error) from error

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    @property
    def _admin(self) -> AdminClient:
        """Connected when it is needed: most runs of a consumer are shorter than that."""
        if self._admin_client is None:
            self._admin_client = made(AdminClient, self._settings, self._heard)
        return self._admin_client

    def bounds(self, partitions: Iterable[KafkaPartition]) -> dict[KafkaPartition, tuple[int, int]]:
        """The first offset and the end offset of the partitions that exist. Raises Unreachable."""
        wanted = set(partitions)
        there = wanted & set(self.partitions({topic for topic, _ in wanted}))
        reader = self._reader()
        found = {}
        failed: ck.KafkaException | None = None
        for place in there:
            try:
                low, end = reader.get_watermark_offsets(
                    ck.TopicPartition(*place), timeout=TIMEOUT_SECONDS
                )
            except ck.KafkaException as error:
                # Without a leader, for example: the others have a forecast nevertheless.
                logger.warning("no forecast of losses for %s[%d]: %s", *place, error)
                failed = error
                continue
            found[place] = (int(low), int(end))
        if failed is not None and not found:
            raise self._heard.unreachable(reader, failed) from failed
        return found

    def _refresh(self, topics: Collection[str]) -> None:
        """Ask for the configuration of these topics, if it is not known or old."""
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            self._retention, self._sizes = {}, {}
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

    def _rates(
        self, bounds: Mapping[KafkaPartition, tuple[int, int]], at: float
    ) -> dict[KafkaPartition, float]:
        """Offsets per second that come: as the times of the messages say, and as the ends do that
        were seen before, because producers may set any time."""
        rates = dict.fromkeys(bounds, 0.0)
        for seconds in (*WINDOWS_SECONDS, SHORT_WINDOW_SECONDS):
            for place, first in self._offsets_at(bounds, at - seconds).items():
                start, end = bounds[place]
                if start < first < end and (seconds in WINDOWS_SECONDS or not rates[place]):
                    rates[place] = max(rates[place], (end - first) / seconds)
        for place, (_, end) in bounds.items():
            if place in self._seen:
                since, before = self._seen[place]
                if at - since < SEEN_SECONDS:
                    continue
                rates[place] = max(rates[place], (end - before) / (at - since))
            self._seen[place] = (at, end)
        return rates

    def _offsets_at(
        self, partitions: Iterable[KafkaPartition], at: float
    ) -> dict[KafkaPartition, int]:
        """The first offset of each partition with this time or a later one; -1: there is none."""
        asked = [ck.TopicPartition(*place, int(at * 1000)) for place in partitions]
        if not asked:
            return {}
        found = self._reader().offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
        return {(each.topic, each.partition): each.offset for each in found if not each.error}

    def _logs(
        self,
        bounds: Mapping[KafkaPartition, tuple[int, int]],
        rates: Mapping[KafkaPartition, float],
        at: float,
    ) -> dict[KafkaPartition, Log]:
        # One partition stands for its topic: keys spread the entities over the partitions.
        fullest = sorted(bounds, key=lambda place: bounds[place][0] - bounds[place][1])
        for place in fullest:
            topic = place[0]
            if self._retention.get(topic) is not None and self._sizes.get(topic) is None:
                self._sizes[topic] = message_bytes(self._settings, place, *bounds[place])
        return {
            place: Log(at, start, end, rates[place], self._sizes.get(place[0]))
            for place, (start, end) in bounds.items()
        }

    def _forecasts(
        self, positions: Mapping[KafkaPartition, int | None], logs: Mapping[KafkaPartition, Log]
    ) -> dict[KafkaPartition, Outlook]:
        nexts = {
            place: log.start if (at := positions[place]) is None else at
            for place, log in logs.items()
        }
        behind = [p for p, log in logs.items() if log.start <= nexts[p] < log.end]
        behind = [p for p in behind if self._retention.get(p[0]) is not None]
        oldest = self._times({p: nexts[p] for p in behind})
        first = self._times({p: logs[p].start for p in behind})
        unread = {p: Unread(nexts[p], oldest.get(p), first.get(p)) for p in behind}
        ends: dict[KafkaPartition, int] = {}
        for p in behind:
            retention = self._retention[p[0]]
            assert retention is not None  # noqa: S101 - of those behind
            ends[p] = min(logs[p].end, int(segment_end(retention, logs[p], unread[p])))
        newest = self._times({p: max(nexts[p], ends[p] - 1) for p in behind})
        for p in behind:
            unread[p] = Unread(nexts[p], oldest.get(p), first.get(p), newest.get(p))
        return {
            place: Outlook(
                log,
                None
                if (kept := self._retention.get(place[0])) is None
                else forecast(kept, log, unread.get(place, Unread(nexts[place]))),
            )
            for place, log in logs.items()
        }

    def _times(self, offsets: Mapping[KafkaPartition, int]) -> dict[KafkaPartition, float]:
        """The time of the message at or after each offset, of those partitions that have one."""
        if not offsets:
            return {}
        reader = self._reader()
        reader.assign([ck.TopicPartition(*place, offset) for place, offset in offsets.items()])
        found: dict[KafkaPartition, float] = {}
        left = set(offsets)
        until = time.monotonic() + TIMEOUT_SECONDS
        while left and time.monotonic() < until:
            for raw in reader.consume(len(left), 0.1):
                place = (str(raw.topic()), int(raw.partition() or 0))
                if place in left:
                    left.discard(place)
                    reader.pause([ck.TopicPartition(*place)])
                    kind, stamp = raw.timestamp() if raw.error() is None else (0, -1)
                    if kind and stamp >= 0:
                        found[place] = stamp / 1000
        # librdkafka keeps a partition paused through assignments.
        reader.resume([ck.TopicPartition(*place) for place in offsets])
        reader.assign([])
        return found

    def _reader(self) -> ck.Consumer:
        if self._consumer is None:
            self._consumer = made(
                ck.Consumer,
                {
                    **self._settings,
                    "group.id": "annals-peek",
                    "enable.auto.commit": False,
                    # The message at an offset may be gone by now.
                    "auto.offset.reset": "earliest",
                    # The end of a partition is an answer too.
                    "enable.partition.eof": True,
                    # One batch at a time: one message of it is wanted.
                    "fetch.message.max.bytes": 1,
                    "queued.min.messages": 1,
                    "fetch.wait.max.ms": 100,
                },
                self._heard,
            )
        return self._consumer
