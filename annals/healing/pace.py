"""Pauses: between requests to a source, and after failures."""

from __future__ import annotations

import random
import time
from typing import Final

FIRST_PAUSE_SECONDS: Final = 60
LONGEST_PAUSE_SECONDS: Final = 6 * 3_600


class Pace:
    """No more requests per second than this."""

    def __init__(self, per_second: float) -> None:
        self._each = 1 / per_second
        self._next = time.monotonic()

    def wait(self) -> None:
        """Wait until the next request may go."""
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(now, self._next) + self._each


def pause(attempts: int) -> float:
    """Seconds until the next attempt after so many failures in a row: longer each time, and never
    all at the same moment."""
    most = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 20), LONGEST_PAUSE_SECONDS)
    return most * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
