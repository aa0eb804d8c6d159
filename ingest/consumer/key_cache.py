"""A cache of bounded size, of the business keys that were stored last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")

# Entities of which a consumer remembers the business keys.
REMEMBERED = 30_000


class BoundedCache(Generic[Value]):
    """Keeps the values of at least the last `size` names, and at most twice as many."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._new: dict[str, Value] = {}
        self._old: dict[str, Value] = {}

    def get(self, name: str) -> Value | None:
        """The last value of a name; None if it is not in the cache."""
        found = self._new.get(name)
        return self._old.get(name) if found is None else found

    def update(self, values: Mapping[str, Value]) -> None:
        """Set the values of these names."""
        self._new.update(values)
        if len(self._new) >= self._size:
            self._old, self._new = self._new, {}
