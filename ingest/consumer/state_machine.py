"""What the consumer decides. Pure: no thread, no clock, no Kafka, no database; loop.py acts on it.

A consumer fills one batch while another is in flight. Times are seconds of one clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from history.search_index.keys import Fingerprint
from history.window import Window
from ingest.consumer.breaker import Tolerance
from ingest.consumer.key_cache import BoundedCache
from ingest.consumer.positions import ClaimedPartition, Positions
from ingest.source.decode import Decode, decode
from ingest.source.last_message import LastMessage
from ingest.source.message import KafkaPartition, Message, TopicPartition
from ingest.store.batch import Batch, Gap, Limits, Reject
from ingest.store.claim import Claim

# Another consumer moved the ledger: the rebalance that explains it is given this long to arrive.
CLAIM_AFTER_FENCED_SECONDS = 3.0


class Verdict(Enum):
    """What to do before the next message."""

    HALTED = auto()
    """The message was taken. Its partition is halted now: pause it, and record that."""
    FULL = auto()
    """Not taken: launch the batch and offer the message again."""
    GAP = auto()
    """Not taken: offer it again with the first offset at the broker."""
    CUT = auto()
    """Not taken: the log is not the one that was read. Claim everything again."""
    UNEXPECTED = auto()
    """Not taken: it was read before, or reading is paused. Claim everything again."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A batch that is being written, and the claims under which it was read."""

    batch: Batch
    claims: Mapping[TopicPartition, Claim]
    generation: int


