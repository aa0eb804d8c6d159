"""Random tests of StateMachine: two consumers with one or two lanes share three partitions.

The test simulates Kafka, the group, the ledger and the database. It compares each written batch
with the log of the partition, offset by offset.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from history.kinds.entities import ENTITIES
from ingest.consumer.lanes import Lane, assign_lanes
from ingest.consumer.positions import Positions, Tolerance
from ingest.consumer.state_machine import (
    CLAIM_AFTER_FENCED_SECONDS,
    SMALL_BATCH_SECONDS,
    AdmissionVerdict,
    StateMachine,
)
from ingest.messages.decode import Reason, decode_message
from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import (
    KafkaMessage,
    KafkaPartition,
    LastMessage,
    TopicPartition,
)
from ingest.store.batch import GIANT_BYTES, BadMessage, Batch, Limits
from ingest.store.claim import Claim
from tests.messages import CHILD_TOPIC, TOPIC, WINDOW, make_message, make_value

TOLERANCE = Tolerance(consecutive=3, ratio=0.7, window=8)
LIMITS = Limits(rows=5, bytes=300_000)
LANES = 2
PARTITIONS: list[KafkaPartition] = [(TOPIC, 0), (TOPIC, 1), (CHILD_TOPIC, 0)]
BODIES = {
    "good": make_value(productInstanceId="a"),
    "bad": b"bad",
    "expired": make_value(productInstanceId="a", updatedAt="0001-01-01T00:00:00"),
    "giant": make_value(productInstanceId="a", data={"text": "x" * GIANT_BYTES}),
}
HOLE = "hole"  # an offset without a message, such as the marker of a transaction
KINDS = st.sampled_from(["good", "good", "bad", "bad", "expired", "giant", HOLE])


@dataclass
class ModelledLedgerRow:
    """The present ledger row of one partition."""

    cuts: int = 0  # how many earlier rows belong to truncated logs
    last: LastMessage | None = None
    epoch: int = 0
    next: int = 0
    resume_until: int = 0
    halted: bool = False
    read: int = 0


@dataclass
class ModelledConsumer:
    """One consumer: the real state machine, with a simulated Kafka client."""

    machine: StateMachine
    # The offset from which the client reads each partition.
    offsets: dict[KafkaPartition, int] = field(default_factory=dict)
    # The partitions with a delivered message since the claim: the client knows a leader epoch.
    fetched: set[KafkaPartition] = field(default_factory=set)
    # The partitions that the client reads from the start, because their log was truncated.
    reset: set[KafkaPartition] = field(default_factory=set)
    # The partitions whose messages the client does not deliver.
    paused: set[KafkaPartition] = field(default_factory=set)
    # How many bad messages of each partition were taken in a row.
    bad: Counter[KafkaPartition] = field(default_factory=Counter)
    written: int = 0  # messages whose write was answered

    def stop_reading(self) -> None:
        self.offsets, self.paused, self.fetched, self.reset = {}, set(), set(), set()


def take_message(
    machine: StateMachine, message: KafkaMessage, low: int | None = None
) -> AdmissionVerdict | None:
    """Admit one message as the consumer loop does, and return the verdict."""
    return machine.admit([decode_message(message, WINDOW)], low).verdict


NUMBERS = st.integers(0, 1)


def make_machine(lanes: int) -> StateMachine:
    """Make a state machine with LIMITS for each lane."""
    limits = Limits(LIMITS.rows * lanes, LIMITS.bytes * lanes)
    return StateMachine(limits, TOLERANCE, lanes=lanes)


def list_flying(member: ModelledConsumer) -> list[Lane]:
    return [lane for lane in member.machine.lanes if lane.flight is not None]


def list_ready(member: ModelledConsumer) -> list[Lane]:
    return [lane for lane in member.machine.lanes if lane.ready]


def can_pause(member: ModelledConsumer) -> bool:
    return member.machine.in_flight and bool(member.offsets) and not member.machine.paused


def can_claim(member: ModelledConsumer) -> bool:
    return member.machine.positions.claim_at is not None and not member.machine.in_flight


def require(condition: Callable[[ModelledConsumer], bool]) -> Any:
    """Return a decorator that runs a rule only if a consumer of the group meets the condition."""
    return precondition(lambda self: any(map(condition, self.members)))


class ConsumerMachine(RuleBasedStateMachine):
    """The state machine of the test. Each rule lets something happen and checks its effects."""

    @initialize(lanes=st.tuples(st.integers(1, LANES), st.integers(1, LANES)))
    def begin(self, lanes: tuple[int, int]) -> None:
        self.now = 0.0
        self.log: dict[KafkaPartition, list[str]] = {item: [] for item in PARTITIONS}
        # `leaders` has the leader that wrote each offset. `written` has the messages of all
        # leaders, also those that were truncated. `stored` has the messages in the database.
        self.leaders: dict[KafkaPartition, list[int]] = {item: [] for item in PARTITIONS}
        self.leader = dict.fromkeys(PARTITIONS, 0)
        self.written: dict[tuple[KafkaPartition, int, int], str] = {}
        self.stored: set[tuple[KafkaPartition, int, int]] = set()
        self.truncated: set[KafkaPartition] = set()
        self.compacted: set[KafkaPartition] = set()
        self.low = dict.fromkeys(PARTITIONS, 0)
        self.ledger = {item: ModelledLedgerRow() for item in PARTITIONS}
        self.members = [ModelledConsumer(make_machine(item)) for item in lanes]
        self.disturb((0, 1, 0), "lost", claimed=True)
        for partition in PARTITIONS:
            self.produce(partition, ["good", "bad", "good"])

    # Kafka

    @rule(partition=st.sampled_from(PARTITIONS), kinds=st.lists(KINDS, min_size=1, max_size=8))
    def produce(self, partition: KafkaPartition, kinds: list[str]) -> None:
        self.append(partition, kinds)

    def append(self, partition: KafkaPartition, kinds: list[str]) -> None:
        leader = self.leader[partition]
        for offset, kind in enumerate(kinds, len(self.log[partition])):
            self.written[partition, leader, offset] = kind
        self.log[partition] += kinds
        self.leaders[partition] += [leader] * len(kinds)

    @rule(partition=st.sampled_from(PARTITIONS))
    def produce_bad_release(self, partition: KafkaPartition) -> None:
        """Produce many bad messages and then a good one, as after a faulty release upstream."""
        self.append(partition, ["bad"] * TOLERANCE.window + ["good"])

    @rule(partition=st.sampled_from(PARTITIONS))
    def elect_leader(self, partition: KafkaPartition) -> None:
        """Elect a new leader that has the whole log."""
        self.leader[partition] += 1

    @rule(partition=st.sampled_from(PARTITIONS), back=st.integers(1, 3))
    def compact(self, partition: KafkaPartition, back: int) -> None:
        """Let log compaction at the broker delete a message that is already stored.

        Args:
            back: How far the message is before the next offset of the ledger.
        """
        offset = self.ledger[partition].next - back
        if self.low[partition] <= offset < len(self.log[partition]) - 1:
            self.log[partition][offset] = HOLE
            self.compacted.add(partition)

    @rule(
        partition=st.sampled_from(PARTITIONS),
        keep=st.floats(0, 1),
        kinds=st.lists(KINDS, max_size=12),
    )
    def truncate(self, partition: KafkaPartition, keep: float, kinds: list[str]) -> None:
        """Elect a leader with a shorter log, and append messages to this log.

        The log can then be longer than the offset up to which the consumers have read.

        Args:
            keep: How much of the old leader's log the new leader has, from 0 to 1.
            kinds: The kinds of the appended messages.
        """
        log, low = self.log[partition], self.low[partition]
        end = low + int((len(log) - low) * keep)
        if end == len(log) or not self.is_truncation_noticeable(partition, end):
            return
        self.truncated.add(partition)
        self.leader[partition] += 1
        for messages in (log, self.leaders[partition]):
            del messages[end:]
        self.append(partition, kinds)
        for member in self.members:
            position = member.offsets.get(partition, 0)
            if position > len(log) or (position > end and partition in member.fetched):
                member.offsets[partition] = low
                member.reset.add(partition)

    def is_truncation_noticeable(self, partition: KafkaPartition, end: int) -> bool:
        """Return whether consumers can notice that the log of a partition now ends at `end`.

        Consumers compare the last message that they have read with the log. They cannot do that if
        the broker has deleted all messages that were read.
        """
        entry = self.ledger[partition]
        known_values = entry.last is not None and entry.last.offset >= self.low[partition]
        if entry.next > end and not known_values:
            return False
        for member in self.members:
            claimed = member.machine.positions.claimed.get(partition)
            if claimed is None or partition in member.fetched:
                continue
            if claimed.expected > end and claimed.unverified_last is None:
                return False
        return True

    @rule(partition=st.sampled_from(PARTITIONS), share=st.sampled_from([0.1, 0.5, 1]))
    def delete_records(self, partition: KafkaPartition, share: float) -> None:
        """Let the broker delete the oldest unread messages."""
        start = max(self.low[partition], self.ledger[partition].next)
        self.low[partition] = start + int((len(self.log[partition]) - start) * share * share)

    # The group

    @rule(
        owners=st.tuples(*(NUMBERS for _ in PARTITIONS)),
        how=st.sampled_from(["handed over", "lost", "assigned again", "revoked", "claimed again"]),
        claimed=st.booleans(),
    )
    def disturb(self, owners: tuple[int, ...], how: str, claimed: bool) -> None:
        """Let the group revoke and assign partitions, or let consumers claim again."""
        for number, member in enumerate(self.members):
            partitions = [
                partition
                for partition, owner in zip(PARTITIONS, owners, strict=True)
                if owner == number
            ]
            if how == "handed over":
                self.hand_over_message(member)
            if how in ("handed over", "lost", "revoked"):
                member.machine.revoke()
                assert not member.machine.is_claim_due(self.now)
            elif how == "claimed again":
                member.machine.release(self.now)
            member.stop_reading()
            if how in ("handed over", "lost", "assigned again"):
                member.machine.assign(partitions, self.now)
            assert member.machine.positions.claimed == {}
        for member in self.members:
            if claimed:
                self.claim_one(member)

    @require(can_claim)
    @rule(number=NUMBERS, seconds=st.floats(0, 5))
    def claim(self, number: int, seconds: float) -> None:
        self.now += seconds
        self.claim_one(self.draw_member(can_claim, number))

    def claim_one(self, member: ModelledConsumer) -> None:
        if not member.machine.is_claim_due(self.now):
            return
        assert not member.machine.in_flight
        positions = member.machine.positions
        claims = [self.answer_claim(positions, partition) for partition in positions.assigned or []]
        member.machine.grant(claims, self.now)
        assert set(positions.select_halted()) == {
            claim.topic_partition.kafka for claim in claims if claim.halted
        }
        member.stop_reading()
        for claim in claims:
            partition = claim.topic_partition.kafka
            position = claim.next_offset if claim.last is None else claim.last.offset
            assert positions.get_start_offsets()[partition] == position
            member.offsets[partition] = position
            if position > len(self.log[partition]):  # then the client begins at the start
                member.offsets[partition] = self.low[partition]
                member.reset.add(partition)
        member.paused = set(positions.select_halted())
        member.bad.clear()

    def answer_claim(self, positions: Positions, partition: KafkaPartition) -> Claim:
        """Return the answer of the ledger to a claim."""
        entry, low = self.ledger[partition], self.low[partition]
        entry.epoch += 1
        shorter = partition in positions.suspects and entry.next > len(self.log[partition])
        if shorter or make_source(partition, entry) in positions.truncated:
            lost_its_leader = partition in self.compacted and self.leader[partition] > 0
            assert partition in self.truncated or lost_its_leader
            entry = self.ledger[partition] = ModelledLedgerRow(
                entry.cuts + 1, epoch=1, next=low, read=entry.read
            )
        last = entry.last if entry.last is not None and entry.last.offset >= low else None
        return Claim(
            make_source(partition, entry),
            entry.epoch,
            entry.next,
            entry.resume_until,
            entry.halted,
            0,
            last,
        )

    # Messages

    @rule(number=NUMBERS, order=st.permutations(PARTITIONS), count=st.integers(1, 12))
    def read(self, number: int, order: list[KafkaPartition], count: int) -> None:
        member = self.members[number]
        for partition, offset in self.list_deliverable(member, order)[:count]:
            if not self.offer_message(member, partition, offset):
                return
        for partition in order:
            if not self.reach_end(member, partition):
                return

    def reach_end(self, member: ModelledConsumer, partition: KafkaPartition) -> bool:
        """Let Kafka report the end of a partition if all its messages are delivered.

        Return False if the consumer must claim its partitions again, because the log is truncated.
        """
        end = len(self.log[partition])
        if partition not in member.offsets or partition in member.paused:
            return True
        if self.list_deliverable(member, [partition]):
            return True
        verdict = member.machine.advance_to_end(partition, end)
        if verdict is AdmissionVerdict.GAP:
            verdict = member.machine.advance_to_end(partition, end, self.low[partition])
        if verdict is not None:
            assert verdict is AdmissionVerdict.TRUNCATED or partition in self.truncated
            self.start_again(member)
            return False
        member.offsets[partition] = end
        return True

    @rule(number=NUMBERS, kinds=st.lists(KINDS, min_size=1, max_size=9))
    def produce_and_read(self, number: int, kinds: list[str]) -> None:
        for place, kind in enumerate(kinds):
            self.append(PARTITIONS[place % len(PARTITIONS)], [kind])
        self.read(number, PARTITIONS, len(kinds))

    def list_deliverable(
        self, member: ModelledConsumer, order: list[KafkaPartition]
    ) -> list[tuple[KafkaPartition, int]]:
        """Return the messages that Kafka would deliver next, one partition after the other."""
        return [
            (partition, offset)
            for partition in order
            if partition in member.offsets and partition not in member.paused
            for offset in range(member.offsets[partition], len(self.log[partition]))
            if self.log[partition][offset] != HOLE and offset >= self.low[partition]
        ]

    def offer_message(
        self, member: ModelledConsumer, partition: KafkaPartition, offset: int
    ) -> bool:
        """Offer a message to the consumer. If its current batch is full, write that batch first.

        Return False if the consumer does not admit the message. Kafka delivers it again later.
        """
        machine = member.machine
        message = self.make_message(partition, offset)
        before = machine.positions.claimed[partition].expected
        # An earlier message of the same poll can have halted the partition.
        if machine.positions.claimed[partition].halted:
            assert take_message(machine, message) is None
            assert machine.positions.claimed[partition].expected == before
            return True
        claimed_before = machine.positions.claimed[partition]
        last, was_found = claimed_before.unverified_last, claimed_before.is_last_delivered
        verdict = take_message(machine, message)
        member.fetched.add(partition)
        if verdict is AdmissionVerdict.FULL:
            lane = machine.get_lane(partition)
            if not lane.ready:
                assert lane.flight is not None
                self.redeliver_message(member, partition)
                return False
            self.launch_one(member, lane)
            verdict = take_message(machine, message)
        if verdict is AdmissionVerdict.GAP:
            assert offset > before or (last is not None and not was_found and offset == before)
            verdict = take_message(machine, message, self.low[partition])
            if verdict is AdmissionVerdict.FULL:  # after it was compared with the last message
                self.redeliver_message(member, partition)
                return False
        if verdict in (AdmissionVerdict.TRUNCATED, AdmissionVerdict.UNEXPECTED):
            assert verdict is AdmissionVerdict.TRUNCATED or partition in member.reset
            self.start_again(member)
            return False
        assert verdict in (None, AdmissionVerdict.HALTED)
        claimed = machine.positions.claimed[partition]
        if offset < before:
            assert last is not None
            assert not was_found
            assert (offset, self.leaders[partition][offset]) == (last.offset, last.leader_epoch)
            assert (claimed.expected, claimed.is_last_delivered) == (before, True)
            member.offsets[partition] = offset + 1
            return True
        assert claimed.expected == offset + 1
        member.offsets[partition] = offset + 1
        if offset >= claimed.claim.resume_until:
            bad = self.log[partition][offset] == "bad"
            member.bad[partition] = member.bad[partition] + 1 if bad else 0
        if verdict is AdmissionVerdict.HALTED:
            self.halt(member, partition)
        return True

    def redeliver_message(self, member: ModelledConsumer, partition: KafkaPartition) -> None:
        """Let the Kafka client deliver again a message that the consumer did not admit."""
        claimed = member.machine.positions.claimed[partition]
        if claimed.unverified_last is None:
            member.offsets[partition] = claimed.expected

    def halt(self, member: ModelledConsumer, partition: KafkaPartition) -> None:
        claimed = member.machine.positions.claimed[partition]
        assert claimed.halted
        assert claimed.expected > claimed.claim.resume_until
        assert member.bad[partition]
        member.paused.add(partition)
        entry = self.ledger[partition]
        if (make_source(partition, entry), entry.epoch) == (
            claimed.claim.topic_partition,
            claimed.claim.epoch,
        ):
            entry.halted = True

    @rule(number=NUMBERS, partition=st.sampled_from(PARTITIONS), back=st.integers(0, 2))
    def deliver_unexpected(self, number: int, partition: KafkaPartition, back: int) -> None:
        """Deliver a message that the client must not deliver, and check that no batch takes it."""
        machine = self.members[number].machine
        claimed = machine.positions.claimed.get(partition)
        messages = count_filling_messages(machine)
        offset = max(0, claimed.expected - back) if claimed else back
        stray = make_message(BODIES["good"], offset, *partition)
        if claimed is not None and claimed.unverified_last is not None:
            return
        if claimed is None or claimed.halted:
            assert machine.admit([decode_message(stray, WINDOW)], 0) == (1, None)
        elif offset < claimed.expected or machine.paused:
            admission = machine.admit([decode_message(stray, WINDOW)], 0)
            assert admission == (0, AdmissionVerdict.UNEXPECTED)
            assert count_filling_messages(machine) == messages
            self.start_again(self.members[number])
        assert count_filling_messages(machine) <= messages

    @require(can_pause)
    @rule(number=NUMBERS)
    def pause(self, number: int) -> None:
        member = self.draw_member(can_pause, number)
        paused = member.machine.pause()
        assert not set(paused) & set(member.machine.positions.select_halted())
        member.paused.update(paused)

    @require(lambda member: bool(member.machine.paused))
    @rule(number=NUMBERS)
    def resume(self, number: int) -> None:
        member = self.draw_member(lambda member: bool(member.machine.paused), number)
        member.paused.difference_update(member.machine.resume())

    # The database

    @require(lambda member: bool(list_ready(member)))
    @rule(number=NUMBERS, choice=NUMBERS)
    def launch(self, number: int, choice: int) -> None:
        member = self.draw_member(lambda member: bool(list_ready(member)), number)
        self.launch_one(member, pick_one(list_ready(member), choice))

    @require(lambda member: member.machine.in_flight)
    @rule(
        number=NUMBERS,
        choice=NUMBERS,
        how=st.sampled_from(["answered", "answered", "unanswered", "abandoned"]),
    )
    def write(self, number: int, choice: int, how: str) -> None:
        """Let the database write or refuse a batch in flight.

        Args:
            number: Selects the consumer.
            choice: Selects the lane of the consumer.
            how: Whether the consumer gets an answer, gets no answer although the database has
                written the batch (unanswered), or gives the batch up before a write (abandoned).
        """
        member = self.draw_member(lambda member: member.machine.in_flight, number)
        lane = pick_one(list_flying(member), choice)
        if how != "abandoned":
            self.write_one(member, lane, how == "answered")
            return
        member.machine.handle_abandoned(lane, self.now)
        if not member.machine.positions.claimed:
            member.stop_reading()

    def write_one(self, member: ModelledConsumer, lane: Lane, answered: bool = True) -> None:
        machine = member.machine
        flight = lane.flight
        assert flight is not None
        if not self.is_accepted(flight.claims.values(), flight.batch):
            assert lane.flight is flight
            machine.handle_fenced(lane, self.now)
            member.stop_reading()
            assert lane.flight is None
            assert machine.positions.claimed == {}
            assert not machine.is_claim_due(self.now + CLAIM_AFTER_FENCED_SECONDS / 2)
            return
        for source, progress in flight.batch.progress.items():
            self.commit_batch(source.kafka, flight.batch, progress.start, progress.next)
        if not answered:
            machine.handle_abandoned(lane, self.now)
            if not machine.positions.claimed:
                member.stop_reading()
            return
        assert machine.take_written_flight(lane) is flight
        member.written += flight.batch.messages
        ends = machine.get_commit_offsets(flight)
        for source, progress in flight.batch.progress.items():
            own_claim = machine.positions.claimed.get(source.kafka)
            is_ours = own_claim is not None and own_claim.claim == flight.claims[source]
            assert ends.get(source.kafka) == (progress.next if is_ours else None)

    @precondition(lambda self: any(entry.halted for entry in self.ledger.values()))
    @rule(partition=st.sampled_from(PARTITIONS))
    def resume_halted(self, partition: KafkaPartition) -> None:
        """Resume a halted partition as an operator does. Its consumer claims it again."""
        entry = self.ledger[partition]
        if entry.halted:
            entry.halted, entry.resume_until = False, len(self.log[partition])
            for member in self.members:
                if partition in member.machine.positions.select_halted():
                    self.start_again(member)

    # Invariants

    @invariant()
    def no_message_is_counted_before_it_is_written(self) -> None:
        counted = sum(member.written for member in self.members)
        assert counted <= sum(entry.read for entry in self.ledger.values())

    @invariant()
    def batches_have_only_claimed_partitions(self) -> None:
        for member in self.members:
            claims = {
                item.claim.topic_partition for item in member.machine.positions.claimed.values()
            }
            for lane in member.machine.lanes:
                assert set(lane.filling_batch.progress) <= claims
                assert lane.filling_batch.messages <= LIMITS.rows * len(member.machine.lanes)

    @invariant()
    def batches_in_flight_have_no_common_partition(self) -> None:
        """Check that no writer of a consumer waits for the ledger row of another writer."""
        for member in self.members:
            flights = [lane.flight.batch.progress for lane in list_flying(member) if lane.flight]
            sources = [source for progress in flights for source in progress]
            assert len(sources) == len(set(sources))

    @invariant()
    def offsets_continue_from_ledger_to_filling_batch(self) -> None:
        """Check that ledger, batch in flight and filling batch follow each other without a gap."""
        for member in self.members:
            machine = member.machine
            for partition, claimed in machine.positions.claimed.items():
                entry = self.ledger[partition]
                owner = claimed.claim.topic_partition, claimed.claim.epoch
                if owner != (make_source(partition, entry), entry.epoch):
                    continue  # this consumer is fenced and does not know it yet
                position = entry.next
                lane = machine.get_lane(partition)
                flight = lane.flight
                if flight is not None and claimed.claim.topic_partition in flight.batch.progress:
                    progress = flight.batch.progress[claimed.claim.topic_partition]
                    assert progress.start == position
                    position = progress.next
                if claimed.claim.topic_partition in lane.filling_batch.progress:
                    progress = lane.filling_batch.progress[claimed.claim.topic_partition]
                    assert progress.start == position
                    position = progress.next
                assert claimed.expected == position
                if claimed.halted or partition not in member.offsets or partition in member.reset:
                    continue
                last = claimed.unverified_last
                begin = position if last is None else last.offset
                assert begin <= member.offsets[partition] <= position

    @invariant()
    def partitions_with_too_many_bad_messages_are_halted(self) -> None:
        for member in self.members:
            for partition, claimed in member.machine.positions.claimed.items():
                few = member.bad[partition] < TOLERANCE.consecutive
                assert few or claimed.halted

    @invariant()
    def halted_partitions_are_not_read(self) -> None:
        for member in self.members:
            assert set(member.machine.positions.select_halted()) <= member.paused | (
                set(PARTITIONS) - set(member.offsets)
            )

    def teardown(self) -> None:
        """Let one consumer read everything that is left, and check that all messages are stored."""
        if not hasattr(self, "members"):
            return
        for partition in PARTITIONS:
            entry = self.ledger[partition]
            entry.halted, entry.resume_until = False, len(self.log[partition])
        self.disturb((0,) * len(PARTITIONS), "lost", claimed=True)
        for _ in range(200):
            self.now += CLAIM_AFTER_FENCED_SECONDS
            member = self.members[0]
            member.paused.difference_update(member.machine.resume())
            self.hand_over_message(member)
            for partition in PARTITIONS:
                self.resume_halted(partition)
            self.claim_one(member)
            self.read(0, PARTITIONS, 50)
        for partition in PARTITIONS:
            entry, log = self.ledger[partition], self.log[partition]
            assert entry.next >= len(log)
            for offset in range(self.low[partition], len(log)):
                if log[offset] != HOLE:
                    assert (partition, self.leaders[partition][offset], offset) in self.stored

    # Helpers

    def draw_member(
        self, condition: Callable[[ModelledConsumer], bool], number: int
    ) -> ModelledConsumer:
        """Return a member for which the condition holds. `number` chooses among several of them."""
        members = [member for member in self.members if condition(member)]
        return members[number % len(members)]

    def start_again(self, member: ModelledConsumer) -> None:
        member.machine.release(self.now)
        member.stop_reading()

    def hand_over_message(self, member: ModelledConsumer) -> None:
        for _ in range(2):
            for lane in list_flying(member):
                self.write_one(member, lane)
            for lane in list_ready(member):
                self.launch_one(member, lane)

    def launch_one(self, member: ModelledConsumer, lane: Lane) -> None:
        machine = member.machine
        claimed = machine.positions.claimed
        flight = machine.launch(lane, self.now)
        assert flight.batch.progress
        assert flight.claims == {item: claimed[item.kafka].claim for item in flight.batch.progress}
        assert not lane.ready

    def is_accepted(self, claims: Iterable[Claim], batch: Batch) -> bool:
        """Return whether the ledger accepts this batch."""
        for claim in claims:
            entry = self.ledger[claim.topic_partition.kafka]
            if claim.epoch != entry.epoch or claim.topic_partition != make_source(
                claim.topic_partition.kafka, entry
            ):
                return False
            if batch.progress[claim.topic_partition].start != entry.next:
                return False
        return True

    def commit_batch(self, partition: KafkaPartition, batch: Batch, start: int, end: int) -> None:
        """Compare a batch with the log of a partition, offset by offset, and store its messages."""
        entry = self.ledger[partition]
        progress = batch.progress[make_source(partition, entry)]
        rows = [item.message for rows in batch.rows.values() for item in rows]
        rejects = [item.message for item in batch.bad_messages]
        expired = [item.message for item in batch.expired]
        places = {}
        for kinds, messages in (
            ({"good", "giant"}, rows),
            ({"bad"}, rejects),
            ({"expired"}, expired),
        ):
            for item in messages:
                if (item.topic, item.partition) == partition:
                    place = partition, item.leader_epoch, item.offset
                    assert self.written[place] in kinds
                    assert item.offset not in places
                    places[item.offset] = place
        for gap in progress.gaps:
            for n in range(gap.start, gap.end):
                assert n not in places
                holes = self.log[partition][n : n + 1] == [HOLE] or any(
                    self.written.get((partition, leader, n)) == HOLE
                    for leader in range(self.leader[partition] + 1)
                )
                assert n < self.low[partition] if gap.lost else holes
        gaps = [n for gap in progress.gaps for n in range(gap.start, gap.end)]
        assert sorted([*places, *gaps]) == [*range(start, end)]
        assert progress.read == len(places)
        assert entry.next == start
        entry.next = end
        entry.read += progress.read
        self.stored.update(places.values())
        if progress.last is not None:
            assert progress.last.offset == max(places)
            entry.last = LastMessage.from_message(progress.last)

    def make_message(self, partition: KafkaPartition, offset: int) -> KafkaMessage:
        leader = self.leaders[partition][offset]
        topic, number = partition
        return make_message(
            BODIES[self.log[partition][offset]], offset, topic, number, leader_epoch=leader
        )


def count_filling_messages(machine: StateMachine) -> int:
    """Return the number of messages that all lanes have collected for their next batches."""
    return sum(lane.filling_batch.messages for lane in machine.lanes)


def pick_one(lanes: list[Lane], number: int) -> Lane:
    return lanes[number % len(lanes)]


def make_source(
    partition: KafkaPartition, entry: ModelledLedgerRow | None = None
) -> TopicPartition:
    topic, number = partition
    source = TopicPartition(topic, "id", number)
    for _ in range(entry.cuts if entry else 0):
        source = source.make_successor()
    return source


def make_claimed_machine(limits: Limits, partitions: int, lanes: int) -> StateMachine:
    """Make a state machine that has claimed this number of partitions of TOPIC."""
    machine = StateMachine(limits, TOLERANCE, lanes=lanes)
    machine.assign([(TOPIC, n) for n in range(partitions)], 0)
    claims = [Claim(TopicPartition(TOPIC, "id", n), 1, 0, 0, False) for n in range(partitions)]
    machine.grant(claims, 0)
    return machine


def test_business_keys_of_an_abandoned_batch_are_stored_with_a_later_batch() -> None:
    machine = StateMachine(LIMITS, TOLERANCE)
    source = make_source(PARTITIONS[0])
    for epoch in (1, 2):
        machine.assign([source.kafka], 0)
        machine.grant([Claim(source, epoch, 0, 0, False)], 0)
        assert take_message(machine, make_message(make_value(data={"number": "N-1"}))) is None
        [lane] = machine.lanes
        assert machine.launch(lane, 0).batch.keys
        machine.handle_abandoned(lane, 0)


def test_lane_continues_while_the_batch_of_another_lane_hangs() -> None:
    machine = make_claimed_machine(Limits(2, 300_000), partitions=2, lanes=2)
    hangs, works = (machine.get_lane((TOPIC, number)) for number in range(2))
    assert take_message(machine, make_message(make_value(), 0, TOPIC, 0)) is None
    machine.launch(hangs, 0)
    assert take_message(machine, make_message(make_value(), 1, TOPIC, 0)) is None
    assert take_message(machine, make_message(make_value(), 2, TOPIC, 0)) is AdmissionVerdict.FULL
    for offset in range(3):
        assert take_message(machine, make_message(make_value(), offset, TOPIC, 1)) is None
        machine.launch(works, 0)
        machine.take_written_flight(works)
    assert not hangs.ready


def test_small_batch_is_written_soon_although_another_lane_has_large_batches() -> None:
    """First case: a large batch hangs. Second case: two large batches follow each other at once."""
    machine = make_claimed_machine(Limits(100, 300_000), partitions=2, lanes=2)
    large, works = (machine.get_lane((TOPIC, number)) for number in range(2))
    for offset in range(3):
        take_message(machine, make_message(make_value(), offset, TOPIC, 0))
    take_message(machine, make_message(make_value(), 0, TOPIC, 1))
    machine.launch(works, 7)
    machine.launch(large, 7)
    machine.take_written_flight(works)
    take_message(machine, make_message(make_value(), 1, TOPIC, 1))
    assert machine.choose_due_lane(7) is None
    assert machine.choose_due_lane(7 + SMALL_BATCH_SECONDS) is works
    for offset in range(3, 6):
        take_message(machine, make_message(make_value(), offset, TOPIC, 0))
    machine.take_written_flight(large)
    assert machine.choose_due_lane(7) is large
    machine.launch(large, 7 + SMALL_BATCH_SECONDS)
    assert machine.choose_due_lane(7) is None
    assert machine.choose_due_lane(7 + SMALL_BATCH_SECONDS) is works


TOO_LONG = Explanation(Code.NUMBER_TOO_LONG)


def test_partition_halted_during_a_pause_stays_paused_when_reading_resumes() -> None:
    """Reading is paused while a batch is written. PostgreSQL refuses all messages of the batch."""
    machine = make_claimed_machine(LIMITS, partitions=2, lanes=1)
    bad = [make_message(make_value(), offset) for offset in range(TOLERANCE.consecutive)]
    for item in bad:
        take_message(machine, item)
    [lane] = machine.lanes
    machine.launch(lane, 0)
    assert machine.pause() == [(TOPIC, 0), (TOPIC, 1)]
    machine.take_written_flight(lane)
    assert machine.count_refused_messages(
        BadMessage(item, Reason.BAD_NUMBER, TOO_LONG) for item in bad
    )
    assert machine.resume() == [(TOPIC, 1)]


def test_partitions_of_each_kind_are_spread_over_lanes_with_their_migration_twins() -> None:
    topics = [topic for entity in ENTITIES for topic in entity.topics]
    for partitions in (1, 3, 6):
        dealt = assign_lanes([(topic, n) for topic in topics for n in range(partitions)], LANES)
        lanes = Counter(dealt.values())
        assert max(lanes.values()) - min(lanes.values()) <= len(ENTITIES[0].topics)
        for entity in ENTITIES:
            for number in range(partitions):
                assert len({dealt[topic, number] for topic in entity.topics}) == 1
            kind = Counter(dealt[entity.topics[0], number] for number in range(partitions))
            assert max(kind.values()) - min(kind[n] for n in range(LANES)) <= 1


TestConsumers = ConsumerMachine.TestCase
TestConsumers.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
