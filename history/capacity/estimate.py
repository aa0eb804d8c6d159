"""How much each service brings, estimated from some blocks of a table. Pure.

A sample is whole blocks: neighbouring rows came together and resemble each other, so the variance
is that of sums over blocks (ratio estimator, finite population). All blocks: no error.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from math import sqrt

# The normal distribution's quantile for 95%.
Z = 1.96
# Of what was in none of n rows, 95% of samples have less than 3 / n: the rule of three.
RULE_OF_THREE = 3.0
# The services of one day and table that are kept by name; the others count together, as OTHER.
MOST_SERVICES = 30
OTHER = ""


class Kind(StrEnum):
    """What a version changed. FIRST: nothing is stored before it. REAL includes deletions."""

    FIRST = "first"
    NOTHING = "nothing"
    TECHNICAL = "technical"
    REAL = "real"


@dataclass(frozen=True, slots=True)
class SampledRow:
    """A row of the sample. weight: its size, in a measure of its own."""

    block: int
    client_id: str
    weight: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Table:
    """What is sampled: its number of blocks and its bytes on disk, indexes apart."""

    blocks: int
    data_bytes: float
    index_bytes: float


@dataclass(frozen=True, slots=True)
class Amount:
    """Estimated versions and bytes, with the variance of each estimate."""

    versions: float = 0.0
    versions_variance: float = 0.0
    bytes: float = 0.0
    bytes_variance: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            *(getattr(self, each.name) + getattr(other, each.name) for each in fields(Amount))
        )

    @property
    def versions_error(self) -> float:
        """95% of such samples are nearer to the truth."""
        return Z * sqrt(self.versions_variance)

    @property
    def bytes_error(self) -> float:
        return Z * sqrt(self.bytes_variance)


@dataclass(frozen=True, slots=True)
class Brought:
    """What a service brought: everything, what changed nothing, what changed only technical fields.
    sampled: the rows that this was estimated from."""

    all: Amount = Amount()
    nothing: Amount = Amount()
    technical: Amount = Amount()
    sampled: int = 0

    def __add__(self, other: Brought) -> Brought:
        return Brought(
            self.all + other.all,
            self.nothing + other.nothing,
            self.technical + other.technical,
            self.sampled + other.sampled,
        )


def choose(name: str, blocks: int, wanted: int) -> list[int]:
    """The blocks of a table to read, ascending: always the same ones for a name."""
    return sorted(random.Random(name).sample(range(blocks), min(wanted, blocks)))  # noqa: S311


def estimate(
    rows: Collection[SampledRow], chosen: Sequence[int], table: Table
) -> tuple[Brought, dict[str, Brought]]:
    """What all services brought together, and each by client id. chosen: the blocks that were read,
    also those without rows.

    The sum over the services has a smaller error than theirs added up: they share the blocks.
    """
    if not rows:
        return Brought(), {}
    expanded = table.blocks / len(chosen)
    weight = sum(row.weight for row in rows)
    # So that the bytes of all rows are those of the table.
    size = {
        id(row): table.data_bytes * row.weight / weight + table.index_bytes / len(rows)
        for row in rows
    }
    counts = _by_block(((row.block, 1.0) for row in rows), chosen)
    sizes = _by_block(((row.block, size[id(row)] / expanded) for row in rows), chosen)

    def brought(mine: Collection[SampledRow]) -> Brought:
        own = _by_block(((row.block, 1.0) for row in mine), chosen)
        own_sizes = _by_block(((row.block, size[id(row)] / expanded) for row in mine), chosen)
        amounts = [_amount(own, counts, own_sizes, sizes, table.blocks, 0.0)]
        for kind in (Kind.NOTHING, Kind.TECHNICAL):
            part = [row for row in mine if row.kind is kind]
            some = _by_block(((row.block, 1.0) for row in part), chosen)
            some_sizes = _by_block(((row.block, size[id(row)] / expanded) for row in part), chosen)
            amounts.append(_amount(some, own, some_sizes, own_sizes, table.blocks, RULE_OF_THREE))
        return Brought(amounts[0], amounts[1], amounts[2], len(mine))

    return brought(rows), {name: brought(mine) for name, mine in _services(rows).items()}


def _services(rows: Iterable[SampledRow]) -> Mapping[str, list[SampledRow]]:
    """The rows by client id; the smallest services together."""
    mine: dict[str, list[SampledRow]] = {}
    for row in rows:
        mine.setdefault(row.client_id, []).append(row)
    ordered = sorted(mine, key=lambda name: (-len(mine[name]), name))
    for name in ordered[MOST_SERVICES:]:
        mine.setdefault(OTHER, []).extend(mine.pop(name))
    return mine


def _by_block(values: Iterable[tuple[int, float]], chosen: Sequence[int]) -> list[float]:
    sums = dict.fromkeys(chosen, 0.0)
    for block, value in values:
        sums[block] += value
    return list(sums.values())


def _amount(
    versions: Sequence[float],
    of_versions: Sequence[float],
    sizes: Sequence[float],
    of_sizes: Sequence[float],
    blocks: int,
    unseen: float,
) -> Amount:
    """versions, sizes: sums over each block. of_*: those of the whole that these are a part of.
    unseen: how many rows may at least be wrong where the sample has none, or only such ones."""
    expanded = blocks / len(versions)
    row = sum(of_sizes) / sum(of_versions)
    return Amount(
        sum(versions) * expanded,
        _variance(versions, of_versions, blocks, unseen),
        sum(sizes) * expanded,
        _variance(sizes, of_sizes, blocks, unseen * row),
    )


def _variance(part: Sequence[float], whole: Sequence[float], blocks: int, unseen: float) -> float:
    """The variance of an estimated total, given the total of the whole."""
    count = len(part)
    if count == blocks:
        return 0.0
    if sum(part) in (0.0, sum(whole)):
        return (unseen * blocks / count / Z) ** 2
    ratio = sum(part) / sum(whole)
    left = sum((one - ratio * all_) ** 2 for one, all_ in zip(part, whole, strict=True))
    return blocks**2 * (1 - count / blocks) / count * left / max(count - 1, 1)
