"""The partitions that the group assigned, those that the ledger let us claim, and the offset that
comes next in each. Pure: the time is passed in, in seconds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ingest.consumer.breaker import Breaker, Tolerance
from ingest.source.last_message import LastMessage
from ingest.source.message import KafkaPartition, TopicPartition
from ingest.store.claim import Claim


@dataclass(slots=True)
class ClaimedPartition:
    """A partition that we may write. expected: its next offset. last: the message before it, which
    must come first, and no other before the expected one: otherwise the log is not the one that was
    read. None once the expected one came. found: it came. halted: why its reading has stopped.
    lane: the number of the lane whose batches have its messages."""

    claim: Claim
    expected: int
    breaker: Breaker
    last: LastMessage | None = None
    found: bool = False
    halted: str | None = None
    lane: int = 0


@dataclass(slots=True)
class Positions:
    """First the group assigns partitions, then the ledger lets us claim them.

    assigned: None before the group has assigned any, and after it has revoked them. claim_at: when
    to claim; None if that is done or there is nothing to claim. generation: changes whenever
    `claimed` changes. suspects: partitions whose log may have been truncated. cut: those whose log
    is not the one that was read. held: those that wait while more endangered ones are read.
    """

    claimed: dict[KafkaPartition, ClaimedPartition] = field(default_factory=dict)
    assigned: list[KafkaPartition] | None = None
    claim_at: float | None = None
    generation: int = 0
    suspects: set[KafkaPartition] = field(default_factory=set)
    cut: set[TopicPartition] = field(default_factory=set)
    held: set[KafkaPartition] = field(default_factory=set)

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """The group assigned these. They are due to be claimed."""
        self.claimed, self.held = {}, set()
        self.assigned = partitions
        self.claim_at = now
        self.generation += 1

    def grant(self, claims: Iterable[Claim], tolerance: Tolerance) -> None:
        """The ledger granted these claims."""
        self.claimed = {
            claim.source.kafka: ClaimedPartition(
                claim,
                claim.next_offset,
                Breaker(tolerance),
                claim.last,
                halted="halted before" if claim.halted else None,
            )
            for claim in claims
        }
        self.claim_at = None
        self.suspects, self.cut, self.held = set(), set(), set()
        self.generation += 1

    def revoke(self) -> None:
        """The group took everything away."""
        self.claimed, self.assigned, self.claim_at = {}, None, None
        self.held = set()
        self.generation += 1

    def release(self, claim_at: float) -> None:
        """Give up all claims, and claim what is assigned again at this time."""
        self.claimed, self.held = {}, set()
        self.claim_at = None if self.assigned is None else claim_at
        self.generation += 1

    def claim_due(self, now: float) -> bool:
        return self.claim_at is not None and now >= self.claim_at

    @property
    def settled(self) -> bool:
        """All that the group assigned is claimed, and none of it is held back."""
        return self.assigned is not None and self.claim_at is None and not self.held

    def reading(self) -> list[KafkaPartition]:
        """The claimed partitions that are neither halted nor held back."""
        return [
            name
            for name, each in self.claimed.items()
            if each.halted is None and name not in self.held
        ]

    def halted(self) -> dict[KafkaPartition, ClaimedPartition]:
        """The claimed partitions that are halted."""
        return {name: each for name, each in self.claimed.items() if each.halted is not None}

    def starts(self) -> dict[KafkaPartition, int]:
        """The offset from which to read each claimed partition."""
        return {
            name: each.expected if each.last is None else each.last.offset
            for name, each in self.claimed.items()
        }
