"""How unevenly ids fill the shards of a distributed table. Pure; a simulation with a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

# Versions that an application gets on a day on which it changes, as the simulator has them.
MEDIAN, P99 = 4, 22
SIGMA = math.log(P99 / MEDIAN) / NormalDist().inv_cdf(0.99)
MEAN = MEDIAN * math.exp(SIGMA**2 / 2)
# Applications with very many versions: as many as `python -m benchmarks timeline` has.
LARGE_VERSIONS = 10_000
ROWS_FOR_EACH_LARGE = 5_000_000
MOST_DRAWN = 100_000  # of more items than these, the sum of a shard is drawn instead of each item


@dataclass(frozen=True, slots=True)
class Large:
    """Applications with very many versions each within the retention."""

    count: int
    versions: float

    @property
    def rows(self) -> float:
        return self.count * self.versions


def usual_large(rows: float) -> Large:
    """The large applications among that many rows."""
    return Large(int(rows // ROWS_FOR_EACH_LARGE), LARGE_VERSIONS)


def applications(versions_per_day: float) -> int:
    """How many applications change on a day; at least one."""
    return max(1, round(versions_per_day / MEAN))


def shares(shards: int, applications: int, rows: float, large: Large) -> Sequence[float]:
    """The share of each shard in all rows; the sum is 1.

    The hash of an id chooses its shard, so each application is in any shard with equal probability.
    applications: how many change on a day. The same ones are assumed to change on all days: if
    others do, the shards are more even. rows: all rows that are kept, those of the large included.
    """
    drawn = random.Random(shards)  # noqa: S311 (a simulation: the same figures each time)
    usual = _usual(drawn, shards, applications)
    counts = _counts(drawn, shards, large.count)
    part = min(1.0, large.rows / rows) if rows else 0.0
    if not large.count:
        return usual
    return [
        (1 - part) * mine + part * count / large.count
        for mine, count in zip(usual, counts, strict=True)
    ]


def _usual(drawn: random.Random, shards: int, count: int) -> list[float]:
    """The share of each shard in the versions of usual applications."""
    if count <= MOST_DRAWN:
        sums = [0.0] * shards
        for _ in range(count):
            sums[drawn.randrange(shards)] += max(1, round(drawn.lognormvariate(0, SIGMA) * MEDIAN))
    else:
        # The sum of a Poisson number of versions, by its mean and variance (mean 1).
        spread = math.sqrt(shards / count * math.exp(SIGMA**2))
        sums = [max(0.0, drawn.gauss(1, spread)) for _ in range(shards)]
    total = sum(sums)
    return [each / total for each in sums]


def _counts(drawn: random.Random, shards: int, count: int) -> list[float]:
    """How many of `count` applications are in each shard."""
    if count <= MOST_DRAWN:
        sums = [0.0] * shards
        for _ in range(count):
            sums[drawn.randrange(shards)] += 1
        return sums
    mean = count / shards
    sums = [max(0.0, drawn.gauss(mean, math.sqrt(mean))) for _ in range(shards)]
    total = sum(sums)
    return [each * count / total for each in sums]
