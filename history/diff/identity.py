"""Which field identifies a list item across snapshots: of a whole list, else of single items."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from history.diff.path import name_item, split
from history.documents.exactjson import Json


@dataclass(frozen=True)
class Identity:
    """Key fields to try in order, for all lists and for lists at given places: (pattern, key
    fields) pairs, of which the first that matches the list's pointer applies; `*` matches any
    segment. No key fields: items are matched by content.

    A key is usable if every item on both sides is an object with a text or integer under it, and no
    two items of one side share a value.
    """

    keys: tuple[str, ...] = ("pid", "id")
    places: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @cached_property
    def _places(self) -> list[tuple[list[str], tuple[str, ...]]]:
        return [(split(pattern), keys) for pattern, keys in self.places]

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """Every field that may identify an item of some list."""
        return frozenset(self.keys).union(*(keys for _, keys in self.places))

    def at(self, pointer: str) -> tuple[str, ...]:
        """The key fields to try for the list at this pointer."""
        if not self.places:
            return self.keys
        segments = split(pointer)
        for pattern, keys in self._places:
            if len(pattern) == len(segments) and all(
                want in ("*", have) for want, have in zip(pattern, segments, strict=True)
            ):
                return keys
        return self.keys


DEFAULT = Identity()


Items = list[Json]
# For each key field: the value in every item, None where an item has none.
_Values = dict[str, list[str | None]]
# For each key field: the index of the one item that has the value.
_Places = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Matched:
    """source: the old index by new index, of items with the same key on both sides. names and
    old_names: the segment of each item in key paths, "" for an item without a key of its own."""

    source: dict[int, int]
    names: list[str]
    old_names: list[str]


def match(old: Items, new: Items, keys: tuple[str, ...]) -> Matched | None:
    """Matches the items whose key is unique on both sides, key by key in the order of `keys`. None
    if no item of either side has a key."""
    was, now = _values(old, keys), _values(new, keys)
    if not was and not now:
        return None
    old_places, places = _places(was), _places(now)
    old_names, names = _segments(old, keys, old_places), _segments(new, keys, places)
    source: dict[int, int] = {}
    taken: set[int] = set()
    for key in keys:
        origins = old_places.get(key, {})
        for value, index in places.get(key, {}).items():
            origin = origins.get(value, -1)
            if origin >= 0 and origin not in taken and index not in source:
                source[index] = origin
                taken.add(origin)
                names[index] = old_names[origin] = name_item(key, value)
    return Matched(source, names, old_names)


def segments(items: Items, keys: tuple[str, ...]) -> list[str]:
    """The segment of each item in key paths."""
    places = _places(_values(items, keys))
    for key in keys:
        if len(places.get(key, ())) == len(items):
            return _segments(items, (key,), places)
    return _segments(items, keys, places)


def has(item: Json, keys: tuple[str, ...]) -> bool:
    """Whether the item has a value for any of the keys."""
    return any(_value(item, key) is not None for key in keys)


def conflict(old: Json, new: Json, keys: tuple[str, ...]) -> bool:
    """Whether the first key that both items have says that they are different items."""
    for key in keys:
        was, now = _value(old, key), _value(new, key)
        if was is not None and now is not None:
            return was != now
    return False


def _values(items: Items, keys: tuple[str, ...]) -> _Values:
    """Empty if no item has any of the keys."""
    if dict not in set(map(type, items)):  # lists of texts and numbers are many, and long
        return {}
    found = {key: [_value(item, key) for item in items] for key in keys}
    return {key: values for key, values in found.items() if any(v is not None for v in values)}


def _value(item: Json, key: str) -> str | None:
    value = item.get(key) if type(item) is dict else None
    return str(value) if type(value) in (str, int) else None


def _places(values: _Values) -> _Places:
    """The items that share their value with no other."""
    places: _Places = {}
    for key, found in values.items():
        counts = Counter(found)
        places[key] = {
            value: index
            for index, value in enumerate(found)
            if value is not None and counts[value] == 1
        }
    return places


def _segments(items: Items, keys: tuple[str, ...], places: _Places) -> list[str]:
    names = [""] * len(items)
    for key in reversed(keys):
        for value, index in places.get(key, {}).items():
            names[index] = name_item(key, value)
    return names
