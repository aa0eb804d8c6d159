"""Which field of a list item says that it is the same item in two snapshots."""

from dataclasses import dataclass, field
from functools import cached_property

from history.diff.path import split


@dataclass(frozen=True)
class Identity:
    """Key fields to try in order, for all lists and for those at given places.

    `places` are (pattern, key fields) pairs, the first that fits a list's pointer counts; `*` in a
    pattern stands for any one segment, list indexes included (`/participants/*/documents`). No key
    fields at all means: match the items of such lists by their content.
    A key counts for a list when every item of both sides is an object that has it, as text or as
    a whole number, and none has it twice.
    """

    keys: tuple[str, ...] = ("pid", "id")
    places: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())

    @cached_property
    def _places(self) -> list[tuple[list[str], tuple[str, ...]]]:
        return [(split(pattern), keys) for pattern, keys in self.places]

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
