"""Longest common and longest increasing subsequences, in bounded n log n time."""

from bisect import bisect_left
from collections.abc import Hashable, Sequence

Pairs = list[tuple[int, int]]


def increasing(pairs: Pairs) -> Pairs:
    """A longest chain of the pairs in which both numbers grow strictly.

    The pairs must be sorted by the first number ascending, then by the second descending.
    """
    ends: list[int] = []  # the smallest second number that ends a chain of each length
    last: list[int] = []  # the index of the pair with that number
    before: list[int] = []  # for each pair the index of the previous one in its chain
    for position, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            last.append(position)
        else:
            ends[length] = second
            last[length] = position
    chain: Pairs = []
    position = last[-1] if last else -1
    while position >= 0:
        chain.append(pairs[position])
        position = before[position]
    chain.reverse()
    return chain


def common(old: Sequence[Hashable], new: Sequence[Hashable]) -> Pairs:
    """Index pairs of a longest common subsequence, ascending (Hunt and Szymanski).

    If values repeat so often that there are more than about 8 n candidate pairs, only the n-th
    occurrences are paired with each other; the result is then common, but maybe not the longest.
    """
    places: dict[Hashable, list[int]] = {}
    for index, value in enumerate(new):
        places.setdefault(value, []).append(index)
    count = sum(len(places[value]) for value in old if value in places)
    if count > max(4096, 8 * (len(old) + len(new))):
        return increasing(_by_occurrence(old, places))
    return increasing(
        [
            (index, place)
            for index, value in enumerate(old)
            if value in places
            for place in reversed(places[value])
        ]
    )


def _by_occurrence(old: Sequence[Hashable], places: dict[Hashable, list[int]]) -> Pairs:
    rest = {value: iter(found) for value, found in places.items()}
    pairs: Pairs = []
    for index, value in enumerate(old):
        place = next(rest[value], -1) if value in rest else -1
        if place >= 0:
            pairs.append((index, place))
    return pairs
