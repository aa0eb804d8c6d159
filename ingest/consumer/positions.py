"""The partitions of a consumer: which the group assigned, which are claimed, and their offsets.

No function here reads a clock: callers pass times in, in seconds.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import KafkaPartition, LastMessage, TopicPartition
from ingest.store.claim import Claim


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many bad messages a partition may have before the consumer stops reading it."""

    consecutive: int  # this many bad messages in a row are too many
    ratio: float  # this share of bad messages among the last `window` messages is too large
    window: int


@dataclass(slots=True)
class Breaker:
    """Counts bad messages among the last messages of a partition."""

    tolerance: Tolerance
    # for each of the last `tolerance.window` messages, whether it is bad
    _recent: deque[bool] = field(default_factory=deque)
    _bad: int = 0  # how many messages in `_recent` are bad
    _bad_in_a_row: int = 0

    def note(self, is_bad: bool) -> None:
        """Count one message as good or bad."""
        self._recent.append(is_bad)
        self._bad += is_bad
        self._bad_in_a_row = self._bad_in_a_row + 1 if is_bad else 0
        if len(self._recent) > self.tolerance.window:
            self._bad -= self._recent.popleft()

    def note_good(self, count: int) -> None:
        """Count `count` messages as good."""
        if not count:
            return
        recent = self._recent
        recent.extend(repeat(False, count))
        self._bad_in_a_row = 0
        for _ in range(len(recent) - self.tolerance.window):
            self._bad -= recent.popleft()

    def explain_trip(self) -> Explanation | None:
        """Return why reading must stop, or None if it may continue."""
        if self._bad_in_a_row >= self.tolerance.consecutive:
            return Explanation(Code.BAD_IN_A_ROW, n=self._bad_in_a_row)
        is_full = len(self._recent) >= self.tolerance.window
        if is_full and self._bad >= self.tolerance.ratio * self.tolerance.window:
            return Explanation(Code.BAD_AMONG_LAST, n=self._bad, all=self.tolerance.window)
        return None


@dataclass(slots=True)
class ClaimedPartition:
    """A partition that this consumer has claimed, and how far it was read."""

    claim: Claim
    expected: int  # the next offset
    breaker: Breaker
    # The last message that was read before the claim. Reading begins with it, to verify that the
    # log at the broker is still the same. None once a later message was admitted.
    unverified_last: LastMessage | None = None
    is_last_delivered: bool = False  # the broker has delivered `unverified_last` again
    halted: Explanation | None = None  # why reading has stopped; None while the partition is read
    lane: int = 0  # the number of the lane in which its messages are collected


@dataclass(slots=True)
class Positions:
    """The topic partitions that the group assigned to one consumer, and the claims for them."""

    claimed: dict[KafkaPartition, ClaimedPartition] = field(default_factory=dict)
    assigned: list[KafkaPartition] | None = None  # None before the group assigned any
    claim_at: float | None = None  # when to claim; None if there is nothing to claim
    claims_revision: int = 0  # grows whenever `claimed` changes; not the epoch
    # partitions with a log that may have been truncated; the next claim compares their end offsets
    suspects: set[KafkaPartition] = field(default_factory=set)
    # partitions with a log that was certainly truncated
    truncated: set[TopicPartition] = field(default_factory=set)

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """Record the partitions that the group assigned. They are now due to be claimed."""
        self.claimed = {}
        self.assigned = partitions
        self.claim_at = now
        self.claims_revision += 1

    def grant(self, claims: Iterable[Claim], tolerance: Tolerance) -> None:
        """Record the claims that the ledger granted."""
        self.claimed = {
            claim.topic_partition.kafka: ClaimedPartition(
                claim,
                claim.next_offset,
                Breaker(tolerance),
                unverified_last=claim.last,
                halted=Explanation(Code.HALTED_BEFORE) if claim.halted else None,
            )
            for claim in claims
        }
        self.claim_at = None
        self.suspects, self.truncated = set(), set()
        self.claims_revision += 1

    def revoke(self) -> None:
        """Forget all assigned and claimed topic partitions: the consumer group revoked them."""
        self.claimed, self.assigned, self.claim_at = {}, None, None
        self.claims_revision += 1

    def release(self, claim_at: float) -> None:
        """Give up all claims, and claim the assigned partitions again at `claim_at`."""
        self.claimed = {}
        self.claim_at = None if self.assigned is None else claim_at
        self.claims_revision += 1

    def is_claim_due(self, now: float) -> bool:
        return self.claim_at is not None and now >= self.claim_at

    @property
    def settled(self) -> bool:
        """Whether all partitions that the group assigned are claimed."""
        return self.assigned is not None and self.claim_at is None

    def list_unhalted(self) -> list[KafkaPartition]:
        """Return the claimed partitions that are not halted."""
        return [name for name, partition in self.claimed.items() if partition.halted is None]

    def select_halted(self) -> dict[KafkaPartition, ClaimedPartition]:
        """Return the claimed partitions that are halted."""
        return {
            name: partition
            for name, partition in self.claimed.items()
            if partition.halted is not None
        }

    def get_start_offsets(self) -> dict[KafkaPartition, int]:
        """Return the offset from which to read each claimed partition."""
        return {
            name: partition.expected
            if partition.unverified_last is None
            else partition.unverified_last.offset
            for name, partition in self.claimed.items()
        }


class StandstillTimer:
    """Detects that a Kafka client delivers no message although there are unread messages.

    Args:
        seconds: After how many seconds without a message the client should be replaced. The time
            doubles after each standstill, and is reset when a message is delivered.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = self._wait = seconds
        self._positions: Mapping[KafkaPartition, int] = {}
        self._since: float | None = None

    def note_positions(
        self,
        now: float,
        positions: Mapping[KafkaPartition, int],
        behind: Collection[KafkaPartition],
    ) -> bool:
        """Record the positions, and return whether the client should be replaced.

        Args:
            positions: The next offset of each partition.
            behind: The partitions with messages that the client has not delivered.
        """
        has_moved = any(
            self._positions.get(partition, position) != position
            for partition, position in positions.items()
        )
        self._positions = dict(positions)
        if has_moved:
            self._wait = self._seconds
        if has_moved or not behind:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._wait:
            self._since = None
            self._wait *= 2
            return True
        return False
