"""Decides what the consumer does with each message; the loop acts on the decisions.

Nothing here starts a thread, reads a clock, or uses Kafka or the database. Callers pass times
as arguments, in seconds, always from the same clock. Begin with `StateMachine.admit`.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from ingest.consumer.lanes import Flight, Lane, NoFlightError, assign_lanes
from ingest.consumer.positions import ClaimedPartition, Positions, Tolerance
from ingest.messages.decode import DecodedMessage
from ingest.messages.message import KafkaMessage, KafkaPartition, LastMessage
from ingest.store.batch import BadMessage, Limits, OffsetGap
from ingest.store.claim import Claim

# How long to wait for the rebalance that explains why another consumer moved the ledger.
CLAIM_AFTER_FENCED_SECONDS = 3.0
# A batch waits to grow as large as the batches in flight, but only until so many seconds after the
# launch of its lane's previous batch.
SMALL_BATCH_SECONDS = 0.25


class AdmissionVerdict(Enum):
    """The state machine's verdict on a message: what the loop must do before it offers the next."""

    HALTED = auto()
    """Admitted, but the last message halted its partition: pause it, and record the halt."""
    FULL = auto()
    """Not admitted: launch the batch and offer the message again."""
    GAP = auto()
    """Not admitted: offer the message again with the first offset at the broker."""
    TRUNCATED = auto()
    """Not admitted: the log was truncated since it was read. Claim everything again."""
    UNEXPECTED = auto()
    """Not admitted: the message was read before, or reading is paused. Claim everything again."""


class Admission(NamedTuple):
    """How many messages `StateMachine.admit` has handled, and why it has stopped."""

    handled: int  # how many of the offered messages must not be offered again
    verdict: AdmissionVerdict | None  # None: offer the next message


