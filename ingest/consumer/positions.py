"""Which partitions are ours, and which offset comes next in each."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ingest.consumer.breaker import Breaker, Tolerance
from ingest.source.kafka import Place
from ingest.source.message import TopicPartition
from ingest.store.ledger import Claim


@dataclass(slots=True)
class Held:
    """A partition that we may write. fresh: nothing was read since it was claimed; halted: why
    its reading has stopped."""

    claim: Claim
    expected: int
    breaker: Breaker
    fresh: bool = True
    halted: str | None = None


@dataclass(slots=True)
class Positions:
    """The state of the group membership. generation changes whenever what is held changes."""

    held: dict[Place, Held] = field(default_factory=dict)
    assigned: list[Place] | None = None
    claim_at: float | None = None
    generation: int = 0
    # Where an offset came again that had been read: the log may have been cut.
    went_back: set[Place] = field(default_factory=set)

    def assign(self, places: list[Place]) -> None:
        """The group gave us these; they are held once claimed."""
        self.held = {}
        self.assigned = places
        self.claim_at = time.monotonic()
        self.generation += 1

    def hold(self, claims: Iterable[Claim], tolerance: Tolerance) -> None:
        """The ledger gave us these."""
        self.held = {
            place_of(claim.source): Held(
                claim,
                claim.next_offset,
                Breaker(tolerance),
                halted="halted before" if claim.halted else None,
            )
            for claim in claims
        }
        self.claim_at = None
        self.went_back = set()
        self.generation += 1

    def revoke(self) -> None:
        """The group took everything."""
        self.held, self.assigned, self.claim_at = {}, None, None
        self.generation += 1

    def let_go(self, seconds: float) -> None:
        """Hold nothing, and claim what is assigned again in so many seconds."""
        self.held = {}
        self.claim_at = None if self.assigned is None else time.monotonic() + seconds
        self.generation += 1

    @property
    def claim_due(self) -> bool:
        return self.claim_at is not None and time.monotonic() >= self.claim_at

    @property
    def settled(self) -> bool:
        """Whether the group has told us what is ours, and the ledger from where to read it."""
        return self.assigned is not None and self.claim_at is None

    def reading(self) -> list[Place]:
        """The partitions that are not halted."""
        return [place for place, held in self.held.items() if held.halted is None]

    def halted(self) -> dict[Place, Held]:
        """The partitions that are."""
        return {place: held for place, held in self.held.items() if held.halted is not None}

    def expected(self) -> dict[Place, int]:
        """The next offset of each partition."""
        return {place: held.expected for place, held in self.held.items()}


def place_of(source: TopicPartition) -> Place:
    """Topic and number of a partition, whatever the topic's id."""
    return source.topic, source.partition
