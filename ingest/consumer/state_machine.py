"""What the consumer decides. Pure: no thread, no clock, no Kafka, no database; loop.py acts on it.
Times are seconds of one clock."""

from collections.abc import Iterable, Sequence
from enum import Enum, auto

from history.daily.window import Window
from ingest.consumer.lanes import Flight, Lane, deal
from ingest.consumer.positions import ClaimedPartition, Positions, Tolerance
from ingest.source.message import KafkaPartition, LastMessage, Message
from ingest.store.batch import Claim, Limits, OffsetGap, Reject

# Another consumer moved the ledger: the rebalance that explains it is given this long to arrive.
CLAIM_AFTER_FENCED_SECONDS = 3.0
# For so long after the batch before it, a batch waits until it is as large as another in flight.
SMALL_BATCH_SECONDS = 0.25


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


class StateMachine:
    """The partitions of one consumer and its lanes: of each, the batch that fills and the one in
    flight. Every offset of a claimed partition goes to exactly one batch, in order. A change of
    what is claimed drops the filling batches; those in flight are fenced by their claims."""

    def __init__(self, limits: Limits, tolerance: Tolerance, lanes: int = 1) -> None:
        self._limits = limits
        self._tolerance = tolerance
        self._active_at: float | None = None
        self.positions = Positions()
        self.lanes = [Lane(number) for number in range(lanes)]
        self.paused: list[KafkaPartition] = []

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
        """Whether to claim what is assigned. Never while a batch is in flight."""
        return not self.in_flight and self.positions.claim_due(now)

    def grant(self, claims: Iterable[Claim], now: float) -> None:
        """The ledger granted these claims: read from their offsets, without those halted."""
        self.positions.grant(claims, self._tolerance)
        claimed = self.positions.claimed
        dealt = deal(claimed, len(self.lanes))
        for partition, number in dealt.items():
            claimed[partition].lane = number
        for lane in self.lanes:
            # A batch may have been abandoned, and its business keys with it.
            lane.begin(self._limits, max(1, len(set(dealt.values()))))
            lane.launched_at = now
        self.paused = []
        self._active_at = now

    def take(self, message: Message, window: Window, low: int | None = None) -> Verdict | None:
        """Add a message to the filling batch of its lane. low: the first offset at the broker, if
        known. None: added, or its partition is not claimed or halted. A message that was not taken
        must be offered again before later ones of its partition."""
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
        filling = self.lanes[claimed.lane].filling
        if not filling.takes(message):
            return Verdict.FULL
        gaps: tuple[OffsetGap, ...] = ()
        if offset > expected:
            if low is None:
                return Verdict.GAP
            gaps = _gaps(expected, low, offset)
        reject = filling.add(message, claimed.claim.source, expected, window, gaps)
        claimed.expected = offset + 1
        halts = self._judge(claimed, offset, bad=reject is not None)
        return Verdict.HALTED if halts else None

    def take_run(
        self, messages: Sequence[Message], window: Window, low: int | None = None
    ) -> tuple[int, Verdict | None]:
        """Take the first of these messages, while they follow one another in one partition and need
        no decision. low: the first offset of that partition at the broker, if known. Returns how
        many; HALTED if the last of them halts its partition. With 0, offer the first to take()."""
        first = messages[0]
        claimed = self.positions.claimed.get((first.topic, first.partition))
        if (
            claimed is None
            or claimed.halted is not None
            or claimed.last is not None
            or self.paused
            or claimed.expected < claimed.claim.resume_until
        ):
            return 0, None
        source = claimed.claim.source
        filling = self.lanes[claimed.lane].filling
        # Nothing that we expect was deleted, so what is left out never was a message.
        skipping = low is not None and low <= claimed.expected
        taken, reject = filling.add_run(messages, source, claimed.expected, window, skipping)
        if taken:
            claimed.expected = messages[taken - 1].offset + 1
        good = taken - (reject is not None)
        if good:
            claimed.breaker.note_good(good)
        halts = reject is not None and self._judge(claimed, claimed.expected - 1, bad=True)
        return taken, Verdict.HALTED if halts else None

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
            filling = self.lanes[claimed.lane].filling
            filling.skip(claimed.claim.source, claimed.expected, end, gaps)
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

    def lane(self, partition: KafkaPartition) -> Lane:
        """The lane of a claimed partition."""
        return self.lanes[self.positions.claimed[partition].lane]

    @property
    def in_flight(self) -> bool:
        """Whether a batch of any lane is being written."""
        return any(lane.flight is not None for lane in self.lanes)

    def due(self, now: float) -> Lane | None:
        """The lane whose batch goes next, if one should go now. While another batch is in flight, a
        batch goes once it is as large. After SMALL_BATCH_SECONDS a lane waits for no other."""
        flights = (lane.flight for lane in self.lanes)
        least = max((flight.batch.messages for flight in flights if flight is not None), default=0)
        due = (
            lane
            for lane in self.lanes
            if lane.ready
            and (lane.filling.messages >= least or now - lane.launched_at >= SMALL_BATCH_SECONDS)
        )
        return max(due, key=lambda lane: lane.filling.messages, default=None)

    def launch(self, lane: Lane, now: float) -> Flight:
        """Put the filling batch of a lane in flight, and begin another. Only if it is ready."""
        claims = {partition: each.claim for partition, each in self.positions.claimed.items()}
        self._active_at = now
        return lane.launch(claims, self.positions.generation, now)

    def landed(self, lane: Lane) -> Flight:
        """The batch of a lane is written. Launch its next before anything else."""
        flight, lane.flight = lane.flight, None
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

    def fenced(self, lane: Lane, now: float) -> None:
        """The ledger refused the batch of a lane: another consumer has claimed a partition."""
        lane.flight = None
        self.release(now + CLAIM_AFTER_FENCED_SECONDS)

    def abandoned(self, lane: Lane, now: float) -> None:
        """The batch of a lane was given up."""
        flight = self.landed(lane)
        if flight.generation == self.positions.generation:
            self.release(now)

    def pause(self) -> list[KafkaPartition]:
        """Returns the partitions to pause, until resume() or a change of the claims."""
        self.paused = self.positions.reading()
        return self.paused

    def resume(self) -> list[KafkaPartition]:
        """Returns the partitions to resume: those paused, without those halted meanwhile."""
        reading = self.positions.reading()
        resumed = [partition for partition in self.paused if partition in reading]
        self.paused = []
        return resumed

    def idle_since(self) -> float | None:
        """Since when nothing came, with all claimed and all written; None if that is not so."""
        filling = any(lane.filling.progress for lane in self.lanes)
        if self.in_flight or filling or not self.positions.settled:
            return None
        return self._active_at

    def _drop(self) -> None:
        """Forget the messages of the filling batches, and that reading was paused."""
        for lane in self.lanes:
            lane.drop()
        self.paused = []

    def _judge(self, claimed: ClaimedPartition, offset: int, bad: bool) -> bool:
        """Whether this message halts its partition."""
        if offset < claimed.claim.resume_until:
            return False
        claimed.breaker.note(bad)
        if bad and claimed.halted is None:
            claimed.halted = claimed.breaker.tripped()
            return claimed.halted is not None
        return False


def _gaps(expected: int, low: int, offset: int) -> tuple[OffsetGap, ...]:
    """Covers the offsets from the expected one to the one that came."""
    there_from = min(max(low, expected), offset)
    gaps = (OffsetGap(expected, there_from, True), OffsetGap(there_from, offset, False))
    return tuple(gap for gap in gaps if gap.end > gap.start)
