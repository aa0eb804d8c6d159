"""Decides when a topic partition has too many bad messages and its reading must stop: a wrong
release upstream must not move the whole topic to quarantine. Pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import repeat


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The limits: `consecutive` bad messages in a row, or `ratio` of the last `window` messages."""

    consecutive: int
    ratio: float
    window: int


@dataclass(slots=True)
class Breaker:
    """The last messages of one partition, good and bad."""

    tolerance: Tolerance
    _recent: deque[bool] = field(default_factory=deque)
    _bad: int = 0
    _row: int = 0

    def note(self, bad: bool) -> None:
        """Count one message."""
        self._recent.append(bad)
        self._bad += bad
        self._row = self._row + 1 if bad else 0
        if len(self._recent) > self.tolerance.window:
            self._bad -= self._recent.popleft()

    def note_good(self, count: int) -> None:
        """Count good messages. None of them trips the breaker."""
        if not count:
            return
        recent = self._recent
        recent.extend(repeat(False, count))
        self._row = 0
        for _ in range(len(recent) - self.tolerance.window):
            self._bad -= recent.popleft()

    def tripped(self) -> str | None:
        """Why reading must stop; None if it may continue."""
        if self._row >= self.tolerance.consecutive:
            return f"{self._row} bad messages in a row"
        full = len(self._recent) >= self.tolerance.window
        if full and self._bad >= self.tolerance.ratio * self.tolerance.window:
            return f"{self._bad} of the last {self.tolerance.window} messages are bad"
        return None
