"""A bounded memory of what was done lately, so that it need not be done again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """Remembers what it was told last about at least `size` names, and at most twice as many."""

    def __init__(self, size: int = 30_000) -> None:
        self._size = size
        self._new: dict[str, Value] = {}
        self._old: dict[str, Value] = {}

    def get(self, name: str) -> Value | None:
        """What was told about a name; None where it is not remembered."""
        found = self._new.get(name)
        return self._old.get(name) if found is None else found

    def update(self, told: Mapping[str, Value]) -> None:
        """Remember these."""
        self._new.update(told)
        if len(self._new) >= self._size:
            self._old, self._new = self._new, {}
