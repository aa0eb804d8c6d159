"""Identifies the items of lists across snapshots by their key fields."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from history.diff.path import name_item, split_path
from history.documents.exactjson import Json


@dataclass(frozen=True)
class ListIdentity:
    """Key fields by which the items of lists are matched.

    A whole list is matched by a key if every item in the old and the new list is an object with a
    text or integer under the key, and no value occurs twice in one list. A list without key fields
    is matched by content.
    """

    # the key fields to try, in this order
    keys: tuple[str, ...] = ("pid", "id")
    # other key fields for single lists: a pattern for the pointer of the list, in which `*` matches
    # any segment, and the fields. The first pattern that matches is used.
    places: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @cached_property
    def _split_places(self) -> list[tuple[list[str], tuple[str, ...]]]:
        return [(split_path(pattern), keys) for pattern, keys in self.places]

    @cached_property
    def all_keys(self) -> frozenset[str]:
        """Every field that may identify an item of some list."""
        return frozenset(self.keys).union(*(keys for _, keys in self.places))

    def get_keys_at(self, pointer: str) -> tuple[str, ...]:
        """Return the key fields to try for the list at this pointer."""
        if not self.places:
            return self.keys
        segments = split_path(pointer)
        for pattern, keys in self._split_places:
            if len(pattern) == len(segments) and all(
                expected in ("*", segment)
                for expected, segment in zip(pattern, segments, strict=True)
            ):
                return keys
        return self.keys


DEFAULT_IDENTITY = ListIdentity()


Items = list[Json]
# For each key field: its value in every item, or None if the item does not have it.
_KeyValues = dict[str, list[str | None]]
# For each key field: by value, the index of the only item that has the value.
_KeyIndexes = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """The items of an old and a new list that are matched because they have the same key."""

    source: dict[int, int]  # the old index by new index
    names: list[str]  # the segment of each item in key paths, "" without a key
    old_names: list[str]  # the same for the old list


def match_by_keys(old: Items, new: Items, keys: tuple[str, ...]) -> KeyMatches | None:
    """Match items of two lists by a value in a key field that is unique in both lists.

    The key fields are tried in the order of `keys`.

    Returns:
        None if no item of either list has a key.
    """
    old_values, values = _collect_key_values(old, keys), _collect_key_values(new, keys)
    if not old_values and not values:
        return None
    old_indexes, indexes = _index_unique_values(old_values), _index_unique_values(values)
    old_names, names = _make_segments(old, keys, old_indexes), _make_segments(new, keys, indexes)
    source: dict[int, int] = {}
    matched_origins: set[int] = set()
    for key in keys:
        origins = old_indexes.get(key, {})
        for value, index in indexes.get(key, {}).items():
            origin = origins.get(value, -1)
            if origin >= 0 and origin not in matched_origins and index not in source:
                source[index] = origin
                matched_origins.add(origin)
                names[index] = old_names[origin] = name_item(key, value)
    return KeyMatches(source, names, old_names)


def list_item_segments(items: Items, keys: tuple[str, ...]) -> list[str]:
    """Return the key path segment of each item, or "" for an item without a unique key."""
    indexes = _index_unique_values(_collect_key_values(items, keys))
    for key in keys:
        if len(indexes.get(key, ())) == len(items):
            return _make_segments(items, (key,), indexes)
    return _make_segments(items, keys, indexes)


def has_key(item: Json, keys: tuple[str, ...]) -> bool:
    """Return whether the item has a value for any of the keys."""
    return any(_get_key_value(item, key) is not None for key in keys)


def has_conflict(old: Json, new: Json, keys: tuple[str, ...]) -> bool:
    """Return whether two items differ in the first key field that both of them have."""
    for key in keys:
        old_value, new_value = _get_key_value(old, key), _get_key_value(new, key)
        if old_value is not None and new_value is not None:
            return old_value != new_value
    return False


def _collect_key_values(items: Items, keys: tuple[str, ...]) -> _KeyValues:
    """Return for each key field its values in all items. Leave out keys that no item has."""
    if dict not in set(map(type, items)):  # a shortcut for long lists of texts and numbers
        return {}
    values_by_key = {key: [_get_key_value(item, key) for item in items] for key in keys}
    return {
        key: values for key, values in values_by_key.items() if any(v is not None for v in values)
    }


def _get_key_value(item: Json, key: str) -> str | None:
    value = item.get(key) if type(item) is dict else None
    return str(value) if type(value) in (str, int) else None


def _index_unique_values(values: _KeyValues) -> _KeyIndexes:
    """Map each key field to its unique values, and each unique value to the index of its item."""
    indexes: _KeyIndexes = {}
    for key, item_values in values.items():
        counts = Counter(item_values)
        indexes[key] = {
            value: index
            for index, value in enumerate(item_values)
            if value is not None and counts[value] == 1
        }
    return indexes


def _make_segments(items: Items, keys: tuple[str, ...], indexes: _KeyIndexes) -> list[str]:
    names = [""] * len(items)
    for key in reversed(keys):
        for value, index in indexes.get(key, {}).items():
            names[index] = name_item(key, value)
    return names
