"""Matches the items of a new list with the items of the old list.

A removed and an added item without keys may be one item that changed. DeepDiff measures how similar
they are. It takes a third of a millisecond for each pair, so few pairs are measured
(docs/decisions/0011).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from history.common import deadline
from history.diff import identity
from history.diff.equality import is_identical, make_fingerprint
from history.diff.path import name_item
from history.documents.exactjson import Json, dumps

IndexPairs = list[tuple[int, int]]


def find_longest_chain(pairs: IndexPairs) -> IndexPairs:
    """Return a longest subsequence of `pairs` in which both numbers always grow.

    The pairs must be sorted by the first number ascending, then by the second descending.
    """
    ends: list[int] = []  # the smallest second number that ends a chain of each length
    last: list[int] = []  # the index of the pair with that number
    previous: list[int] = []  # for each pair the index of the previous one in its chain
    for position, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        previous.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(second)
            last.append(position)
        else:
            ends[length] = second
            last[length] = position
    chain: IndexPairs = []
    position = last[-1] if last else -1
    while position >= 0:
        chain.append(pairs[position])
        position = previous[position]
    chain.reverse()
    return chain


def find_common_subsequence(old: Sequence[Hashable], new: Sequence[Hashable]) -> IndexPairs:
    """Return the index pairs of a longest common subsequence, ascending (Hunt and Szymanski).

    If equal values make too many pairs, the n-th occurrence of a value in `old` is only paired with
    the n-th occurrence in `new`. The subsequence may then be shorter than possible.
    """
    indexes: dict[Hashable, list[int]] = {}
    for index, value in enumerate(new):
        indexes.setdefault(value, []).append(index)
    count = sum(len(indexes[value]) for value in old if value in indexes)
    if count > max(4096, 8 * (len(old) + len(new))):
        return find_longest_chain(_pair_by_occurrence(old, indexes))
    return find_longest_chain(
        [
            (index, new_index)
            for index, value in enumerate(old)
            if value in indexes
            for new_index in reversed(indexes[value])
        ]
    )


def _pair_by_occurrence(old: Sequence[Hashable], indexes: dict[Hashable, list[int]]) -> IndexPairs:
    unpaired = {value: iter(new_indexes) for value, new_indexes in indexes.items()}
    pairs: IndexPairs = []
    for index, value in enumerate(old):
        new_index = next(unpaired[value], -1) if value in unpaired else -1
        if new_index >= 0:
            pairs.append((index, new_index))
    return pairs


Items = list[Json]


@dataclass(slots=True)
class ListAlignment:
    """How the items of a new list match the items of an old list."""

    source: list[int]  # the old index by new index, -1 for an added item
    removed: list[int]  # old indexes of removed items, ascending
    moved: set[int]  # new indexes of items that changed their order
    unsure: Container[int]  # new indexes of items that may differ from their source
    key: str = ""  # the field that identifies all items, or ""
    # by new index, the value of `key`; if `key` is "", the key path segment, or "" without one
    names: list[str] | None = None
    old_names: list[str] | None = None  # the same by old index

    def get_segment(self, index: int) -> str:
        """Return the segment of a key path for an item of the new list."""
        return _make_segment(self.key, self.names, index)

    def get_old_segment(self, index: int) -> str:
        """Return the segment of a key path for an item of the old list."""
        return _make_segment(self.key, self.old_names, index)


def _make_segment(key: str, names: list[str] | None, index: int) -> str:
    if not names:
        return str(index)
    if key:
        return name_item(key, names[index])
    return names[index] or str(index)


def align_lists(
    old: Items, new: Items, keys: tuple[str, ...], matcher: SimilarItemMatcher
) -> ListAlignment:
    """Match the items of two lists.

    Two ways are tried:
    1. By one key field, the first of `keys` for which all items of both lists have a value, and
       no list has a value twice.
    2. Item by item: an item with a key value that is unique in its list is matched by this value.
       All other items are matched by their content.
    """
    deadline.check()
    for key in keys:
        old_names = _list_key_values(old, key)
        if old_names is None:
            continue
        names = _list_key_values(new, key)
        if names is not None:
            return _align_by_key(key, old_names, names)
    matched = identity.match_by_keys(old, new, keys)
    if matched is None:
        return _align_by_value(old, new, (), matcher)
    return _align_by_own_key(old, new, keys, matcher, matched)


def _list_key_values(items: Items, key: str) -> list[str] | None:
    """Return the value of a key field in each item. None if a value is missing or occurs twice."""
    values: list[str] = []
    for item in items:
        if type(item) is not dict:
            return None
        value = item.get(key)
        if type(value) is str:
            values.append(value)
        elif type(value) is int:
            values.append(str(value))
        else:
            return None
    return values if len(set(values)) == len(values) else None


def _align_by_own_key(
    old: Items,
    new: Items,
    keys: tuple[str, ...],
    matcher: SimilarItemMatcher,
    matched: identity.KeyMatches,
) -> ListAlignment:
    """Align two lists: the items in `matched` by their own keys, the others by their content."""
    source = [matched.source.get(index, -1) for index in range(len(new))]
    matched_origins = set(matched.source.values())
    old_rest = [index for index in range(len(old)) if index not in matched_origins]
    new_rest = [index for index, origin in enumerate(source) if origin < 0]
    rest_alignment = _align_by_value(
        [old[i] for i in old_rest], [new[i] for i in new_rest], keys, matcher
    )
    changed = {
        *matched.source,
        *(new_rest[i] for i in range(len(new_rest)) if i in rest_alignment.unsure),
    }
    for index, origin in zip(new_rest, rest_alignment.source, strict=True):
        source[index] = old_rest[origin] if origin >= 0 else -1
    removed = [old_rest[index] for index in rest_alignment.removed]
    moved = _find_fewest_moved(source)
    return ListAlignment(source, removed, moved, changed, "", matched.names, matched.old_names)


def _align_by_key(key: str, old_names: list[str], names: list[str]) -> ListAlignment:
    count = len(names)
    if names == old_names:  # as in most versions
        return ListAlignment([*range(count)], [], set(), range(count), key, names, old_names)
    old_indexes = {name: index for index, name in enumerate(old_names)}
    source = [old_indexes.get(name, -1) for name in names]
    new_names = set(names)
    removed = [index for index, name in enumerate(old_names) if name not in new_names]
    return ListAlignment(
        source, removed, _find_fewest_moved(source), range(count), key, names, old_names
    )


def _find_fewest_moved(source: list[int]) -> set[int]:
    """Return the new indexes of the items that moved: as few as can explain the new order.

    Args:
        source: See `ListAlignment.source`.
    """
    origins = [origin for origin in source if origin >= 0]
    if origins == sorted(origins):
        return set()
    matched = [(origin, index) for index, origin in enumerate(source) if origin >= 0]
    stay = {index for _, index in find_longest_chain(sorted(matched))}
    return {index for _, index in matched if index not in stay}


def _align_by_value(
    old: Items, new: Items, keys: tuple[str, ...], matcher: SimilarItemMatcher
) -> ListAlignment:
    if old == new:  # Python takes 1.0 as 1, so items in the same place are still compared
        return ListAlignment([*range(len(new))], [], set(), range(len(new)))
    head, tail = _count_equal_ends(old, new)
    old_end, new_end = len(old) - tail, len(new) - tail
    source = [*range(head), *[-1] * (new_end - head), *range(old_end, len(old))]
    if head in (old_end, new_end):
        return ListAlignment(source, list(range(head, old_end)), set(), ())

    old_prints = [make_fingerprint(item) for item in old[head:old_end]]
    new_prints = [make_fingerprint(item) for item in new[head:new_end]]
    stays = find_common_subsequence(old_prints, new_prints)
    moved = _pair_unique_values(old_prints, new_prints, stays)
    for i, j in [*stays, *moved]:
        source[j + head] = i + head
    moved_origins = {i for i, _ in moved}
    changed: set[int] = set()
    last_old = last_new = 0
    for stay_old, stay_new in [*stays, (len(old_prints), len(new_prints))]:
        removed_here = [i + head for i in range(last_old, stay_old) if i not in moved_origins]
        added_here = [j + head for j in range(last_new, stay_new) if source[j + head] < 0]
        last_old, last_new = stay_old + 1, stay_new + 1
        if removed_here and added_here:
            for i, j in _pair_similar(old, new, removed_here, added_here, keys, matcher):
                source[j] = i
                changed.add(j)
    matched_origins = set(source)
    removed = [index for index in range(head, old_end) if index not in matched_origins]
    return ListAlignment(source, removed, _find_fewest_moved(source), changed)


def _pair_similar(
    old: Items,
    new: Items,
    removed: list[int],
    added: list[int],
    keys: tuple[str, ...],
    matcher: SimilarItemMatcher,
) -> Iterator[tuple[int, int]]:
    """Pair removed items with added ones: each pair is one item that changed.

    Items without a key are paired first.

    Args:
        removed: Indexes in `old`.
        added: Indexes in `new`.

    Returns:
        Pairs of an index in `old` and an index in `new`.
    """
    if keys:
        keyless_removed = [i for i in removed if not identity.has_key(old[i], keys)]
        keyless_added = [j for j in added if not identity.has_key(new[j], keys)]
        pairs = matcher.pair_items(
            [old[i] for i in keyless_removed], [new[j] for j in keyless_added]
        )
        for a, b in pairs:
            yield keyless_removed[a], keyless_added[b]
        paired_removed, paired_added = (
            {keyless_removed[a] for a, _ in pairs},
            {keyless_added[b] for _, b in pairs},
        )
        removed = [i for i in removed if i not in paired_removed]
        added = [j for j in added if j not in paired_added]
    for a, b in matcher.pair_items([old[i] for i in removed], [new[j] for j in added]):
        if not identity.has_conflict(old[removed[a]], new[added[b]], keys):
            yield removed[a], added[b]


def _count_equal_ends(old: Items, new: Items) -> tuple[int, int]:
    """Return how many items at the start of both lists are identical, and how many at the end.

    An item that is counted at the start is not counted at the end too.
    """
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and is_identical(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and is_identical(old[-1 - tail], new[-1 - tail]):
        tail += 1
    return head, tail


def _pair_unique_values(
    old_prints: list[str | bytes], new_prints: list[str | bytes], stays: IndexPairs
) -> IndexPairs:
    """Return the index pairs of items that moved and did not change.

    Items in `stays` did not move. Of the remaining items, an item moved if its value occurs exactly
    once in the rest of the old list, and exactly once in the rest of the new list.
    """
    removed = _index_single_values(old_prints, {i for i, _ in stays})
    added = _index_single_values(new_prints, {j for _, j in stays})
    return [(i, added[value]) for value, i in removed.items() if value in added]


def _index_single_values(values: list[str | bytes], without: set[int]) -> dict[str | bytes, int]:
    indexes: dict[str | bytes, int] = {}
    repeated_values: set[str | bytes] = set()
    for index, value in enumerate(values):
        if index in without:
            continue
        if value in indexes:
            repeated_values.add(value)
        indexes[value] = index
    return {value: index for value, index in indexes.items() if value not in repeated_values}


# The most pairs of objects that DeepDiff compares: 12 take 5 ms, 72 take 23 ms.
_MAX_PAIRS = 12
_MAX_BYTES = 4096
# Objects at a greater distance than this are different items.
_MAX_DISTANCE = 0.6
# Deeper parts are compared as one text: with 90 levels DeepDiff takes three seconds.
_MAX_LEVELS = 8
_WHOLE_ITEM_REPORTS = ("iterable_item_added", "iterable_item_removed")


class SimilarItemMatcher:
    """A matcher of similar items of old and new lists, for one comparison of two snapshots.

    DeepDiff measures how similar two items are, for at most _MAX_PAIRS pairs. All further items
    are paired by their position.
    """

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MAX_PAIRS

    def pair_items(self, removed: list[Json], added: list[Json]) -> IndexPairs:
        """Pair removed items with added ones: each pair is one item that changed.

        Returns:
            Pairs of an index in `removed` and an index in `added`. No index occurs twice.
        """
        product = len(removed) * len(added)
        if (
            1 < product <= self._left
            and all(type(item) is dict for item in (*removed, *added))
            and len(dumps(removed)) + len(dumps(added)) <= _MAX_BYTES
        ):
            self._left -= product
            return _pair_by_distance(removed, added)
        return [(index, index) for index in range(min(len(removed), len(added)))]


def _pair_by_distance(removed: list[Json], added: list[Json]) -> IndexPairs:
    from deepdiff import DeepDiff  # imported late: it takes a third of a second

    # Values become texts first: DeepDiff takes true as close to 1, and numbers as floats.
    difference = DeepDiff(
        [_to_texts(item) for item in removed],
        [_to_texts(item) for item in added],
        ignore_order=True,
        ignore_private_variables=False,  # otherwise keys that begin with __ are omitted
        view="tree",
        cutoff_distance_for_pairs=_MAX_DISTANCE,
        cutoff_intersection_for_pairs=1,
    )
    pairs: dict[int, int] = {}
    for report, levels in difference.items():
        for level in levels:
            if report in _WHOLE_ITEM_REPORTS and level.up.up is None:
                continue  # the whole item was added or removed
            origin = level.path(output_format="list")[0]
            target = level.path(output_format="list", use_t2=True)[0]
            if origin not in pairs and target not in pairs.values():
                pairs[origin] = target
    return list(pairs.items())


def _to_texts(value: Json, levels: int = _MAX_LEVELS) -> Any:
    if levels and type(value) is dict:
        return {key: _to_texts(inner, levels - 1) for key, inner in value.items()}
    if levels and type(value) is list:
        return [_to_texts(inner, levels - 1) for inner in value]
    return dumps(value).decode()
