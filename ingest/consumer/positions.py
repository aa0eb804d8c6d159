"""The partitions that the group assigned, those that the ledger let us claim, and the offset that
comes next in each. Pure: the time is passed in, in seconds."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import repeat

from ingest.source.message import KafkaPartition, LastMessage, TopicPartition
from ingest.store.batch import Claim


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The limits: `consecutive` bad messages in a row, or `ratio` of the last `window` messages."""

    consecutive: int
    ratio: float
    window: int


@dataclass(slots=True)
class Breaker:
    """The last messages of one partition, good and bad."""

    tolerance: Tolerance
    _recent: deque[bool] = field(default_factory=deque)
    _bad: int = 0
    _row: int = 0

    def note(self, bad: bool) -> None:
        """Count one message."""
        self._recent.append(bad)
        self._bad += bad
        self._row = self._row + 1 if bad else 0
        if len(self._recent) > self.tolerance.window:
            self._bad -= self._recent.popleft()

    def note_good(self, count: int) -> None:
        """Count good messages. None of them trips the breaker."""
        if not count:
            return
        recent = self._recent
        recent.extend(repeat(False, count))
        self._row = 0
        for _ in range(len(recent) - self.tolerance.window):
            self._bad -= recent.popleft()

    def tripped(self) -> str | None:
        """Why reading must stop; None if it may continue."""
        if self._row >= self.tolerance.consecutive:
            return f"{self._row} bad messages in a row"
        full = len(self._recent) >= self.tolerance.window
        if full and self._bad >= self.tolerance.ratio * self.tolerance.window:
            return f"{self._bad} of the last {self.tolerance.window} messages are bad"
        return None


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
    """First the group assigns partitions, then the ledger lets us claim them. assigned: None before
    the group has assigned any, and after it has revoked them. claim_at: when to claim; None if
    there is nothing to claim. generation: changes whenever `claimed` changes. suspects: partitions
    whose log may have been truncated. cut: those whose log is not the one that was read."""

    claimed: dict[KafkaPartition, ClaimedPartition] = field(default_factory=dict)
    assigned: list[KafkaPartition] | None = None
    claim_at: float | None = None
    generation: int = 0
    suspects: set[KafkaPartition] = field(default_factory=set)
    cut: set[TopicPartition] = field(default_factory=set)

    def assign(self, partitions: list[KafkaPartition], now: float) -> None:
        """The group assigned these. They are due to be claimed."""
        self.claimed = {}
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
        self.suspects, self.cut = set(), set()
        self.generation += 1

    def revoke(self) -> None:
        """The group took everything away."""
        self.claimed, self.assigned, self.claim_at = {}, None, None
        self.generation += 1

    def release(self, claim_at: float) -> None:
        """Give up all claims, and claim what is assigned again at this time."""
        self.claimed = {}
        self.claim_at = None if self.assigned is None else claim_at
        self.generation += 1

    def claim_due(self, now: float) -> bool:
        return self.claim_at is not None and now >= self.claim_at

    @property
    def settled(self) -> bool:
        """All that the group assigned is claimed."""
        return self.assigned is not None and self.claim_at is None

    def reading(self) -> list[KafkaPartition]:
        """The claimed partitions that are not halted."""
        return [name for name, each in self.claimed.items() if each.halted is None]

    def halted(self) -> dict[KafkaPartition, ClaimedPartition]:
        """The claimed partitions that are halted."""
        return {name: each for name, each in self.claimed.items() if each.halted is not None}

    def starts(self) -> dict[KafkaPartition, int]:
        """The offset from which to read each claimed partition."""
        return {
            name: each.expected if each.last is None else each.last.offset
            for name, each in self.claimed.items()
        }


class Standstill:
    """seconds: how long nothing may come."""

    def __init__(self, seconds: float) -> None:
        self._seconds = self._wait = seconds
        self._positions: Mapping[KafkaPartition, int] = {}
        self._since: float | None = None

    def noticed(
        self,
        now: float,
        positions: Mapping[KafkaPartition, int],
        behind: Collection[KafkaPartition],
    ) -> bool:
        """Whether the client should be replaced: a whole wait no position moved. positions: next
        offsets. behind: the partitions that have more than was delivered."""
        moved = any(self._positions.get(each, at) != at for each, at in positions.items())
        self._positions = dict(positions)
        if moved:
            self._wait = self._seconds
        if moved or not behind:
            self._since = None
        elif self._since is None:
            self._since = now
        elif now - self._since >= self._wait:
            self._since = None
            self._wait *= 2
            return True
        return False
