"""Matches the items of a new list with those of the old list. Without keys, removed and added
items that are probably the same are paired by DeepDiff's distance: a third of a millisecond each,
so only for few (docs/decisions/0011)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from history.diff import identity
from history.diff.equal import fingerprint, identical
from history.diff.path import name_item
from history.documents.exactjson import Json, dumps
from history.requests import deadline

Pairs = list[tuple[int, int]]


def increasing(pairs: Pairs) -> Pairs:
    """A longest chain of the pairs in which both numbers grow strictly. The pairs must be sorted by
    the first number ascending, then by the second descending."""
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
    """Index pairs of a longest common subsequence, ascending (Hunt and Szymanski)."""
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


Items = list[Json]


@dataclass(slots=True)
class Alignment:
    """Where every item of the new list comes from. `source`: the old index by new index, -1 for an
    added item. `gone`: old indexes, ascending. `moved`: new indexes of items that changed their
    order. `unsure`: new indexes of items that may differ from their source. `key`: the field that
    identifies all items, `names` and `old_names` its values; else "", and the names are segments of
    key paths."""

    source: list[int]
    gone: list[int]
    moved: set[int]
    unsure: Container[int]
    key: str = ""
    names: list[str] | None = None
    old_names: list[str] | None = None

    def segment(self, index: int) -> str:
        """The segment for an item of the new list in a key path."""
        return _segment(self.key, self.names, index)

    def old_segment(self, index: int) -> str:
        """The segment for an item of the old list in a key path."""
        return _segment(self.key, self.old_names, index)


def _segment(key: str, names: list[str] | None, index: int) -> str:
    if not names:
        return str(index)
    if key:
        return name_item(key, names[index])
    return names[index] or str(index)


def align(old: Items, new: Items, keys: tuple[str, ...], similarity: Similarity) -> Alignment:
    """Matches the items by the first key of all, else each by its own, else by content."""
    deadline.check()
    for key in keys:
        old_names = _names(old, key)
        if old_names is None:
            continue
        names = _names(new, key)
        if names is not None:
            return _by_key(key, old_names, names)
    matched = identity.match(old, new, keys)
    if matched is None:
        return _by_value(old, new, (), similarity)
    return _by_own_key(old, new, keys, similarity, matched)


def _names(items: Items, key: str) -> list[str] | None:
    """The key's value in every item; None if an item lacks it or two items share a value."""
    found: list[str] = []
    for item in items:
        if type(item) is not dict:
            return None
        value = item.get(key)
        if type(value) is str:
            found.append(value)
        elif type(value) is int:
            found.append(str(value))
        else:
            return None
    return found if len(set(found)) == len(found) else None


def _by_own_key(
    old: Items, new: Items, keys: tuple[str, ...], similarity: Similarity, matched: identity.Matched
) -> Alignment:
    """The items with a key of their own as matched; the rest by content."""
    source = [matched.source.get(index, -1) for index in range(len(new))]
    taken = set(matched.source.values())
    left = [index for index in range(len(old)) if index not in taken]
    came = [index for index, origin in enumerate(source) if origin < 0]
    rest = _by_value([old[i] for i in left], [new[i] for i in came], keys, similarity)
    changed = {*matched.source, *(came[i] for i in range(len(came)) if i in rest.unsure)}
    for index, origin in zip(came, rest.source, strict=True):
        source[index] = left[origin] if origin >= 0 else -1
    gone = [left[index] for index in rest.gone]
    moved = _movers(source)
    return Alignment(source, gone, moved, changed, "", matched.names, matched.old_names)


def _by_key(key: str, old_names: list[str], names: list[str]) -> Alignment:
    count = len(names)
    if names == old_names:  # as in most versions
        return Alignment([*range(count)], [], set(), range(count), key, names, old_names)
    places = {name: index for index, name in enumerate(old_names)}
    source = [places.get(name, -1) for name in names]
    left = set(names)
    gone = [index for index, name in enumerate(old_names) if name not in left]
    return Alignment(source, gone, _movers(source), range(count), key, names, old_names)


def _movers(source: list[int]) -> set[int]:
    """The new indexes of the smallest set of items whose moves explain the new order."""
    origins = [origin for origin in source if origin >= 0]
    if origins == sorted(origins):
        return set()
    kept = [(origin, index) for index, origin in enumerate(source) if origin >= 0]
    stay = {index for _, index in increasing(sorted(kept))}
    return {index for _, index in kept if index not in stay}


