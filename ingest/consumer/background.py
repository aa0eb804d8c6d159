"""The consumer's periodic work: records lag, checks halted partitions and topic ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial

import psycopg

from history.window import Window
from ingest import metrics
from ingest.consumer.beats import Beats
from ingest.consumer.foresight import Foresight
from ingest.consumer.positions import ClaimedPartition, Positions, Standstill, Tolerance
from ingest.consumer.worker import Worker
from ingest.source.brokers import Look
from ingest.source.client import Unreachable
from ingest.source.decode import Decode, Expired, Rejected, decode
from ingest.source.kafka import Source
from ingest.source.message import KafkaPartition, Message
from ingest.store import ledger
from ingest.store.batch import Claim
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
SAMPLE_MESSAGES = 20

Peek = Callable[[KafkaPartition, int, int], list[Message]]
Ends = Callable[[list[KafkaPartition]], dict[KafkaPartition, int]]


def sample_is_good(
    messages: list[Message], window: Window, tolerance: Tolerance, decode: Decode = decode
) -> bool:
    """Whether reading may go on after this sample: it is not empty, and its share of bad messages
    is below the tolerated ratio."""
    bad = 0
    for message in messages:
        try:
            decode(message, window)
        except Rejected:
            bad += 1
        except Expired:
            pass
    return bool(messages) and bad < tolerance.ratio * len(messages)


class Probe:
    """Finds out whether a halted partition may be read again: because `quarantine resume` said so,
    or because the next or the newest messages are good again."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        peek: Peek,
        ends: Ends,
        tolerance: Tolerance,
        decode: Decode = decode,
    ) -> None:
        self._connect = connect
        self._peek = peek
        self._ends = ends
        self._tolerance = tolerance
        self._decode = decode

    def __call__(
        self, partition: KafkaPartition, claim: Claim, expected: int, window: Window
    ) -> int | None:
        """The offset before which bad messages go to quarantine whatever the limits say; None:
        the partition stays halted.

        If the next messages are good, this is `expected`: the limits hold from there on. If only
        the newest are good, it is the end of the partition.
        """
        try:
            end = self._ends([partition]).get(partition, expected)
            with self._connect() as connection:
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
        messages = self._peek(partition, start, SAMPLE_MESSAGES)
        return sample_is_good(messages, window, self._tolerance, self._decode)


class Background:
    """Called in every turn of the consumer's loop; never waits. record: runs a job on the
    database's thread."""

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
        self._record = record
        self._probes: dict[KafkaPartition, Future[int | None]] = {}
        self._halting: dict[Claim, Future[None]] = {}
        # A probe may wait for brokers that are away, and the end must not.
        self._prober = Worker("probe")
        self._due = 0.0
        self._still: Standstill | None = None

    def turn(self, source: Source, positions: Positions, window: Window) -> str | None:
        """Work that is due every BEAT_SECONDS. Returns why to claim everything again, or None."""
        if time.monotonic() < self._due or not positions.claimed:
            return None
        self._due = time.monotonic() + BEAT_SECONDS
        claimed = positions.claimed
        look = source.look(claimed)
        asked = ends_of_claimed(look, positions) if look else {}
        highs = {partition: _newest(source, partition, asked) for partition in claimed}
        metrics.lag(
            {p: high - claimed[p].expected for p, high in highs.items() if high is not None}
        )
        metrics.halted(positions.halted())
        ends = {claimed[partition].claim: high for partition, high in highs.items()}
        answered = {claimed[partition].claim for partition in claimed if partition in asked}
        self._beats.give(ends, answered, look.asked_at if look else None)
        self._foresight.turn(source, positions)
        self._halt_again(positions)
        if self._stands_still(source, positions, asked):
            source.join_again()
            return None
        if self._probe_halted(positions, window):
            return "a halted partition is read again"
        if look is not None and _topic_recreated(look, positions):
            return "a topic was deleted and created again"
        return None

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

    def hold(self, source: Source, positions: Positions) -> None:
        """Have partitions wait for more endangered ones, as Foresight.hold() does."""
        self._foresight.hold(source, positions)

    def halt(self, claimed: ClaimedPartition, why: str) -> None:
        """Record that reading of a partition has stopped. Each turn does it again: an attempt may
        fail."""
        self._halting[claimed.claim] = self._record(
            partial(ledger.halt, claims=[claimed.claim], why=why)
        )

    def _halt_again(self, positions: Positions) -> None:
        halted = {claimed.claim: claimed for claimed in positions.halted().values()}
        self._halting = {claim: job for claim, job in self._halting.items() if claim in halted}
        for claim, job in list(self._halting.items()):
            if job.done():
                self.halt(halted[claim], halted[claim].halted or "")

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
    """The ends that the brokers answered, without those of another topic of the same name: that one
    was deleted, or created, since the question."""
    ids = {p: each.claim.source.broker_id for p, each in positions.claimed.items()}
    return {p: end for p, end in look.ends.items() if p in ids and look.ids.get(p[0]) == ids[p]}


def _newest(
    source: Source, partition: KafkaPartition, asked: Mapping[KafkaPartition, int]
) -> int | None:
    """The end offset of a partition: as the brokers answered, or as of the last fetch. While a
    partition is not fetched, only the first one moves; the embedded broker answers too little."""
    known = (source.high_watermark(partition), asked.get(partition))
    return max((end for end in known if end is not None), default=None)


def _topic_recreated(look: Look, positions: Positions) -> bool:
    return any(
        look.ids.get(topic, claimed.claim.source.broker_id) != claimed.claim.source.broker_id
        for (topic, _), claimed in positions.claimed.items()
    )
