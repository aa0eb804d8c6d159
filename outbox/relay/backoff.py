"""How long to wait after a failure: twice as long each time, up to a limit, with jitter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from random import SystemRandom

_RANDOM = SystemRandom()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds. Half of a pause is random, so that what failed together is not repeated
    together."""

    first: float
    most: float

    def pause(self, attempts: int) -> float:
        """The pause after this many failures in a row, one or more."""
        # 2 to the 60th is longer than any limit, and does not overflow.
        longest = min(self.most, self.first * 2.0 ** min(attempts - 1, 60))
        return longest * _RANDOM.uniform(0.5, 1)
