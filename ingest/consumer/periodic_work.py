"""Does what the consumer must do every few seconds: heartbeats, lag, forecasts, probes.

Begin with `PeriodicWork.run_due_work`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import psycopg

from history.store.days.window import Window
from ingest.consumer import metrics
from ingest.consumer.heartbeat_writer import HeartbeatWriter
from ingest.consumer.loss_forecaster import LossForecaster
from ingest.consumer.positions import Positions, StandstillTimer, Tolerance
from ingest.consumer.topics import TopicCensus
from ingest.consumer.writers import WorkerThread
from ingest.kafka.brokers import Bounds, BrokerSnapshot
from ingest.kafka.client import UnreachableError
from ingest.kafka.source import GroupMember
from ingest.messages.decode import ExpiredVersionError, decode
from ingest.messages.explanations import Explanation
from ingest.messages.message import KafkaMessage, KafkaPartition, TopicPartition
from ingest.messages.rejection import RejectedMessageError
from ingest.store import ledger
from ingest.store.claim import Claim
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
FINISH_SECONDS = 3.0
SAMPLE_MESSAGES = 20

# Reads messages of a partition. The other arguments are the first offset and the maximum number.
Peek = Callable[[KafkaPartition, int, int], list[KafkaMessage]]
# Returns the first and end offsets of partitions.
AskBounds = Callable[[list[KafkaPartition]], Mapping[TopicPartition, Bounds]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Finds out whether a halted partition may be read again.

    A call waits for the brokers and the database.
    """

    connect: Callable[[], Connection]
    peek: Peek
    bounds: AskBounds
    tolerance: Tolerance

    def __call__(
        self, partition: KafkaPartition, claim: Claim, expected: int, window: Window
    ) -> int | None:
        """Decide whether to read a halted partition again.

        Args:
            expected: The offset at which reading would continue.

        Returns:
            The offset before which bad messages do not halt the partition again, or None if the
            partition stays halted. The first rule that holds decides:

            - After `annals quarantine resume`, it is the offset that this command has set.
            - If few of the next messages are bad, it is `expected`.
            - If few of the newest messages are bad, it is the end offset of the partition.
        """
        try:
            end = max((end for _, end in self.bounds([partition]).values()), default=expected)
            with self.connect() as connection:
                # A paused partition is not fetched, so only this request knows its end.
                ledger.record_heartbeat(connection, {claim: end}, time.monotonic())
                allowed = ledger.load_resume_until(connection, claim)
            if allowed > expected:
                return allowed
            if self._has_tolerable_messages(partition, expected, window):
                return expected
            if self._has_tolerable_messages(
                partition, max(expected, end - SAMPLE_MESSAGES), window
            ):
                return end
        except (UnreachableError, psycopg.Error) as error:
            logger.warning("%s[%d] stays halted: %s", *partition, error)
        return None

    def _has_tolerable_messages(
        self, partition: KafkaPartition, start: int, window: Window
    ) -> bool:
        """Return whether few enough of the messages from `start` on are bad.

        False if there is no message.
        """
        messages, bad = self.peek(partition, start, SAMPLE_MESSAGES), 0
        for message in messages:
            try:
                decode(message, window)
            except RejectedMessageError:
                bad += 1
            except ExpiredVersionError:
                pass
        return bool(messages) and bad < self.tolerance.ratio * len(messages)