class StateMachine:
    """The partitions of one consumer, and its lanes with their batches.

    Every offset of a claimed partition goes to exactly one batch, in order. When the claims change,
    the batches that are being filled are dropped. A batch in flight is written all the same, unless
    a different consumer has claimed one of its partitions: then the ledger refuses the batch.

    After a claim, the last message that was read before the claim is read once more. If the broker
    has a different message at this offset, the log was truncated.
    """

    def __init__(self, limits: Limits, tolerance: Tolerance, lanes: int = 1) -> None:
        self._limits = limits
        self._tolerance = tolerance
        self._active_at: float | None = None  # the last launch of a batch or grant of claims
        self.positions = Positions()
        self.lanes = [Lane(number) for number in range(lanes)]
        self.paused: list[KafkaPartition] = []

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """Record the partitions that the consumer group assigned.

        Drops the batches that are being filled.
        """
        self._drop_filling_batches()
        self.positions.assign(partitions, now)

    def revoke(self) -> None:
        """Forget all assigned and claimed topic partitions: the consumer group revoked them.

        Drops the batches that are being filled.
        """
        self._drop_filling_batches()
        self.positions.revoke()

    def release(self, claim_at: float) -> None:
        """Drop the messages that are not written, and claim all partitions again at `claim_at`."""
        self._drop_filling_batches()
        self.positions.release(claim_at)

    def is_claim_due(self, now: float) -> bool:
        """Return whether claiming is due now. It is never due while a batch is in flight."""
        return not self.in_flight and self.positions.is_claim_due(now)

    def grant(self, claims: Iterable[Claim], now: float) -> None:
        """Take over the claims that the ledger granted. Reading continues at their offsets."""
        self.positions.grant(claims, self._tolerance)
        claimed = self.positions.claimed
        lane_numbers = assign_lanes(claimed, len(self.lanes))
        for partition, number in lane_numbers.items():
            claimed[partition].lane = number
        for lane in self.lanes:
            # The lane forgets its search keys: the batch that should have stored them may have
            # been abandoned.
            lane.begin(self._limits, max(1, len(set(lane_numbers.values()))))
            lane.launched_at = now
        self.paused = []
        self._active_at = now

    def admit(
        self, messages: Sequence[DecodedMessage], first_offset: int | None = None
    ) -> Admission:
        """Add the messages of one topic partition to the batch that its lane is filling.

        Adding begins with the first message. It stops before a message of a different topic
        partition, and after a message that breaks the contract. It also stops before a message that
        cannot be added now, for example because the batch is full. Then the verdict says which
        action the caller must take first.

        If the topic partition is halted or not claimed, the first message is skipped, and counts as
        handled.

        If a message was not handled, the caller must offer it again before later messages of the
        same topic partition.

        Args:
            messages: At least one, in the order in which the client delivered them.
            first_offset: The oldest offset that the broker still has of the topic partition of
                `messages[0]`; None if it is not known.
        """
        first = messages[0]
        partition = self.positions.claimed.get((first.message.topic, first.message.partition))
        if partition is None or partition.halted is not None:
            return Admission(1, None)
        if (
            partition.unverified_last is None
            and not self.paused
            and partition.expected >= partition.claim.resume_until
        ):
            admission = self._admit_many(partition, messages, first_offset)
            if admission.handled:
                return admission
        verdict = self._admit_one(partition, first, first_offset)
        is_admitted = verdict is None or verdict is AdmissionVerdict.HALTED
        return Admission(1 if is_admitted else 0, verdict)

    def _admit_many(
        self,
        partition: ClaimedPartition,
        messages: Sequence[DecodedMessage],
        first_offset: int | None,
    ) -> Admission:
        """Add messages to the batch, up to the first message that `_admit_one` must examine."""
        batch = self.lanes[partition.lane].filling_batch
        # If the broker still has the expected offset, it has not deleted any later offset. So a
        # later offset that the broker does not deliver never held a message.
        may_skip = first_offset is not None and first_offset <= partition.expected
        count, bad_message = batch.add_many(
            messages, partition.claim.topic_partition, partition.expected, may_skip
        )
        if count:
            partition.expected = messages[count - 1].message.offset + 1
        good_count = count - (bad_message is not None)
        if good_count:
            partition.breaker.note_good(good_count)
        is_halted = bad_message is not None and self._count_message(
            partition, partition.expected - 1, is_bad=True
        )
        return Admission(count, AdmissionVerdict.HALTED if is_halted else None)

    def _admit_one(
        self, partition: ClaimedPartition, decoded: DecodedMessage, first_offset: int | None
    ) -> AdmissionVerdict | None:
        """Add one message to the batch, unless the loop must first take an action.

        Returns:
            None if the message was added, or if it was read again only to verify the log. HALTED if
            the message was added, and the topic partition is now halted. With any other verdict the
            message was not added: the verdict is the action that the loop must take before it
            offers the message again.
        """
        message = decoded.message
        offset, expected = message.offset, partition.expected
        last = partition.unverified_last
        if last is not None and offset >= last.offset:
            verdict = self._verify_log(partition, last, message, first_offset)
            if verdict is not None or offset < expected:
                return verdict
        if offset < expected:
            self.positions.suspects.add(partition.claim.topic_partition.kafka)
            return AdmissionVerdict.UNEXPECTED
        if self.paused:
            return AdmissionVerdict.UNEXPECTED
        batch = self.lanes[partition.lane].filling_batch
        if not batch.fits(decoded.size):
            return AdmissionVerdict.FULL
        gaps: tuple[OffsetGap, ...] = ()
        if offset > expected:
            if first_offset is None:
                return AdmissionVerdict.GAP
            gaps = _describe_gaps(expected, first_offset, offset)
        bad_message = batch.add(decoded, partition.claim.topic_partition, expected, gaps)
        partition.expected = offset + 1
        is_halted = self._count_message(partition, offset, is_bad=bad_message is not None)
        return AdmissionVerdict.HALTED if is_halted else None

    def advance_to_end(
        self, partition: KafkaPartition, end: int, first_offset: int | None = None
    ) -> AdmissionVerdict | None:
        """Move the position of a partition to its end offset.

        Call it when all messages before `end` are admitted. Offsets between the last message and
        `end` are markers of transactions, or were deleted.

        Args:
            end: The end offset, as the client reported it.
            first_offset: The first offset at the broker, if known.

        Returns:
            None: the partition is at its end. GAP: call again with `first_offset`. UNEXPECTED: the
            log may have been truncated. TRUNCATED: the log was truncated.
        """
        claimed = self.positions.claimed.get(partition)
        if claimed is None or claimed.halted is not None:
            return None
        last = None if claimed.is_last_delivered else claimed.unverified_last
        if last is not None and last.offset >= end:
            self.positions.suspects.add(partition)
            return AdmissionVerdict.UNEXPECTED
        if claimed.expected >= end and last is None:
            return None
        if first_offset is None:
            return AdmissionVerdict.GAP
        if last is not None:
            if not last.may_be_gone(first_offset, -1):
                return self._note_truncation(claimed)
            claimed.unverified_last = None
        if claimed.expected < end:
            gaps = _describe_gaps(claimed.expected, first_offset, end)
            batch = self.lanes[claimed.lane].filling_batch
            batch.skip(claimed.claim.topic_partition, claimed.expected, end, gaps)
            claimed.expected = end
        return None

    def _verify_log(
        self,
        partition: ClaimedPartition,
        last: LastMessage,
        message: KafkaMessage,
        first_offset: int | None,
    ) -> AdmissionVerdict | None:
        """Find out whether the log was truncated, from a message that was read after the claim.

        After a claim, reading begins with `last`. The log was truncated if the broker has a
        different message at the offset of `last`, or lacks `last` although it cannot have deleted
        `last`.

        Args:
            last: The last message that was read before the claim.
            message: The message that was just read, at the offset of `last` or after it.

        Returns:
            None: there is no sign of a truncation. GAP: call again with `first_offset`. TRUNCATED:
            the log was truncated.
        """
        if message.offset < partition.expected:
            if not last.is_same(message):
                return self._note_truncation(partition)
            partition.is_last_delivered = True
            return None
        if not partition.is_last_delivered:
            if first_offset is None:
                return AdmissionVerdict.GAP
            if not last.may_be_gone(first_offset, message.leader_epoch):
                return self._note_truncation(partition)
        partition.unverified_last = None
        return None

    def _note_truncation(self, partition: ClaimedPartition) -> AdmissionVerdict:
        self.positions.truncated.add(partition.claim.topic_partition)
        return AdmissionVerdict.TRUNCATED

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
        sizes = (flight.batch.messages for flight in flights if flight is not None)
        min_messages = max(sizes, default=0)
        due_lanes = (
            lane
            for lane in self.lanes
            if lane.ready
            and (
                lane.filling_batch.messages >= min_messages
                or now - lane.launched_at >= SMALL_BATCH_SECONDS
            )
        )
        return max(due_lanes, key=lambda lane: lane.filling_batch.messages, default=None)

    def launch(self, lane: Lane, now: float) -> Flight:
        """Return the batch that a lane has filled, and begin an empty batch. See `Lane.launch`."""
        claims = {partition: claimed.claim for partition, claimed in self.positions.claimed.items()}
        self._active_at = now
        return lane.launch(claims, self.positions.claims_revision, now)

    def take_written_flight(self, lane: Lane) -> Flight:
        """Take the written batch out of a lane, so that the lane can launch its next batch."""
        flight, lane.flight = lane.flight, None
        if flight is None:
            raise NoFlightError(f"lane {lane.number} has no batch in flight")
        return flight

    def count_refused_messages(self, refused: Iterable[BadMessage]) -> list[ClaimedPartition]:
        """Count messages that the database refused, and return the partitions that they halt."""
        halted_partitions = []
        for bad_message in refused:
            message = bad_message.message
            partition = self.positions.claimed.get((message.topic, message.partition))
            if partition is not None and self._count_message(
                partition, message.offset, is_bad=True
            ):
                halted_partitions.append(partition)
        return halted_partitions

    def get_commit_offsets(self, flight: Flight) -> dict[KafkaPartition, int]:
        """Return the offsets to commit for a written batch.

        Partitions that this consumer has meanwhile lost are left out.
        """
        claimed = self.positions.claimed
        return {
            topic_partition.kafka: progress.next
            for topic_partition, progress in flight.batch.progress.items()
            if (partition := claimed.get(topic_partition.kafka))
            and partition.claim == flight.claims[topic_partition]
        }

    def handle_fenced(self, lane: Lane, now: float) -> None:
        """Drop a batch that the ledger refused because another consumer claimed a partition."""
        lane.flight = None
        self.release(now + CLAIM_AFTER_FENCED_SECONDS)

    def handle_abandoned(self, lane: Lane, now: float) -> None:
        """Drop a batch that its writer gave up.

        The claims are released, so that the messages of the batch are read again after the next
        claim. If the claims have changed since the batch was launched, the messages are read again
        anyway, and the new claims stay.
        """
        flight = self.take_written_flight(lane)
        if flight.claims_revision == self.positions.claims_revision:
            self.release(now)

    def pause(self) -> list[KafkaPartition]:
        """Begin a pause, and return the topic partitions that the Kafka client must pause.

        The pause lasts until `resume` is called or the claims change.
        """
        self.paused = self.positions.list_unhalted()
        return self.paused

    def resume(self) -> list[KafkaPartition]:
        """End the pause, and return the topic partitions that the Kafka client must resume.

        A topic partition that was halted during the pause stays paused.
        """
        unhalted = self.positions.list_unhalted()
        resumed = [partition for partition in self.paused if partition in unhalted]
        self.paused = []
        return resumed

    def get_idle_start(self) -> float | None:
        """Return the moment at which the consumer became idle, or None if it has work to do."""
        is_filling = any(lane.filling_batch.progress for lane in self.lanes)
        if self.in_flight or is_filling or not self.positions.settled:
            return None
        return self._active_at

    def _drop_filling_batches(self) -> None:
        """Drop the batches that are being filled, and forget which partitions are paused."""
        for lane in self.lanes:
            lane.drop()
        self.paused = []

    def _count_message(self, partition: ClaimedPartition, offset: int, is_bad: bool) -> bool:
        """Count a message, and return whether it halts its partition."""
        if offset < partition.claim.resume_until:
            return False
        partition.breaker.note(is_bad)
        if is_bad and partition.halted is None:
            partition.halted = partition.breaker.explain_trip()
            return partition.halted is not None
        return False


def _describe_gaps(expected: int, first_offset: int, offset: int) -> tuple[OffsetGap, ...]:
    """Return the gaps from `expected` up to `offset`: at most two.

    Missing offsets before `first_offset` are lost: the broker deleted them. Missing offsets at
    or after `first_offset` never held messages. They are markers of transactions, for example.

    Args:
        first_offset: The first offset that the broker still has.
        offset: The offset of the next message, or the end offset.
    """
    present_from = min(max(first_offset, expected), offset)
    gaps = (
        OffsetGap(expected, present_from, lost=True),
        OffsetGap(present_from, offset, lost=False),
    )
    return tuple(gap for gap in gaps if gap.end > gap.start)
