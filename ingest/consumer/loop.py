"""The consumer's loop: one thread polls and decodes, others write to the database."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event

from history.daily.window import Window
from ingest import metrics
from ingest.consumer.background import Background, Probe
from ingest.consumer.foresight import Foresight
from ingest.consumer.heartbeats import Beats
from ingest.consumer.lanes import Lane
from ingest.consumer.positions import ClaimedPartition, Tolerance
from ingest.consumer.state_machine import StateMachine, Verdict
from ingest.consumer.topic_watch import TopicWatch
from ingest.consumer.totals import Meter, Totals
from ingest.consumer.writers import Writers
from ingest.source.client import Unreachable
from ingest.source.kafka import Source
from ingest.source.message import KafkaPartition, Message
from ingest.store.batch import Limits
from ingest.store.ledger import Fenced
from ingest.store.retrying import Abandoned, RetryingWriter

logger = logging.getLogger(__name__)

# Messages in one poll: few enough that holding them twice needs little memory.
POLL_MESSAGES = 500
# After this many of them the loop checks whether a batch in flight is written.
CHECK_EVERY_MESSAGES = 20
POLL_WHILE_WRITING_SECONDS = 0.002
POLL_WHILE_IDLE_SECONDS = 0.2
# A full batch waits this long for the one in flight before reading is paused.
PAUSE_AFTER_SECONDS = 0.5
# When partitions are revoked, or at the end, a batch gets this long to be written.
HAND_OVER_SECONDS = 2.0
CLAIM_AFTER_UNREACHABLE_SECONDS = 1.0
# At the end, other work in the database gets this long.
END_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Policy:
    """How a consumer works. window: called for the days to keep now. until_idle: return after
    this many seconds without a message."""

    limits: Limits
    tolerance: Tolerance
    window: Callable[[], Window]
    until_idle: float | None = None


class Consumer:
    """One member of the group. run() returns after stop(), or once idle for policy.until_idle."""

    def __init__(
        self,
        policy: Policy,
        open_source: Callable[
            [Callable[[list[KafkaPartition]], None], Callable[[], None], Callable[[], None]], Source
        ],
        writers: Sequence[RetryingWriter],
        probe: Probe,
        beats: Beats,
        foresight: Foresight,
    ) -> None:
        self._policy = policy
        self._writers = Writers(writers)
        self._topics = TopicWatch(policy.until_idle)
        self._background = Background(probe, beats, foresight, self._writers.note)
        self._machine = StateMachine(policy.limits, policy.tolerance, lanes=len(writers))
        self._positions = self._machine.positions
        self._window = policy.window()
        self._stop = Event()
        self._meter = Meter()
        self._lows: dict[KafkaPartition, int] = {}
        self._source = open_source(self._on_assigned, self._on_revoked, self._on_lost)

    def stop(self) -> None:
        """Write what was read, and return from run(). Safe in a signal handler."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether stop() was called."""
        return self._stop.is_set()

    def run(self) -> Totals:
        """Consume until stopped. During outages of broker or database it waits.

        Raises:
            RefusedError: the brokers do not accept the login, and never did.
            NothingToReadError: only of a run with an end. The brokers have none of the topics, or
                do not let the login read.
            RefusedByDatabaseError: only of a run with an end. Rights, tables or the login
                are wrong.
        """
        metrics.IN_FLIGHT_SECONDS.set_function(self._writers.oldest_seconds)
        metrics.DATABASE_UP.set_function(self._writers.up)
        metrics.LOGIN_REFUSED.labels("kafka").set_function(lambda: float(self._source.refused))
        try:
            while not self._stop.is_set() and not self._idle_long_enough():
                self._turn()
            self._meter.totals.halted = [
                f"{topic}[{number}]" for topic, number in self._positions.halted()
            ]
            if not self._stop.is_set():
                self._background.finish(self._source, self._positions)
            self._hand_over()
            if not self._stop.is_set():
                self._topics.end(self._source)
        finally:
            self._writers.abandon()
            self._source.close()
            self._background.close(END_SECONDS)
            self._writers.end(END_SECONDS)
        return self._meter.totals

    def _turn(self) -> None:
        """One turn: finish the batches that are written, launch the next, read messages."""
        self._land()
        self._window = self._policy.window()
        self._upkeep()
        self._launch_all()
        if self._machine.claim_due(time.monotonic()):
            self._claim()
        writing = self._writers.writing
        timeout = POLL_WHILE_WRITING_SECONDS if writing else POLL_WHILE_IDLE_SECONDS
        messages = self._source.poll(POLL_MESSAGES, timeout)
        self._lows = {}
        if messages:
            self._meter.begin()
        if self._take_all(messages):
            self._skip_to_ends()

    def _upkeep(self) -> None:
        """What is due in every turn, also while batch follows batch."""
        metrics.TURN.set_to_current_time()
        why = self._background.turn(self._source, self._positions, self._window)
        if why is not None:
            self._claim_again(why)

    def _take_all(self, messages: list[Message]) -> bool:
        """Take these messages. False: the rest is left, because the claims changed or the end has
        come; the next claim reads it again."""
        for start in range(0, len(messages), CHECK_EVERY_MESSAGES):
            generation = self._positions.generation
            self._land()
            if self._stop.is_set() or self._positions.generation != generation:
                return False
            if not self._take_some(messages[start : start + CHECK_EVERY_MESSAGES]):
                return False
        return True

    def _take_some(self, messages: list[Message]) -> bool:
        machine, window = self._machine, self._window
        generation = self._positions.generation
        while messages:
            low = self._lows.get((messages[0].topic, messages[0].partition))
            taken, verdict = machine.take_run(messages, window, low)
            if not taken:
                taken, verdict = 1, machine.take(messages[0], window)
            if verdict is not None and not self._act(verdict, messages[taken - 1]):
                return False
            if self._positions.generation != generation:
                return False
            del messages[:taken]
        return True

    def _skip_to_ends(self) -> None:
        """Advance partitions to their end over markers of transactions."""
        for partition, end in self._source.ends().items():
            verdict = self._machine.reach_end(partition, end)
            if verdict is Verdict.GAP:
                low = self._low_watermark(partition, end)
                if low is None:
                    return
                verdict = self._machine.reach_end(partition, end, low)
            if verdict is not None:
                self._claim_again(
                    f"{partition[0]}[{partition[1]}] is another log: it ends at {end}"
                )
                return

    def _act(self, verdict: Verdict | None, message: Message) -> bool:
        """Do what a verdict wants, until the message is taken. False: it is left."""
        machine = self._machine
        where = f"{message.topic}[{message.partition}]"
        while verdict is not None:
            low = None
            if verdict is Verdict.HALTED:
                self._halt(self._positions.claimed[message.topic, message.partition])
                return True
            if verdict in (Verdict.UNEXPECTED, Verdict.CUT):
                why = "is another log" if verdict is Verdict.CUT else "continues at another offset"
                self._claim_again(f"{where} {why}: it delivered offset {message.offset}")
                return False
            if verdict is Verdict.GAP:
                low = self._low_watermark((message.topic, message.partition), message.offset)
                if low is None:
                    return False
            elif not self._make_room(machine.lane((message.topic, message.partition))):
                return False
            verdict = machine.take(message, self._window, low)
        return True

    def _low_watermark(self, partition: KafkaPartition, offset: int) -> int | None:
        """The first offset of a partition at the broker, asked once for all messages of a poll.
        offset: the one that came in place of the expected one. None: not known, or the end."""
        if (low := self._lows.get(partition)) is None:
            question = self._source.ask([partition])
            while not question.wait(POLL_WHILE_IDLE_SECONDS):
                if self._stop.is_set():
                    return None
            try:
                found = [low for low, _ in question.answer().values()]
            except Unreachable as error:
                self._claim_again(f"the brokers do not answer: {error}")
                return None
            if not found:
                self._claim_again(f"{partition[0]} is not there any more")
                return None
            low = self._lows[partition] = found[0]
        expected = self._positions.claimed[partition].expected
        if low > expected:
            logger.error(
                "%s[%d]: the broker deleted offsets %d to %d before they were read",
                *(*partition, expected, min(low, offset) - 1),
            )
        return low

    def _halt(self, claimed: ClaimedPartition) -> None:
        """Stop reading a partition that has too many bad messages."""
        topic, number = claimed.claim.source.kafka
        why = claimed.halted or ""
        logger.error("%s[%d] is halted at offset %d: %s", topic, number, claimed.expected, why)
        self._source.pause([(topic, number)])
        self._background.record_halts(self._positions)

    def _launch_all(self) -> None:
        while (lane := self._machine.due(time.monotonic())) is not None:
            self._launch(lane)

    def _launch(self, lane: Lane) -> None:
        """Give the filled batch of a lane to its writer."""
        flight = self._machine.launch(lane, time.monotonic())
        high = {source: self._source.high_watermark(source.kafka) for source in flight.claims}
        self._writers.write(lane.number, flight, high)

    def _land(self) -> None:
        """Finish the batches in flight that are written."""
        for number in self._writers.done():
            self._land_one(self._machine.lanes[number])

    def _land_one(self, lane: Lane) -> None:
        """Finish the batch of a lane; what is due now is launched first."""
        try:
            written = self._writers.result(lane.number)
        except Fenced:
            self._machine.fenced(lane, time.monotonic())
            self._stop_reading("another consumer moved the ledger")
            return
        except Abandoned:
            self._machine.abandoned(lane, time.monotonic())
            return
        flight = self._machine.landed(lane)
        lane.remember(written.fingerprints)
        self._launch_all()
        self._meter.batch_written(flight.batch, written)
        for claimed in self._machine.judge(written.rejects):
            self._halt(claimed)
        self._source.commit(self._machine.ends(flight))
        flight.batch.clear()

    def _make_room(self, lane: Lane) -> bool:
        """Wait until the filling batch of a lane can go; after a while reading is paused and
        polling goes on. False: the claims changed, or the end has come."""
        if lane.ready:
            self._launch(lane)
            return True
        lane.filling.arrange()
        generation = self._positions.generation
        until = time.monotonic() + PAUSE_AFTER_SECONDS
        flight = lane.flight  # the next one may be launched as soon as this one is written
        while lane.flight is flight and self._writers.wait_for_one(until - time.monotonic()):
            self._land()
        if lane.flight is flight:
            self._wait_paused(lane)
        return self._positions.generation == generation and not self._stop.is_set()

    def _wait_paused(self, lane: Lane) -> None:
        self._source.pause(self._machine.pause())
        metrics.PAUSED.set(1)
        flight = lane.flight
        while self._machine.paused and lane.flight is flight and not self._stop.is_set():
            self._upkeep()
            for message in self._source.poll(1, POLL_WHILE_IDLE_SECONDS):
                # Paused partitions deliver nothing. If one does, the ledger knows where to go on.
                self._act(self._machine.take(message, self._window), message)
            self._land()
            self._launch_all()
        self._source.resume(self._machine.resume())
        metrics.PAUSED.set(0)

    def _claim(self) -> None:
        """Ask the ledger from which offset to read each assigned partition, and start there."""
        generation = self._positions.generation
        question = self._source.ask(self._positions.assigned or [])
        if not self._wait(question.wait, generation):
            return
        try:
            bounds = question.answer()
        except Unreachable as error:
            logger.warning("waiting for Kafka: %s", error)
            self._machine.release(time.monotonic() + CLAIM_AFTER_UNREACHABLE_SECONDS)
            return
        suspects, cut = self._positions.suspects, self._positions.cut
        wanted = {
            source: (low, end if source.kafka in suspects else None)
            for source, (low, end) in bounds.items()
        }
        claims = self._writers.claim(wanted, frozenset(cut))
        if not self._wait(claims.done, generation):
            return
        self._machine.grant(claims.result(), time.monotonic())
        self._source.start(self._positions.starts())
        self._source.pause(self._positions.halted())
        logger.info("reading %d partitions", len(self._positions.claimed))

    def _wait(self, done: Callable[[], bool], generation: int) -> bool:
        """Wait, and stay in the group meanwhile: no partition is read, only callbacks run. False:
        what is claimed changed, or the end has come."""
        while not done() and not self._stop.is_set():
            metrics.TURN.set_to_current_time()
            self._source.poll(1, POLL_WHILE_WRITING_SECONDS)
            if self._positions.generation != generation:
                # A claim that is on its way must not fence the next owner later.
                self._writers.abandon()
        return self._positions.generation == generation and not self._stop.is_set()

    def _on_assigned(self, partitions: list[KafkaPartition]) -> None:
        self._machine.assign(partitions, time.monotonic())

    def _on_revoked(self) -> None:
        """Still ours: write and commit what was read, unless the database is not available."""
        self._hand_over()
        self._machine.revoke()

    def _on_lost(self) -> None:
        """Not ours any more: the database would refuse what was read."""
        self._writers.abandon()
        self._machine.revoke()

    def _hand_over(self) -> None:
        """Write what was read within HAND_OVER_SECONDS. Else the next consumer does."""
        until = time.monotonic() + HAND_OVER_SECONDS
        for _ in range(2):
            if not self._writers.wait_for_all(until - time.monotonic()):
                self._writers.abandon()
                break
            self._land()
            for lane in self._machine.lanes:
                if lane.ready:
                    self._launch(lane)

    def _claim_again(self, why: str) -> None:
        """Forget what is not written and claim again: the ledger knows where to go on."""
        self._machine.release(time.monotonic())
        self._stop_reading(why)

    def _stop_reading(self, why: str) -> None:
        logger.warning("claiming all partitions again: %s", why)
        self._writers.abandon()
        self._source.start({})

    def _idle_long_enough(self) -> bool:
        limit, now = self._policy.until_idle, time.monotonic()
        self._topics.turn(self._source, assigned=self._positions.assigned is not None, now=now)
        if limit is None:
            return False
        since = self._machine.idle_since()
        return since is not None and now - since >= limit
