"""Where Citus places shards, and which it moves to a new worker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Citus' strategy by_disk_size: workers are balanced that differ by less than 10% from the mean; a
# move must bring half of the shard's size; an empty shard counts too.
THRESHOLD = 0.1
IMPROVEMENT = 0.5
BASE_COST = 100 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Move:
    """One shard, with those of the other tables that belong to it, to another worker. Numbers of
    the shard and of the workers, from 0."""

    shard: int
    source: int
    target: int


class Workers:
    """The shards of each worker. sizes: the bytes of each shard."""

    def __init__(self, sizes: Sequence[float], count: int) -> None:
        self.sizes = sizes
        self.shards: list[set[int]] = [set() for _ in range(count)]
        for shard in range(len(sizes)):  # as create_distributed_table does
            self.shards[shard % count].add(shard)

    def held(self) -> list[float]:
        """The bytes on each worker."""
        return [sum(self.sizes[shard] for shard in mine) for mine in self.shards]

    def add(self) -> None:
        """One more worker, without shards."""
        self.shards.append(set())

    def rebalance(self) -> list[Move]:
        """Move shards until the workers are balanced, or no move helps; what was moved."""
        moves = []
        while move := self._next():
            self.shards[move.source].remove(move.shard)
            self.shards[move.target].add(move.shard)
            moves.append(move)
        return moves

    def _next(self) -> Move | None:
        costs = [sum(self._cost(shard) for shard in mine) for mine in self.shards]
        mean = sum(costs) / len(costs)
        low, high = (1 - THRESHOLD) * mean, (1 + THRESHOLD) * mean
        for source, target in self._pairs(costs, low, high):
            largest_first = sorted(
                self.shards[source], key=lambda shard: (-self._cost(shard), shard)
            )
            for shard in largest_first:
                if _helps(costs[source], costs[target], self._cost(shard)):
                    return Move(shard, source, target)
        return None

    @staticmethod
    def _pairs(costs: Sequence[float], low: float, high: float) -> Iterator[tuple[int, int]]:
        """Workers between which a move may help: the fullest first, and for it the emptiest."""
        rising = sorted(range(len(costs)), key=lambda worker: (costs[worker], worker))
        for source in reversed(rising):
            if costs[source] <= low:
                return
            for target in rising:
                both_fine = costs[target] >= low and costs[source] <= high
                if costs[target] >= high or both_fine or target == source:
                    break
                yield source, target

    def _cost(self, shard: int) -> float:
        return self.sizes[shard] + BASE_COST


def _helps(source: float, target: float, cost: float) -> bool:
    """Whether moving a shard of that cost makes the two workers more even, by enough."""
    if target + cost <= source - cost:
        return True
    return (source - target - cost) / cost >= IMPROVEMENT
