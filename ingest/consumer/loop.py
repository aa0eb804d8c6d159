"""The consumer's loop: poll, decode, add to a batch, write the batch, commit its offsets.

Begin with `Consumer.run`. One thread polls and decodes; the threads of ingest.consumer.writers
write to the database. ingest.consumer.state_machine decides what happens to a message, and
ingest.consumer.claims handles rebalancing.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from history.store.days.window import Window
from ingest.consumer import metrics
from ingest.consumer.claims import OpenMember, PartitionClaimer
from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.consumer.lanes import Lane
from ingest.consumer.loss_forecaster import LossForecaster
from ingest.consumer.periodic_work import PeriodicWork, Probe
from ingest.consumer.positions import ClaimedPartition, Tolerance
from ingest.consumer.state_machine import AdmissionVerdict, StateMachine
from ingest.consumer.topics import TopicWatch
from ingest.consumer.totals import RunMeter, Totals
from ingest.consumer.writers import AbandonedError, RetryingWriter, WriterThreads
from ingest.kafka.client import UnreachableError
from ingest.messages.decode import DecodedMessage, decode_message
from ingest.messages.message import KafkaMessage, KafkaPartition
from ingest.store.batch import Batch, Limits
from ingest.store.ledger import FencedError

logger = logging.getLogger(__name__)

# How many messages a poll returns at most. They are in memory twice, raw and decoded.
POLL_MESSAGES = 500
# After this many messages the loop checks whether a batch in flight is written.
CHECK_EVERY_MESSAGES = 20
POLL_WHILE_WRITING_SECONDS = 0.002
POLL_WHILE_IDLE_SECONDS = 0.2
# How long a full batch waits for the batch in flight before reading is paused.
PAUSE_AFTER_SECONDS = 0.5
# How long to wait for batches to be written when partitions are revoked, and at the end.
HAND_OVER_SECONDS = 2.0
# How long to wait at the end for other work in the database, for example heartbeats.
END_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How large batches are, how many bad messages are tolerated, and when the consumer ends."""

    limits: Limits
    tolerance: Tolerance
    window: Callable[[], Window]  # returns the days that are kept now
    # the run ends after this many seconds without a message; None: it ends when it is stopped
    until_idle: float | None = None


