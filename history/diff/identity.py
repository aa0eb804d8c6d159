"""Which field identifies a list item across snapshots."""

from dataclasses import dataclass, field
from functools import cached_property

from history.diff.path import split


@dataclass(frozen=True)
class Identity:
    """Key fields to try in order, for all lists and for lists at given places.

    `places`: (pattern, key fields) pairs; the first pattern that matches the list's pointer
    applies. `*` in a pattern matches any one segment, also an index (`/participants/*/documents`).
    An empty tuple of key fields means that items are matched by content.
    A key is usable for a list if every item on both sides is an object with a text or integer
    under that key, and no two items of one side share a value.
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