class StateMachine:
    """The partitions of one consumer, the batch that fills, and the batch in flight.

    Of each claimed partition every offset goes to exactly one batch, in order. A change of what is
    claimed drops the filling batch; the batch in flight is fenced by its claims.
    """

    def __init__(self, limits: Limits, tolerance: Tolerance, decode: Decode = decode) -> None:
        self._limits = limits
        self._tolerance = tolerance
        self._decode = decode
        self._fingerprints: BoundedCache[Fingerprint] = BoundedCache()
        self._active_at: float | None = None
        self.positions = Positions()
        self.flight: Flight | None = None
        self.paused: list[KafkaPartition] = []
        self._drop()

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """The group assigned these partitions."""
        self._drop()
        self.positions.assign(partitions, now)

    def revoke(self) -> None:
        """The group took all partitions away."""
        self._drop()
        self.positions.revoke()

    def release(self, claim_at: float) -> None:
        """Forget what is not written, and claim everything again at this time."""
        self._drop()
        self.positions.release(claim_at)

    def claim_due(self, now: float) -> bool:
        """Whether to claim what is assigned. Never while a batch is in flight: the ledger may
        move."""
        return self.flight is None and self.positions.claim_due(now)

    def grant(self, claims: Iterable[Claim], now: float) -> None:
        """The ledger granted these claims: read from their offsets, without those halted."""
        self.positions.grant(claims, self._tolerance)
        # A batch may have been abandoned, and its business keys with it.
        self._fingerprints = BoundedCache()
        self._drop()
        self._active_at = now

    def take(self, message: Message, window: Window, low: int | None = None) -> Verdict | None:
        """Add a message to the filling batch. low: the first offset at the broker, if known.

        None: go on with the next message. This one was added, or its partition is not claimed or
        halted. A message that was not taken must be offered before later ones of its partition.
        """
        claimed = self.positions.claimed.get((message.topic, message.partition))
        if claimed is None or claimed.halted is not None:
            return None
        offset, expected = message.offset, claimed.expected
        if claimed.last is not None and offset >= claimed.last.offset:
            verdict = self._verify(claimed, claimed.last, message, low)
            if verdict is not None or offset < expected:
                return verdict
        if offset < expected:
            self.positions.suspects.add(claimed.claim.source.kafka)
            return Verdict.UNEXPECTED
        if self.paused:
            return Verdict.UNEXPECTED
        if not self._filling.takes(message):
            return Verdict.FULL
        gaps: tuple[Gap, ...] = ()
        if offset > expected:
            if low is None:
                return Verdict.GAP
            gaps = _gaps(expected, low, offset)
        reject = self._filling.add(message, claimed.claim.source, expected, window, gaps)
        claimed.expected = offset + 1
        halts = self._judge(claimed, offset, bad=reject is not None)
        return Verdict.HALTED if halts else None

    def reach_end(
        self, partition: KafkaPartition, end: int, low: int | None = None
    ) -> Verdict | None:
        """Advance a partition to its end, over what is no message, such as the markers of
        transactions: the messages before it are all taken. low: the first offset at the broker, if
        known. GAP: call it again with that. UNEXPECTED: the log may have been truncated."""
        claimed = self.positions.claimed.get(partition)
        if claimed is None or claimed.halted is not None:
            return None
        last = claimed.last
        missing = last is not None and not claimed.found
        if last is not None and missing and last.offset >= end:
            self.positions.suspects.add(partition)
            return Verdict.UNEXPECTED
        if claimed.expected >= end and not missing:
            return None
        if low is None:
            return Verdict.GAP
        if last is not None and missing:
            if not last.may_be_gone(low, -1):
                return self._cut(claimed)
            claimed.last = None
        if claimed.expected < end:
            gaps = _gaps(claimed.expected, low, end)
            self._filling.skip(claimed.claim.source, claimed.expected, end, gaps)
            claimed.expected = end
        return None

    def _verify(
        self, claimed: ClaimedPartition, last: LastMessage, message: Message, low: int | None
    ) -> Verdict | None:
        """Compare the first messages since the claim with the last one before it."""
        if message.offset < claimed.expected:
            if not last.same(message):
                return self._cut(claimed)
            claimed.found = True
            return None
        if not claimed.found:
            if low is None:
                return Verdict.GAP
            if not last.may_be_gone(low, message.leader_epoch):
                return self._cut(claimed)
        claimed.last = None
        return None

    def _cut(self, claimed: ClaimedPartition) -> Verdict:
        self.positions.cut.add(claimed.claim.source)
        return Verdict.CUT

    def arrange(self) -> None:
        """Sort the filling batch, while there is time for that."""
        self._filling.arrange()

    @property
    def launch_due(self) -> bool:
        """Whether the filling batch can go."""
        return self.flight is None and bool(self._filling.progress)

    def launch(self, now: float) -> Flight:
        """Put the filling batch in flight, and begin another. Only if launch_due."""
        batch = self._filling
        batch.arrange()
        self._fingerprints.update(batch.fingerprints)
        claimed = self.positions.claimed
        claims = {source: claimed[source.kafka].claim for source in batch.progress}
        self.flight = Flight(batch, claims, self.positions.generation)
        self._active_at = now
        self._begin_batch()
        return self.flight

    def landed(self) -> Flight:
        """The batch in flight is written. Launch the next before anything else: the database
        waits."""
        flight, self.flight = self.flight, None
        assert flight is not None  # noqa: S101 - the caller's contract
        return flight

    def judge(self, rejects: Iterable[Reject]) -> list[ClaimedPartition]:
        """Count the rejects that the database found. Returns the partitions that are halted now."""
        halts = []
        for reject in rejects:
            message = reject.message
            claimed = self.positions.claimed.get((message.topic, message.partition))
            if claimed is not None and self._judge(claimed, message.offset, bad=True):
                halts.append(claimed)
        return halts

    def ends(self, flight: Flight) -> dict[KafkaPartition, int]:
        """The offsets to commit for a written batch: of the partitions that are still ours."""
        claimed = self.positions.claimed
        return {
            source.kafka: progress.next
            for source, progress in flight.batch.progress.items()
            if (mine := claimed.get(source.kafka)) and mine.claim == flight.claims[source]
        }

    def fenced(self, now: float) -> None:
        """The ledger refused the batch in flight: another consumer has claimed a partition."""
        self.flight = None
        self.release(now + CLAIM_AFTER_FENCED_SECONDS)

    def abandoned(self, now: float) -> None:
        """The batch in flight was given up."""
        flight = self.landed()
        if flight.generation == self.positions.generation:
            self.release(now)

    def pause(self) -> list[KafkaPartition]:
        """Reading pauses: returns the partitions to pause. resume() ends it, and so does every
        change of what is claimed."""
        self.paused = self.positions.reading()
        return self.paused

    def resume(self) -> list[KafkaPartition]:
        """Returns the partitions to resume."""
        resumed, self.paused = self.paused, []
        return resumed

    def idle_since(self) -> float | None:
        """Since when nothing came, with all claimed and all written; None if that is not so."""
        if self.flight is not None or self._filling.progress or not self.positions.settled:
            return None
        return self._active_at

    def _drop(self) -> None:
        """Forget the messages of the filling batch, and that reading was paused."""
        self._begin_batch()
        self.paused = []

    def _begin_batch(self) -> None:
        self._filling = Batch(self._limits, self._decode, self._fingerprints)

    def _judge(self, claimed: ClaimedPartition, offset: int, bad: bool) -> bool:
        """Whether this message halts its partition."""
        if offset < claimed.claim.resume_until:
            return False
        claimed.breaker.note(bad)
        if bad and claimed.halted is None:
            claimed.halted = claimed.breaker.tripped()
            return claimed.halted is not None
        return False


def _gaps(expected: int, low: int, offset: int) -> tuple[Gap, ...]:
    """Covers the offsets from the expected one to the one that came."""
    there_from = min(max(low, expected), offset)
    gaps = (Gap(expected, there_from, True), Gap(there_from, offset, False))
    return tuple(gap for gap in gaps if gap.end > gap.start)