class Consumer:
    """One member of the consumer group, which stores the messages that it reads. See `run`."""

    def __init__(
        self,
        settings: ConsumerSettings,
        open_member: OpenMember,
        writers: Sequence[RetryingWriter],
        probe: Probe,
        heartbeats: HeartbeatWriter,
        forecaster: LossForecaster,
    ) -> None:
        self._settings = settings
        self._window = settings.window()
        self._stopping = Event()
        self._meter = RunMeter()
        self._writers = WriterThreads(writers)
        self._topics = TopicWatch(settings.until_idle)
        self._machine = StateMachine(settings.limits, settings.tolerance, lanes=len(writers))
        self._positions = self._machine.positions
        self._claimer = PartitionClaimer(
            self._machine, self._writers, self._stopping, open_member, self._hand_over
        )
        self._member = self._claimer.member
        self._periodic_work = PeriodicWork(
            probe, heartbeats, forecaster, self._writers.submit_job, self._claimer.claim_again
        )
        # The first offsets at the broker that were loaded since the last poll.
        self._first_offsets: dict[KafkaPartition, int] = {}

    def stop(self) -> None:
        """Make `run` return after a last attempt to write the messages that were read.

        Safe in a signal handler.
        """
        self._stopping.set()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def run(self) -> Totals:
        """Consume until `stop` is called, or until no message came for `until_idle` seconds.

        An outage of the brokers or of the database does not end the run: it waits.

        Returns:
            The counts of the run.

        Raises:
            RefusedError: The brokers do not accept the login, and never did.
            NothingToReadError: Only with `until_idle`. The brokers have none of the topics, or do
                not let the login read.
            RefusedByDatabaseError: Only with `until_idle`. Rights, tables or the login are wrong in
                the database.
        """
        metrics.IN_FLIGHT_SECONDS.set_function(self._writers.get_oldest_age)
        metrics.DATABASE_UP.set_function(self._writers.is_database_up)
        metrics.LOGIN_REFUSED.labels("kafka").set_function(lambda: float(self._member.refused))
        try:
            while not self._stopping.is_set():
                self._check_topics()
                if self._is_idle_long_enough():
                    break
                self._run_iteration()
            self._meter.totals.halted = [
                f"{topic}[{number}]" for topic, number in self._positions.select_halted()
            ]
            if not self._stopping.is_set():
                self._periodic_work.finish(self._member, self._positions)
            self._hand_over()
            if not self._stopping.is_set():
                self._topics.end(self._member)
        finally:
            self._writers.abandon_waiting_work()
            self._member.close()
            self._periodic_work.close(END_SECONDS)
            self._writers.end(END_SECONDS)
        return self._meter.totals

    def _check_topics(self) -> None:
        """Report topics that cannot be read."""
        is_assigned = self._positions.assigned is not None
        self._topics.check(self._member, is_assigned, time.monotonic())

    def _is_idle_long_enough(self) -> bool:
        """Return whether the run ends because no message came for `until_idle` seconds."""
        limit, idle_since = self._settings.until_idle, self._machine.get_idle_start()
        if limit is None or idle_since is None:
            return False
        return time.monotonic() - idle_since >= limit

    def _run_iteration(self) -> None:
        """Commit the offsets of written batches, launch due batches, poll, and fill batches."""
        self._commit_written_batches()
        self._window = self._settings.window()
        self._do_periodic_work()
        self._write_due_batches()
        self._claimer.claim_when_due()
        messages = self._poll()
        if self._add_all(messages):
            self._advance_to_ends()

    def _commit_written_batches(self) -> None:
        """Commit the offsets of the batches that are written."""
        for number in self._writers.list_done():
            self._commit_batch(self._machine.lanes[number])

    def _commit_batch(self, lane: Lane) -> None:
        """Commit the offsets of a lane's written batch.

        Due batches go to their writers first, so that no writer is idle during the commit.
        """
        try:
            written = self._writers.take_result(lane.number)
        except FencedError:
            self._claimer.claim_again_after_fenced(lane)
            return
        except AbandonedError:
            self._machine.handle_abandoned(lane, time.monotonic())
            return
        flight = self._machine.take_written_flight(lane)
        lane.remember(written.fingerprints)
        self._write_due_batches()
        self._meter.count_written_batch(flight.batch, written)
        halted_partitions = self._machine.count_refused_messages(written.refused)
        for claimed in halted_partitions:
            self._halt_partition(claimed)
        self._member.commit(self._machine.get_commit_offsets(flight))
        flight.batch.clear()

    def _do_periodic_work(self) -> None:
        """Do the work that is due every few seconds, and record in a metric that the loop runs."""
        metrics.TURN.set_to_current_time()
        self._periodic_work.run_due_work(self._member, self._positions, self._window)

    def _write_due_batches(self) -> None:
        """Give every due batch to the writer of its lane."""
        while (lane := self._machine.choose_due_lane(time.monotonic())) is not None:
            self._write_batch(lane)

    def _write_batch(self, lane: Lane) -> None:
        """Give the writer of a lane the batch that the lane is filling."""
        flight = self._machine.launch(lane, time.monotonic())
        log_lost_offsets(flight.batch)
        end_offsets = {
            topic_partition: self._member.get_end_offset(topic_partition.kafka)
            for topic_partition in flight.claims
        }
        self._writers.write(lane.number, flight, end_offsets)

    def _poll(self) -> list[KafkaMessage]:
        """Return the next messages. While a batch is being written, wait for them only briefly."""
        is_writing = self._writers.writing
        timeout = POLL_WHILE_WRITING_SECONDS if is_writing else POLL_WHILE_IDLE_SECONDS
        messages = self._member.poll(POLL_MESSAGES, timeout)
        self._first_offsets = {}
        if messages:
            self._meter.start_clocks()
        return messages

    def _add_all(self, messages: list[KafkaMessage]) -> bool:
        """Decode messages and add them to batches, in chunks.

        Returns:
            False if the claims changed or the consumer must end. Messages that were not added are
            then read again after the next claim.
        """
        for start in range(0, len(messages), CHECK_EVERY_MESSAGES):
            claims_revision = self._positions.claims_revision
            self._commit_written_batches()
            if self._stopping.is_set() or self._positions.claims_revision != claims_revision:
                return False
            chunk = messages[start : start + CHECK_EVERY_MESSAGES]
            if not self._add_chunk([decode_message(message, self._window) for message in chunk]):
                return False
        return True

    def _add_chunk(self, chunk: list[DecodedMessage]) -> bool:
        """Add decoded messages to batches.

        Args:
            chunk: The messages. Messages that were added are removed from this list.

        Returns:
            False if messages are left in `chunk`. See `_add_all`.
        """
        claims_revision = self._positions.claims_revision
        while chunk:
            # `admit` handles only messages of the first message's partition.
            first = chunk[0].message
            first_offset = self._first_offsets.get((first.topic, first.partition))
            handled, verdict = self._machine.admit(chunk, first_offset)
            if verdict is not None and not self._act_on_verdict(verdict, first):
                return False
            if self._positions.claims_revision != claims_revision:
                return False
            del chunk[:handled]
        return True

    def _act_on_verdict(self, verdict: AdmissionVerdict, message: KafkaMessage) -> bool:
        """Take the action that `verdict` requires before more messages can be added to batches.

        Args:
            message: The first of the messages that were just offered to the state machine. The
                verdict is about the topic partition of this message.

        Returns:
            False if no message can be admitted before the next claim.
        """
        partition = (message.topic, message.partition)
        if verdict is AdmissionVerdict.HALTED:
            self._halt_partition(self._positions.claimed[partition])
            return True
        if verdict is AdmissionVerdict.FULL:
            return self._make_room(self._machine.get_lane(partition))
        if verdict is AdmissionVerdict.GAP:
            return self._load_first_offset(partition) is not None
        if verdict is AdmissionVerdict.TRUNCATED:
            problem = "the log at the broker was truncated"
        else:
            problem = "reading continued at an unexpected offset"
        self._claimer.claim_again(
            f"{message.topic}[{message.partition}]: {problem}; got offset {message.offset}"
        )
        return False

    def _halt_partition(self, claimed: ClaimedPartition) -> None:
        """Stop reading a partition that has too many bad messages."""
        topic, number = claimed.claim.topic_partition.kafka
        reason = claimed.halted.english if claimed.halted else ""
        logger.error("%s[%d] is halted at offset %d: %s", topic, number, claimed.expected, reason)
        self._member.pause([(topic, number)])
        self._periodic_work.record_halts(self._positions)

    def _make_room(self, lane: Lane) -> bool:
        """Wait until the batch that a lane is filling can go to the writer of this lane.

        After PAUSE_AFTER_SECONDS, reading is paused, but polling goes on: the group would drop a
        member that does not poll.

        Returns:
            False if the claims changed, or the consumer must end.
        """
        if lane.ready:
            self._write_batch(lane)
            return True
        lane.filling_batch.arrange()  # sorts the rows now, so that the writer need not
        claims_revision = self._positions.claims_revision
        until = time.monotonic() + PAUSE_AFTER_SECONDS
        flight = lane.flight  # when it is written, the writer can take the next batch
        while lane.flight is flight and self._writers.wait_for_one(until - time.monotonic()):
            self._commit_written_batches()
        if lane.flight is flight:
            self._wait_while_paused(lane)
        return self._positions.claims_revision == claims_revision and not self._stopping.is_set()

    def _wait_while_paused(self, lane: Lane) -> None:
        """Pause reading until the batch in flight of a lane is written, and poll meanwhile.

        Returns early if the consumer must end, or a change of the claims ended the pause.
        """
        self._member.pause(self._machine.pause())
        metrics.PAUSED.set(1)
        flight = lane.flight
        while self._machine.paused and lane.flight is flight and not self._stopping.is_set():
            self._do_periodic_work()
            for message in self._member.poll(1, POLL_WHILE_IDLE_SECONDS):
                # A paused partition should not deliver a message. If it does, the verdict is
                # UNEXPECTED, and all partitions are claimed again.
                self._add_chunk([decode_message(message, self._window)])
            self._commit_written_batches()
            self._write_due_batches()
        self._member.resume(self._machine.resume())
        metrics.PAUSED.set(0)

    def _load_first_offset(self, partition: KafkaPartition) -> int | None:
        """Return the first offset of a partition at the broker, and cache it until the next poll.

        Returns:
            None if the offset was not loaded. Either the consumer must end, or this method has
            scheduled a new claim of all partitions, because the brokers did not answer or the topic
            no longer exists.
        """
        first_offset = self._first_offsets.get(partition)
        if first_offset is not None:
            return first_offset
        request = self._member.ask_offsets([partition])
        while not request.wait(POLL_WHILE_IDLE_SECONDS):
            if self._stopping.is_set():
                return None
        try:
            bounds = list(request.get_answer().values())
        except UnreachableError as error:
            self._claimer.claim_again(f"the brokers do not answer: {error}")
            return None
        if not bounds:
            self._claimer.claim_again(f"topic {partition[0]} does not exist any more")
            return None
        first_offset, _ = bounds[0]
        self._first_offsets[partition] = first_offset
        return first_offset

    def _advance_to_ends(self) -> None:
        """Move the position of each topic partition without unread messages to the end offset.

        The last offsets of a partition may be markers of transactions. The broker does not deliver
        markers, so no message advances the position past them.
        """
        for partition, end in self._member.take_reached_ends().items():
            verdict = self._machine.advance_to_end(partition, end)
            if verdict is AdmissionVerdict.GAP:
                first_offset = self._load_first_offset(partition)
                if first_offset is None:
                    return
                verdict = self._machine.advance_to_end(partition, end, first_offset)
            if verdict is not None:
                topic, number = partition
                truncated = verdict is AdmissionVerdict.TRUNCATED
                problem = "was truncated" if truncated else "may have been truncated"
                self._claimer.claim_again(
                    f"{topic}[{number}]: the log at the broker {problem}; it ends at offset {end}"
                )
                return

    def _hand_over(self) -> None:
        """Write the messages that were read. Give up after HAND_OVER_SECONDS.

        If some messages are not written by then, the next consumer of their topic partitions reads
        these messages again.
        """
        until = time.monotonic() + HAND_OVER_SECONDS
        for _ in range(2):  # first the batches in flight, then the next ones
            if not self._writers.wait_for_all(until - time.monotonic()):
                self._writers.abandon_waiting_work()
                break
            self._commit_written_batches()
            for lane in self._machine.lanes:
                if lane.ready:
                    self._write_batch(lane)


def log_lost_offsets(batch: Batch) -> None:
    """Log each range of offsets that the broker deleted before this batch could read it."""
    for topic_partition, progress in batch.progress.items():
        for gap in progress.gaps:
            if gap.lost:
                logger.error(
                    "%s[%d]: the broker deleted offsets %d to %d before they were read",
                    topic_partition.topic,
                    topic_partition.partition,
                    gap.start,
                    gap.end - 1,
                )
