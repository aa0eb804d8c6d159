"""Matches the items of a new list with those of the old list."""

from collections.abc import Container
from dataclasses import dataclass

from history.diff.equal import fingerprint, identical
from history.diff.sequence import Pairs, common, increasing
from history.diff.similarity import Similarity
from history.exactjson import Json

Items = list[Json]


@dataclass(slots=True)
class Alignment:
    """Where every item of the new list comes from.

    `source`: for each new index the old index of the same item, or -1 for an added item.
    `gone`: the old indexes of removed items, ascending. `moved`: the new indexes of items that
    changed their order among the others. `unsure`: the new indexes of items that may differ from
    their source. `key`: the identity field, "" without one; `names` and `old_names`: its values.
    """

    source: list[int]
    gone: list[int]
    moved: set[int]
    unsure: Container[int]
    key: str = ""
    names: list[str] | None = None
    old_names: list[str] | None = None


def align(old: Items, new: Items, keys: tuple[str, ...], similarity: Similarity) -> Alignment:
    """Matches the items by the first usable key, else by their content."""
    for key in keys:
        old_names = _names(old, key)
        if old_names is None:
            continue
        names = _names(new, key)
        if names is not None:
            return _by_key(key, old_names, names)
    return _by_value(old, new, similarity)


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


def _by_key(key: str, old_names: list[str], names: list[str]) -> Alignment:
    places = {name: index for index, name in enumerate(old_names)}
    source = [places.get(name, -1) for name in names]
    left = set(names)
    gone = [index for index, name in enumerate(old_names) if name not in left]
    return Alignment(source, gone, _movers(source), range(len(names)), key, names, old_names)


def _movers(source: list[int]) -> set[int]:
    """The new indexes of the smallest set of items whose moves explain the new order."""
    origins = [origin for origin in source if origin >= 0]
    if origins == sorted(origins):
        return set()
    kept = [(origin, index) for index, origin in enumerate(source) if origin >= 0]
    stay = {index for _, index in increasing(sorted(kept))}
    return {index for _, index in kept if index not in stay}


def _by_value(old: Items, new: Items, similarity: Similarity) -> Alignment:
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
            for a, b in similarity.pair([old[i] for i in left], [new[j] for j in came]):
                source[came[b]] = left[a]
                changed.add(came[b])
    kept = set(source)
    gone = [index for index in range(head, old_end) if index not in kept]
    return Alignment(source, gone, _movers(source), changed)


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
