"""A bounded memory of what was done lately, so that it need not be done again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Recent:
    """Remembers at least the last `size` things and at most twice as many."""

    def __init__(self, size: int = 20_000) -> None:
        self._size = size
        self._new: set[Hashable] = set()
        self._old: set[Hashable] = set()

    def __contains__(self, thing: object) -> bool:
        return thing in self._new or thing in self._old

    def update(self, things: Iterable[Hashable]) -> None:
        """Remember these."""
        self._new.update(things)
        if len(self._new) >= self._size:
            self._old, self._new = self._new, set()
