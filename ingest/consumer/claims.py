"""Rebalancing: the consumer claims assigned partitions in the ledger before it reads them."""

import logging
import time
from collections.abc import Callable
from threading import Event

from ingest.consumer import metrics
from ingest.consumer.lanes import Lane
from ingest.consumer.state_machine import StateMachine
from ingest.consumer.writers import WriterThreads
from ingest.kafka.client import UnreachableError
from ingest.kafka.source import GroupMember
from ingest.messages.message import KafkaPartition

logger = logging.getLogger(__name__)

CLAIM_AFTER_UNREACHABLE_SECONDS = 1.0
POLL_WHILE_WAITING_SECONDS = 0.002

# Joins the group. The arguments are the callbacks on_assigned, on_revoked and on_lost of
# `GroupMember`.
OpenMember = Callable[
    [Callable[[list[KafkaPartition]], None], Callable[[], None], Callable[[], None]], GroupMember
]


class PartitionClaimer:
    """Claims the partitions that the group assigns, and gives claims up.

    Only the thread of the consumer's loop may use a claimer. While its methods wait, they poll:
    only a poll runs the callbacks below, and the group drops a member that does not poll.
    """

    def __init__(
        self,
        machine: StateMachine,
        writers: WriterThreads,
        stopping: Event,
        open_member: OpenMember,
        hand_over: Callable[[], None],
    ) -> None:
        """Join the group.

        Args:
            stopping: Set when the consumer must end. The methods of the claimer then stop waiting.
            hand_over: Writes the messages that were read. Called before partitions are revoked.
        """
        self._machine = machine
        self._positions = machine.positions
        self._writers = writers
        self._stopping = stopping
        self._hand_over = hand_over
        self.member = open_member(self._handle_assigned, self._handle_revoked, self._handle_lost)

    def claim_when_due(self) -> None:
        """Claim the assigned topic partitions if a claim is scheduled and its time has come.

        Reading then begins at the offsets of the ledger. No claim is made while a batch is being
        written.
        """
        if self._machine.is_claim_due(time.monotonic()):
            self._claim_partitions()

    def claim_again(self, reason: str) -> None:
        """Drop the messages that are not written yet, and claim all partitions again.

        Nothing is lost: reading continues at the offsets of the ledger.
        """
        self._machine.release(time.monotonic())
        self._stop_until_claim(reason)

    def claim_again_after_fenced(self, lane: Lane) -> None:
        """Drop a lane's batch that the ledger has refused, and claim all partitions again.

        The claim follows after CLAIM_AFTER_FENCED_SECONDS. By then, Kafka should have told this
        consumer which topic partitions now belong to a different member of the group.
        """
        self._machine.handle_fenced(lane, time.monotonic())
        self._stop_until_claim("another consumer moved the ledger")

    def _stop_until_claim(self, reason: str) -> None:
        """Stop reading all partitions until the next claim. The caller has set the claim's time."""
        logger.warning("claiming all partitions again: %s", reason)
        self._writers.abandon_waiting_work()
        self.member.start({})

    def _claim_partitions(self) -> None:
        claims_revision = self._positions.claims_revision
        request = self.member.ask_offsets(self._positions.assigned or [])
        if not self._wait_in_group(request.wait, claims_revision):
            return
        try:
            bounds = request.get_answer()
        except UnreachableError as error:
            logger.warning("waiting for Kafka: %s", error)
            self._machine.release(time.monotonic() + CLAIM_AFTER_UNREACHABLE_SECONDS)
            return
        suspects = self._positions.suspects
        suspected_bounds = {
            topic_partition: (first_offset, end if topic_partition.kafka in suspects else None)
            for topic_partition, (first_offset, end) in bounds.items()
        }
        claims = self._writers.claim(suspected_bounds, frozenset(self._positions.truncated))
        if not self._wait_in_group(claims.done, claims_revision):
            return
        self._machine.grant(claims.result(), time.monotonic())
        self.member.start(self._positions.get_start_offsets())
        self.member.pause(self._positions.select_halted())
        logger.info("reading %d partitions", len(self._positions.claimed))

    def _wait_in_group(self, is_done: Callable[[], bool], claims_revision: int) -> bool:
        """Poll until `is_done` returns True, to stay in the group. No partition is read meanwhile.

        Returns:
            False if the claims have changed, or the consumer must end.
        """
        while not is_done() and not self._stopping.is_set():
            metrics.TURN.set_to_current_time()
            self.member.poll(1, POLL_WHILE_WAITING_SECONDS)
            if self._positions.claims_revision != claims_revision:
                # A claim that still waits for the database would fence the next owner later.
                self._writers.abandon_waiting_work()
        return self._positions.claims_revision == claims_revision and not self._stopping.is_set()

    def _handle_assigned(self, partitions: list[KafkaPartition]) -> None:
        self._machine.assign(partitions, time.monotonic())

    def _handle_revoked(self) -> None:
        """Write and commit the messages that were read.

        During this call the partitions are still assigned to this consumer.
        """
        self._hand_over()
        self._machine.revoke()

    def _handle_lost(self) -> None:
        """Drop the messages that were read: another consumer may have the partitions already."""
        self._writers.abandon_waiting_work()
        self._machine.revoke()
