"""The consumer's periodic work: records lag, checks halted partitions and topic ids."""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import psycopg

from history.daily.window import Window
from ingest import metrics
from ingest.consumer.foresight import Foresight
from ingest.consumer.heartbeats import Beats
from ingest.consumer.positions import Positions, Standstill, Tolerance
from ingest.consumer.topic_census import TopicCensus
from ingest.consumer.worker import Worker
from ingest.source.brokers import Bounds, Look
from ingest.source.client import Unreachable
from ingest.source.decode import Expired, Rejected, decode
from ingest.source.kafka import Source
from ingest.source.message import KafkaPartition, Message, TopicPartition
from ingest.store import ledger
from ingest.store.batch import Claim
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
FINISH_SECONDS = 3.0
SAMPLE_MESSAGES = 20

Peek = Callable[[KafkaPartition, int, int], list[Message]]
AskBounds = Callable[[list[KafkaPartition]], Mapping[TopicPartition, Bounds]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Finds out whether a halted partition may be read again."""

    connect: Callable[[], Connection]
    peek: Peek
    bounds: AskBounds
    tolerance: Tolerance

    def __call__(
        self, partition: KafkaPartition, claim: Claim, expected: int, window: Window
    ) -> int | None:
        """The offset before which bad messages go to quarantine whatever the limits say: `expected`
        if the next messages are good, the end if only the newest are. None: it stays halted."""
        try:
            end = max((end for _, end in self.bounds([partition]).values()), default=expected)
            with self.connect() as connection:
                # A paused partition is not fetched: only this look knows its end.
                ledger.heartbeat(connection, {claim: end}, time.monotonic())
                allowed = ledger.resume_until(connection, claim)
            if allowed > expected:
                return allowed
            if self._good(partition, expected, window):
                return expected
            if self._good(partition, max(expected, end - SAMPLE_MESSAGES), window):
                return end
        except (Unreachable, psycopg.Error) as error:
            logger.warning("%s[%d] stays halted: %s", *partition, error)
        return None

    def _good(self, partition: KafkaPartition, start: int, window: Window) -> bool:
        """Whether there are messages, and fewer bad ones among them than tolerated."""
        messages, bad = self.peek(partition, start, SAMPLE_MESSAGES), 0
        for message in messages:
            try:
                decode(message, window)
            except Rejected:
                bad += 1
            except Expired:
                pass
        return bool(messages) and bad < self.tolerance.ratio * len(messages)


class Background:
    """Called in every turn of the loop; never waits. record: runs a job on another thread."""

    def __init__(
        self,
        probe: Probe,
        beats: Beats,
        foresight: Foresight,
        record: Callable[[Callable[[Connection], object]], Future[None]],
    ) -> None:
        self._probe = probe
        self._beats = beats
        self._foresight = foresight
        self._topics = TopicCensus(beats)
        self._record = record
        self._probes: dict[KafkaPartition, Future[int | None]] = {}
        # One at a time: a database that does not answer must not get one for each turn afterwards.
        self._halting: Future[None] | None = None
        # A probe may wait for brokers that are away, and the end must not.
        self._prober = Worker("probe")
        self._due = 0.0
        self._held: list[Claim] = []
        self._still: Standstill | None = None

    def turn(self, source: Source, positions: Positions, window: Window) -> str | None:
        """Work that is due every BEAT_SECONDS. Returns why to claim everything again, or None."""
        self._topics.turn(source)
        if time.monotonic() < self._due or not (positions.claimed or self._held):
            return None
        self._due = time.monotonic() + BEAT_SECONDS
        claimed = positions.claimed
        if not claimed:
            self._beat_without_brokers(source)
            return None
        look = source.look(claimed)
        asked = self._beat(source, positions, look)
        self._foresight.turn(source, positions)
        if self._halting is None or self._halting.done():
            self.record_halts(positions)
        if self._stands_still(source, positions, asked):
            source.join_again()
            return None
        if self._probe_halted(positions, window):
            return "a halted partition is read again"
        if look is not None and _topic_recreated(look, positions):
            return "a topic was deleted and created again"
        return None

    def finish(self, source: Source, positions: Positions) -> None:
        """Have the ledger know the ends that a consumer saw which ends by itself: nobody may read
        before the next run. Waits a few seconds at most."""
        if not positions.claimed:
            return
        self._topics.finish(source, FINISH_SECONDS)
        until = time.monotonic() + FINISH_SECONDS
        while (look := source.look(positions.claimed)) is None and time.monotonic() < until:
            time.sleep(0.05)
        self._beats.wait(FINISH_SECONDS)
        self._beat(source, positions, look)
        self._beats.wait(FINISH_SECONDS)

    def _beat(
        self, source: Source, positions: Positions, look: Look | None
    ) -> Mapping[KafkaPartition, int]:
        """Write a heartbeat. Returns the ends that the brokers answered."""
        claimed = positions.claimed
        asked = ends_of_claimed(look, positions) if look else {}
        highs = {partition: _newest(source, partition, asked) for partition in claimed}
        metrics.LAG.clear()
        for partition, high in highs.items():
            if high is not None:
                metrics.LAG.labels(*partition).set(max(0, high - claimed[partition].expected))
        ends = {claimed[partition].claim: high for partition, high in highs.items()}
        self._held = [*ends]
        answered = {claimed[partition].claim for partition in claimed if partition in asked}
        self._beats.give(ends, answered, look.asked_at if look else None)
        return asked

    def _beat_without_brokers(self, source: Source) -> None:
        """Brokers that are away take the partitions from a consumer that is still here: it goes on
        to say so. A partition that another has claimed since is passed over."""
        if source.look([claim.source.kafka for claim in self._held]) is None:
            self._beats.give(dict.fromkeys(self._held), (), None)

    def _stands_still(
        self, source: Source, positions: Positions, ends: Mapping[KafkaPartition, int]
    ) -> bool:
        if self._still is None:
            self._still = Standstill(source.standstill_seconds)
        expected = {partition: each.expected for partition, each in positions.claimed.items()}
        behind = {
            partition
            for partition, end in ends.items()
            if end > expected[partition] and not source.is_paused(partition)
        }
        return self._still.noticed(time.monotonic(), expected, behind)

    def record_halts(self, positions: Positions) -> None:
        """Record which partitions are halted, in each turn again: it may fail."""
        halted = {each.claim: each.halted or "" for each in positions.halted().values()}
        if halted:
            self._halting = self._record(partial(ledger.halt, halted=halted))

    def close(self, seconds: float) -> None:
        """End. Waits at most this long for a database that does not answer, for a probe never."""
        self._prober.close(0)
        self._foresight.close()
        self._beats.close(seconds)

    def _probe_halted(self, positions: Positions, window: Window) -> bool:
        """Start probes, and take the results of those that are done. True: a partition resumes."""
        resumed = False
        for partition, claimed in positions.halted().items():
            future = self._probes.get(partition)
            if future is not None and future.done():
                del self._probes[partition]
                until = future.result()
                if until is not None:
                    logger.warning(
                        "%s[%d] is read again; bad messages before %d are quarantined",
                        *(*partition, until),
                    )
                    self._record(partial(ledger.resume, held=claimed.claim, until=until))
                    resumed = True
            elif future is None:
                self._probes[partition] = self._prober.submit(
                    partial(self._probe, partition, claimed.claim, claimed.expected, window)
                )
        return resumed


def ends_of_claimed(look: Look, positions: Positions) -> dict[KafkaPartition, int]:
    """The ends that the brokers answered, without those of another topic of the same name."""
    ids = {p: each.claim.source.broker_id for p, each in positions.claimed.items()}
    return {p: end for p, end in look.ends.items() if p in ids and look.ids.get(p[0]) == ids[p]}


def _newest(
    source: Source, partition: KafkaPartition, asked: Mapping[KafkaPartition, int]
) -> int | None:
    """The end offset of a partition: as the brokers answered, or as of the last fetch."""
    known = (source.high_watermark(partition), asked.get(partition))
    return max((end for end in known if end is not None), default=None)


def _topic_recreated(look: Look, positions: Positions) -> bool:
    return any(
        look.ids.get(topic, claimed.claim.source.broker_id) != claimed.claim.source.broker_id
        for (topic, _), claimed in positions.claimed.items()
    )