class PeriodicWork:
    """The work that the loop of the consumer does every few seconds.

    Only `finish` and `close` wait for the brokers or the database.
    """

    def __init__(
        self,
        probe: Probe,
        heartbeats: HeartbeatWriter,
        forecaster: LossForecaster,
        submit_job: Callable[[Callable[[Connection], object], str], Future[None]],
        claim_again: Callable[[str], None],
    ) -> None:
        """Set up the work.

        Args:
            submit_job: Runs a function in the database on another thread. The second argument says
                in a log message what the function does.
            claim_again: Called to give up all claims and to claim all partitions again. Gets the
                reason as a sentence.
        """
        self._probe = probe
        self._heartbeats = heartbeats
        self._forecaster = forecaster
        self._topic_census = TopicCensus(heartbeats)
        self._submit_job = submit_job
        self._claim_again = claim_again
        self._probes: dict[KafkaPartition, Future[int | None]] = {}
        # The job that records halts. The next one is submitted only when it has ended. Otherwise
        # jobs would pile up while the database is away.
        self._halting: Future[None] | None = None
        # The thread of probes. The consumer ends without waiting for it, because the brokers may
        # be away.
        self._prober = WorkerThread("probe")
        self._due = 0.0
        self._last_claims: list[Claim] = []
        self._standstill_timer: StandstillTimer | None = None

    def run_due_work(self, member: GroupMember, positions: Positions, window: Window) -> None:
        """Do the periodic work that is due, such as heartbeats, loss forecasts and probes."""
        self._topic_census.ask_when_due(member)
        if time.monotonic() < self._due or not (positions.claimed or self._last_claims):
            return
        self._due = time.monotonic() + HEARTBEAT_SECONDS
        claimed = positions.claimed
        if not claimed:
            self._write_heartbeat_without_brokers(member)
            return
        snapshot = member.poll_snapshot(claimed)
        broker_ends = self._write_heartbeat(member, positions, snapshot)
        self._forecaster.ask_when_due(member, positions)
        if self._halting is None or self._halting.done():
            self.record_halts(positions)
        if self._is_standing_still(member, positions, broker_ends):
            member.join_again()
        elif self._probe_halted(positions, window):
            self._claim_again("a halted partition is read again")
        elif snapshot is not None and _was_topic_recreated(snapshot, positions):
            self._claim_again("a topic was deleted and created again")

    def finish(self, member: GroupMember, positions: Positions) -> None:
        """Record the end offsets once more, before a consumer with `--until-idle` stops.

        Without this, the ledger would not show until the next run how many messages are unread.
        Waits a few seconds for the brokers.
        """
        if not positions.claimed:
            return
        self._topic_census.finish(member, FINISH_SECONDS)
        until = time.monotonic() + FINISH_SECONDS
        while (
            snapshot := member.poll_snapshot(positions.claimed)
        ) is None and time.monotonic() < until:
            time.sleep(0.05)
        self._heartbeats.wait(FINISH_SECONDS)
        self._write_heartbeat(member, positions, snapshot)
        self._heartbeats.wait(FINISH_SECONDS)

    def _write_heartbeat(
        self, member: GroupMember, positions: Positions, snapshot: BrokerSnapshot | None
    ) -> Mapping[KafkaPartition, int]:
        """Submit a heartbeat for the ledger.

        Returns:
            The end offsets of the claimed topic partitions that are in `snapshot`.
        """
        claimed = positions.claimed
        broker_ends = select_claimed_ends(snapshot, positions) if snapshot else {}
        end_offsets = {
            partition: _choose_newest_end(member, partition, broker_ends) for partition in claimed
        }
        metrics.LAG.clear()
        for partition, end_offset in end_offsets.items():
            if end_offset is not None:
                metrics.LAG.labels(*partition).set(max(0, end_offset - claimed[partition].expected))
        ends = {
            claimed[partition].claim: end_offset for partition, end_offset in end_offsets.items()
        }
        self._last_claims = [*ends]
        answered = {claimed[partition].claim for partition in claimed if partition in broker_ends}
        self._heartbeats.submit_heartbeat(ends, answered, snapshot.asked_at if snapshot else None)
        return broker_ends

    def _write_heartbeat_without_brokers(self, member: GroupMember) -> None:
        """Submit a heartbeat for the previous claims of this consumer, if no broker answers.

        Called while this consumer has no claims. The heartbeat makes the ledger show that this
        consumer still runs. It does not change the row of a partition that another consumer has
        claimed meanwhile.
        """
        if (
            member.poll_snapshot([claim.topic_partition.kafka for claim in self._last_claims])
            is None
        ):
            self._heartbeats.submit_heartbeat(dict.fromkeys(self._last_claims), (), None)

    def _is_standing_still(
        self, member: GroupMember, positions: Positions, ends: Mapping[KafkaPartition, int]
    ) -> bool:
        if self._standstill_timer is None:
            self._standstill_timer = StandstillTimer(member.standstill_seconds)
        expected = {partition: claimed.expected for partition, claimed in positions.claimed.items()}
        behind = {
            partition
            for partition, end in ends.items()
            if end > expected[partition] and not member.is_paused(partition)
        }
        return self._standstill_timer.note_positions(time.monotonic(), expected, behind)

    def record_halts(self, positions: Positions) -> None:
        """Record which partitions are halted.

        Called every few seconds, because an earlier attempt can have failed in the database.
        """
        halted: dict[Claim, Explanation] = {
            claimed.claim: claimed.halted
            for claimed in positions.select_halted().values()
            if claimed.halted is not None
        }
        if halted:
            self._halting = self._submit_job(
                partial(ledger.record_halts, halted=halted), "recording which partitions are halted"
            )

    def close(self, seconds: float) -> None:
        """End the work. Waits at most `seconds` for the database, and never for a probe."""
        self._prober.close(0)
        self._forecaster.close()
        self._heartbeats.close(seconds)

    def _probe_halted(self, positions: Positions, window: Window) -> bool:
        """Start a probe for each halted partition, and act on finished probes.

        Returns:
            Whether reading of at least one partition resumes.
        """
        resumed = False
        for partition, claimed in positions.select_halted().items():
            future = self._probes.get(partition)
            if future is not None and future.done():
                del self._probes[partition]
                until = future.result()
                if until is not None:
                    topic, number = partition
                    logger.warning(
                        "%s[%d]: reading resumes after the halt; bad messages before offset %d go"
                        " to quarantine and do not halt the partition again",
                        topic,
                        number,
                        until,
                    )
                    resume = partial(ledger.record_resume, claim=claimed.claim, until=until)
                    self._submit_job(resume, f"recording that {topic}[{number}] is read again")
                    resumed = True
            elif future is None:
                self._probes[partition] = self._prober.submit(
                    partial(self._probe, partition, claimed.claim, claimed.expected, window)
                )
        return resumed


def select_claimed_ends(
    snapshot: BrokerSnapshot, positions: Positions
) -> dict[KafkaPartition, int]:
    """Return the end offsets of claimed partitions, from an answer of the brokers.

    If a topic was deleted and created again since the claim, its partitions are left out: the
    brokers' answer is about the new topic, and the claim is about the old one.
    """
    claimed_ids = {
        name: partition.claim.topic_partition.broker_id
        for name, partition in positions.claimed.items()
    }
    return {
        (topic, number): end
        for (topic, number), end in snapshot.ends.items()
        if (topic, number) in claimed_ids and snapshot.ids.get(topic) == claimed_ids[topic, number]
    }


def _choose_newest_end(
    member: GroupMember, partition: KafkaPartition, broker_ends: Mapping[KafkaPartition, int]
) -> int | None:
    """Return the highest end offset that `member` or `broker_ends` has for a partition."""
    candidates = (member.get_end_offset(partition), broker_ends.get(partition))
    return max((end for end in candidates if end is not None), default=None)


def _was_topic_recreated(snapshot: BrokerSnapshot, positions: Positions) -> bool:
    return any(
        snapshot.ids.get(topic, claimed.claim.topic_partition.broker_id)
        != claimed.claim.topic_partition.broker_id
        for (topic, _), claimed in positions.claimed.items()
    )
