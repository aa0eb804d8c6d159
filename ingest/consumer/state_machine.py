"""The decisions of the consumer: no thread, no clock, no Kafka, no database.

The loop acts on them. Times are passed in, in seconds of one clock.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ingest.consumer.lanes import Flight, Lane, NoFlightError, assign_lanes
from ingest.consumer.positions import ClaimedPartition, Positions, Tolerance
from ingest.messages.decode import DecodedMessage
from ingest.messages.message import KafkaPartition, LastMessage, Message
from ingest.store.batch import BadMessage, Claim, Limits, OffsetGap

# How long to wait for the rebalance that explains why another consumer moved the ledger.
CLAIM_AFTER_FENCED_SECONDS = 3.0
# How long after the previous batch a batch waits to grow as large as those in flight.
SMALL_BATCH_SECONDS = 0.25


class AdmissionVerdict(Enum):
    """What to do before the next message is offered."""

    HALTED = auto()
    """The last message was admitted and halted its partition: pause it, and record that."""
    FULL = auto()
    """Not admitted: launch the batch and offer the message again."""
    GAP = auto()
    """Not admitted: offer the message again with the first offset at the broker."""
    CUT = auto()
    """Not admitted: the log is not the one that was read. Claim everything again."""
    UNEXPECTED = auto()
    """Not admitted: it was read before, or reading is paused. Claim everything again."""


class Admission(NamedTuple):
    """How many of the offered messages are done with, and what to do before the next one."""

    done: int
    verdict: AdmissionVerdict | None


class StateMachine:
    """The partitions of one consumer, and its lanes with their batches.

    Every offset of a claimed partition goes to exactly one batch, in order. When the claims change,
    the filling batches are dropped; the ledger refuses those in flight if another consumer has
    claimed their partitions.
    """

    def __init__(self, limits: Limits, tolerance: Tolerance, lanes: int = 1) -> None:
        self._limits = limits
        self._tolerance = tolerance
        self._active_at: float | None = None
        self.positions = Positions()
        self.lanes = [Lane(number) for number in range(lanes)]
        self.paused: list[KafkaPartition] = []

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """Note the partitions that the group assigned."""
        self._drop_filling_batches()
        self.positions.assign(partitions, now)

    def revoke(self) -> None:
        """Note that the group took all partitions away."""
        self._drop_filling_batches()
        self.positions.revoke()

    def release(self, claim_at: float) -> None:
        """Forget what is not written, and claim everything again at `claim_at`."""
        self._drop_filling_batches()
        self.positions.release(claim_at)

    def is_claim_due(self, now: float) -> bool:
        """Return whether to claim what is assigned. Never while a batch is in flight."""
        return not self.in_flight and self.positions.is_claim_due(now)

    def grant(self, claims: Iterable[Claim], now: float) -> None:
        """Start reading with the claims that the ledger granted, from their offsets."""
        self.positions.grant(claims, self._tolerance)
        claimed = self.positions.claimed
        dealt = assign_lanes(claimed, len(self.lanes))
        for partition, number in dealt.items():
            claimed[partition].lane = number
        for lane in self.lanes:
            # A batch may have been abandoned, and its business keys with it.
            lane.begin(self._limits, max(1, len(set(dealt.values()))))
            lane.launched_at = now
        self.paused = []
        self._active_at = now

    def admit(self, messages: Sequence[DecodedMessage], low: int | None = None) -> Admission:
        """Add the first message, and those that follow it, to the filling batch of their lane.

        Stops before the first message that needs a decision, and after one that breaks the
        contract. A message of a partition that is not claimed, or is halted, is left out and
        counts as done. A message that was not admitted must be offered again before later ones of
        its partition.

        Args:
            low: The first offset of the first message's partition at the broker, if known.
        """
        first = messages[0]
        claimed = self.positions.claimed.get((first.message.topic, first.message.partition))
        if claimed is None or claimed.halted is not None:
            return Admission(1, None)
        if (
            claimed.last is None
            and not self.paused
            and claimed.expected >= claimed.claim.resume_until
        ):
            admission = self._admit_run(claimed, messages, low)
            if admission.done:
                return admission
        verdict = self._admit_one(claimed, first, low)
        admitted = verdict is None or verdict is AdmissionVerdict.HALTED
        return Admission(1 if admitted else 0, verdict)

    def _admit_run(
        self, claimed: ClaimedPartition, messages: Sequence[DecodedMessage], low: int | None
    ) -> Admission:
        """Add messages while they follow one another in this partition and need no decision."""
        filling = self.lanes[claimed.lane].filling
        # Nothing that is expected was deleted, so offsets that are left out never were messages.
        skipping = low is not None and low <= claimed.expected
        count, bad_message = filling.add_run(
            messages, claimed.claim.source, claimed.expected, skipping
        )
        if count:
            claimed.expected = messages[count - 1].message.offset + 1
        good = count - (bad_message is not None)
        if good:
            claimed.breaker.note_good(good)
        halts = bad_message is not None and self._count_and_judge(
            claimed, claimed.expected - 1, bad=True
        )
        return Admission(count, AdmissionVerdict.HALTED if halts else None)

    def _admit_one(
        self, claimed: ClaimedPartition, decoded: DecodedMessage, low: int | None
    ) -> AdmissionVerdict | None:
        """Add one message, or return what must be done first. None: it was added, or known."""
        message = decoded.message
        offset, expected = message.offset, claimed.expected
        if claimed.last is not None and offset >= claimed.last.offset:
            verdict = self._verify_continuation(claimed, claimed.last, message, low)
            if verdict is not None or offset < expected:
                return verdict
        if offset < expected:
            self.positions.suspects.add(claimed.claim.source.kafka)
            return AdmissionVerdict.UNEXPECTED
        if self.paused:
            return AdmissionVerdict.UNEXPECTED
        filling = self.lanes[claimed.lane].filling
        if not filling.fits(decoded.size):
            return AdmissionVerdict.FULL
        gaps: tuple[OffsetGap, ...] = ()
        if offset > expected:
            if low is None:
                return AdmissionVerdict.GAP
            gaps = _describe_gaps(expected, low, offset)
        bad_message = filling.add(decoded, claimed.claim.source, expected, gaps)
        claimed.expected = offset + 1
        halts = self._count_and_judge(claimed, offset, bad=bad_message is not None)
        return AdmissionVerdict.HALTED if halts else None

    def advance_to_end(
        self, partition: KafkaPartition, end: int, low: int | None = None
    ) -> AdmissionVerdict | None:
        """Advance a partition to its end, over offsets that are not messages.

        Such offsets are the markers of transactions. All messages before `end` have been admitted.

        Args:
            end: The end offset, as the client reported it.
            low: The first offset at the broker, if known.

        Returns:
            None when the partition is at its end. GAP: call again with `low`. UNEXPECTED: the log
            may have been truncated. CUT: the log is not the one that was read.
        """
        claimed = self.positions.claimed.get(partition)
        if claimed is None or claimed.halted is not None:
            return None
        last = claimed.last
        missing = last is not None and not claimed.found
        if last is not None and missing and last.offset >= end:
            self.positions.suspects.add(partition)
            return AdmissionVerdict.UNEXPECTED
        if claimed.expected >= end and not missing:
            return None
        if low is None:
            return AdmissionVerdict.GAP
        if last is not None and missing:
            if not last.may_be_gone(low, -1):
                return self._note_cut_log(claimed)
            claimed.last = None
        if claimed.expected < end:
            gaps = _describe_gaps(claimed.expected, low, end)
            filling = self.lanes[claimed.lane].filling
            filling.skip(claimed.claim.source, claimed.expected, end, gaps)
            claimed.expected = end
        return None

    def _verify_continuation(
        self, claimed: ClaimedPartition, last: LastMessage, message: Message, low: int | None
    ) -> AdmissionVerdict | None:
        """Compare the first messages since the claim with the last message before it."""
        if message.offset < claimed.expected:
            if not last.is_same(message):
                return self._note_cut_log(claimed)
            claimed.found = True
            return None
        if not claimed.found:
            if low is None:
                return AdmissionVerdict.GAP
            if not last.may_be_gone(low, message.leader_epoch):
                return self._note_cut_log(claimed)
        claimed.last = None
        return None

    def _note_cut_log(self, claimed: ClaimedPartition) -> AdmissionVerdict:
        self.positions.cut.add(claimed.claim.source)
        return AdmissionVerdict.CUT

    def get_lane(self, partition: KafkaPartition) -> Lane:
        """Return the lane of a claimed partition."""
        return self.lanes[self.positions.claimed[partition].lane]

    @property
    def in_flight(self) -> bool:
        """Whether a batch of any lane is being written."""
        return any(lane.flight is not None for lane in self.lanes)

    def choose_due_lane(self, now: float) -> Lane | None:
        """Return the lane whose batch should be launched now, or None.

        While other batches are in flight, a batch waits until it is as large as the largest of
        them, but not longer than SMALL_BATCH_SECONDS.
        """
        flights = (lane.flight for lane in self.lanes)
        least = max((flight.batch.messages for flight in flights if flight is not None), default=0)
        due_lanes = (
            lane
            for lane in self.lanes
            if lane.ready
            and (lane.filling.messages >= least or now - lane.launched_at >= SMALL_BATCH_SECONDS)
        )
        return max(due_lanes, key=lambda lane: lane.filling.messages, default=None)

    def launch(self, lane: Lane, now: float) -> Flight:
        """Put the filling batch of a lane in flight, and begin another. The lane must be ready."""
        claims = {partition: claimed.claim for partition, claimed in self.positions.claimed.items()}
        self._active_at = now
        return lane.launch(claims, self.positions.generation, now)

    def take_written_flight(self, lane: Lane) -> Flight:
        """Take the written batch out of a lane, so that its next one can be launched."""
        flight, lane.flight = lane.flight, None
        if flight is None:
            raise NoFlightError(f"lane {lane.number} has no batch in flight")
        return flight

    def judge(self, rejects: Iterable[BadMessage]) -> list[ClaimedPartition]:
        """Count bad messages that the database found. Return the partitions that are halted now."""
        halts = []
        for reject in rejects:
            message = reject.message
            claimed = self.positions.claimed.get((message.topic, message.partition))
            if claimed is not None and self._count_and_judge(claimed, message.offset, bad=True):
                halts.append(claimed)
        return halts

    def get_commit_offsets(self, flight: Flight) -> dict[KafkaPartition, int]:
        """Return the offsets to commit for a written batch, of partitions that are still ours."""
        claimed = self.positions.claimed
        return {
            source.kafka: progress.next
            for source, progress in flight.batch.progress.items()
            if (own := claimed.get(source.kafka)) and own.claim == flight.claims[source]
        }

    def handle_fenced(self, lane: Lane, now: float) -> None:
        """Drop a batch that the ledger refused because another consumer claimed a partition."""
        lane.flight = None
        self.release(now + CLAIM_AFTER_FENCED_SECONDS)

    def handle_abandoned(self, lane: Lane, now: float) -> None:
        """Drop a batch that was given up, and claim again if its claims still hold."""
        flight = self.take_written_flight(lane)
        if flight.generation == self.positions.generation:
            self.release(now)

    def pause(self) -> list[KafkaPartition]:
        """Return the partitions to pause until `resume` or a change of the claims."""
        self.paused = self.positions.list_reading()
        return self.paused

    def resume(self) -> list[KafkaPartition]:
        """Return the paused partitions that were not halted meanwhile, to be resumed."""
        reading = self.positions.list_reading()
        resumed = [partition for partition in self.paused if partition in reading]
        self.paused = []
        return resumed

    def get_idle_start(self) -> float | None:
        """Return since when nothing came, or None while something is left to claim or write."""
        filling = any(lane.filling.progress for lane in self.lanes)
        if self.in_flight or filling or not self.positions.settled:
            return None
        return self._active_at

    def _drop_filling_batches(self) -> None:
        """Forget the messages of the filling batches, and that reading was paused."""
        for lane in self.lanes:
            lane.drop()
        self.paused = []

    def _count_and_judge(self, claimed: ClaimedPartition, offset: int, bad: bool) -> bool:
        """Count a message and return whether it halts its partition."""
        if offset < claimed.claim.resume_until:
            return False
        claimed.breaker.note(bad)
        if bad and claimed.halted is None:
            claimed.halted = claimed.breaker.explain_trip()
            return claimed.halted is not None
        return False


def _describe_gaps(expected: int, low: int, offset: int) -> tuple[OffsetGap, ...]:
    """Return the gaps that cover the offsets from the expected one to the one that came."""
    first_available = min(max(low, expected), offset)
    gaps = (OffsetGap(expected, first_available, True), OffsetGap(first_available, offset, False))
    return tuple(gap for gap in gaps if gap.end > gap.start)