def _by_value(old: Items, new: Items, keys: tuple[str, ...], similarity: Similarity) -> Alignment:
    if old == new:  # to Python, which takes 1.0 as 1: each is compared with the one in its place
        return Alignment([*range(len(new))], [], set(), range(len(new)))
    head, tail = _equal_ends(old, new)
    old_end, new_end = len(old) - tail, len(new) - tail
    source = [*range(head), *[-1] * (new_end - head), *range(old_end, len(old))]
    if head in (old_end, new_end):
        return Alignment(source, list(range(head, old_end)), set(), ())

    was = [fingerprint(item) for item in old[head:old_end]]
    now = [fingerprint(item) for item in new[head:new_end]]
    stays = common(was, now)
    moved = _moved(was, now, stays)
    for i, j in [*stays, *moved]:
        source[j + head] = i + head
    taken = {i for i, _ in moved}
    changed: set[int] = set()
    last_old = last_new = 0
    for stay_old, stay_new in [*stays, (len(was), len(now))]:
        left = [i + head for i in range(last_old, stay_old) if i not in taken]
        came = [j + head for j in range(last_new, stay_new) if source[j + head] < 0]
        last_old, last_new = stay_old + 1, stay_new + 1
        if left and came:
            for i, j in _similar(old, new, left, came, keys, similarity):
                source[j] = i
                changed.add(j)
    kept = set(source)
    gone = [index for index in range(head, old_end) if index not in kept]
    return Alignment(source, gone, _movers(source), changed)


def _similar(
    old: Items,
    new: Items,
    left: list[int],
    came: list[int],
    keys: tuple[str, ...],
    similarity: Similarity,
) -> Iterator[tuple[int, int]]:
    """Old and new indexes of items that are one changed item; first among those without a key."""
    if keys:
        plain_left = [i for i in left if not identity.has(old[i], keys)]
        plain_came = [j for j in came if not identity.has(new[j], keys)]
        pairs = similarity.pair([old[i] for i in plain_left], [new[j] for j in plain_came])
        for a, b in pairs:
            yield plain_left[a], plain_came[b]
        done_left, done_came = {plain_left[a] for a, _ in pairs}, {plain_came[b] for _, b in pairs}
        left = [i for i in left if i not in done_left]
        came = [j for j in came if j not in done_came]
    for a, b in similarity.pair([old[i] for i in left], [new[j] for j in came]):
        if not identity.conflict(old[left[a]], new[came[b]], keys):
            yield left[a], came[b]


def _equal_ends(old: Items, new: Items) -> tuple[int, int]:
    """How many items are identical at the front and at the back; no item is counted twice."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and identical(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and identical(old[-1 - tail], new[-1 - tail]):
        tail += 1
    return head, tail


def _moved(was: list[str | bytes], now: list[str | bytes], stays: Pairs) -> Pairs:
    """Pairs of equal items outside the common order, if the value occurs once on each side."""
    left = _singles(was, {i for i, _ in stays})
    came = _singles(now, {j for _, j in stays})
    return [(i, came[value]) for value, i in left.items() if value in came]


def _singles(values: list[str | bytes], without: set[int]) -> dict[str | bytes, int]:
    found: dict[str | bytes, int] = {}
    twice: set[str | bytes] = set()
    for index, value in enumerate(values):
        if index in without:
            continue
        if value in found:
            twice.add(value)
        found[value] = index
    return {value: index for value, index in found.items() if value not in twice}


# Pairs of objects that DeepDiff compares at most: 12 take 5 ms, 72 take 23 ms.
_MOST_PAIRS = 12
_MOST_BYTES = 4096
# Objects at a greater distance than this are different items.
_DISTANCE = 0.6
# What is nested deeper counts as one text: at 90 levels DeepDiff takes three seconds.
_LEVELS = 8
_ALONE = ("iterable_item_added", "iterable_item_removed")


class Similarity:
    """Pairs items. One comparison of two snapshots gives DeepDiff at most _MOST_PAIRS pairs."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def pair(self, left: list[Json], came: list[Json]) -> Pairs:
        """Indexes of removed and added items that are one changed item; each index at most once."""
        product = len(left) * len(came)
        if (
            1 < product <= self._left
            and all(type(item) is dict for item in (*left, *came))
            and len(dumps(left)) + len(dumps(came)) <= _MOST_BYTES
        ):
            self._left -= product
            return _by_distance(left, came)
        return [(index, index) for index in range(min(len(left), len(came)))]


def _by_distance(left: list[Json], came: list[Json]) -> Pairs:
    from deepdiff import DeepDiff  # the import takes a third of a second; few need it

    # Only texts: to DeepDiff true is close to 1, and it has no numbers beyond float.
    found = DeepDiff(
        [_texts(item) for item in left],
        [_texts(item) for item in came],
        ignore_order=True,
        ignore_private_variables=False,  # otherwise keys that begin with __ are omitted
        view="tree",
        cutoff_distance_for_pairs=_DISTANCE,
        cutoff_intersection_for_pairs=1,
    )
    pairs: dict[int, int] = {}
    for report, levels in found.items():
        for level in levels:
            if report in _ALONE and level.up.up is None:
                continue  # the whole item was added or removed
            origin = level.path(output_format="list")[0]
            target = level.path(output_format="list", use_t2=True)[0]
            if origin not in pairs and target not in pairs.values():
                pairs[origin] = target
    return list(pairs.items())


def _texts(value: Json, levels: int = _LEVELS) -> Any:
    if levels and type(value) is dict:
        return {key: _texts(inner, levels - 1) for key, inner in value.items()}
    if levels and type(value) is list:
        return [_texts(inner, levels - 1) for inner in value]
    return dumps(value).decode()
