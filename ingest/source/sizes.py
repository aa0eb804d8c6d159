"""How many bytes a message takes on the broker's disk: estimated from a sample of its batches.

librdkafka has no DescribeLogDirs. But a fetch that allows one byte returns exactly one batch, as it
is on the disk, compressed or not, and librdkafka counts the bytes that it receives.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck

from ingest.source.client import TIMEOUT_SECONDS, client_logger
from ingest.source.message import KafkaPartition

# Batches are sampled at these parts of the log. The start is sampled only if nothing else can be:
# there the broker deletes.
PLACES = (0.2, 0.5, 0.8)
# At each of them at least for so long and for so many bytes, because batches are not compressed
# alike. And at most for so many bytes, and for so long.
SECONDS, ENOUGH_BYTES = 0.6, 131_072
BYTES, LONGEST_SECONDS = 524_288, 3.0
# What a fetch response has besides the batch and the topic's name.
RESPONSE_BYTES = 73
STATISTICS_MS = 50


@dataclass(frozen=True, slots=True)
class _Count:
    """What was received until now. offset: the one to be fetched next."""

    offset: int
    bytes: int
    responses: int


def message_bytes(
    settings: Mapping[str, Any], partition: KafkaPartition, start: int, end: int
) -> float | None:
    """Bytes on disk for each offset of a partition with the offsets [start, end); None if there is
    nothing to measure. Takes about a second."""
    if end <= start:
        return None
    places = [start + int((end - start) * share) for share in PLACES]
    return _sampled(settings, partition, start, places) or _sampled(
        settings, partition, start, [start]
    )


def _sampled(
    settings: Mapping[str, Any], partition: KafkaPartition, start: int, places: Iterable[int]
) -> float | None:
    offsets = total = 0.0
    for at in places:
        counts = _Sample(settings, partition, at).read()
        # A batch that begins before the offset is received as a whole: it does not count.
        first = counts[0] if at == start else counts[min(1, len(counts) - 1)]
        passed = counts[-1].offset - first.offset
        if passed > 0:
            overhead = (counts[-1].responses - first.responses) * (
                RESPONSE_BYTES + len(partition[0])
            )
            offsets += passed
            total += max(0, counts[-1].bytes - first.bytes - overhead)
    return total / offsets if offsets and total else None


class _Sample:
    """Reads batches of one partition on a connection of its own."""

    def __init__(self, settings: Mapping[str, Any], partition: KafkaPartition, at: int) -> None:
        self._partition, self._at = partition, at
        self._latest: dict[str, Any] = {}
        self._reader = ck.Consumer(
            {
                **settings,
                "group.id": "annals-peek",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # An offset that is gone meanwhile tells nothing about those that follow.
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 1,
                "queued.max.messages.kbytes": 2_048,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": -1,
                "statistics.interval.ms": STATISTICS_MS,
                "stats_cb": self._keep,
            },
            logger=client_logger,
        )

    def read(self) -> list[_Count]:
        """The counts before the first batch, and from time to time after it."""
        topic, number = self._partition
        try:
            # Connects, so that what this takes does not count.
            place = ck.TopicPartition(topic, number)
            self._reader.get_watermark_offsets(place, timeout=TIMEOUT_SECONDS)
            counts: list[_Count] = []
            ended = assigned = False
            began = time.monotonic()
            while time.monotonic() - began < LONGEST_SECONDS:
                raws = self._reader.consume(500, STATISTICS_MS / 1000)
                ended = ended or any(raw.error() is not None for raw in raws)
                count = self._count()
                if count is None:
                    continue
                if not assigned:
                    counts.append(_Count(self._at, count.bytes, count.responses))
                    self._latest = {}
                    self._reader.assign([ck.TopicPartition(topic, number, self._at)])
                    assigned, began = True, time.monotonic()
                elif count.offset > counts[-1].offset:
                    counts.append(count)
                    took, received = time.monotonic() - began, count.bytes - counts[0].bytes
                    enough = took > SECONDS and received > ENOUGH_BYTES
                    if ended or enough or received > BYTES:
                        break
                elif ended:
                    break
            return counts or [_Count(self._at, 0, 0)]
        finally:
            self._reader.close()

    def _keep(self, text: str) -> None:
        self._latest = json.loads(text)

    def _count(self) -> _Count | None:
        if not self._latest:
            return None
        topic, number = self._partition
        mine = self._latest["topics"].get(topic, {}).get("partitions", {}).get(str(number), {})
        brokers = self._latest["brokers"].values()
        return _Count(
            max(self._at, int(mine.get("next_offset", -1))),
            sum(each["rxbytes"] for each in brokers),
            sum(each["rx"] for each in brokers),
        )
