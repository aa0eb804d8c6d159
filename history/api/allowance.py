"""Rate limits in memory: one number for each key, and what an answer says about it."""

import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

MINUTE = 60.0
REMEMBERED = 10_000
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of an allowance. wait: seconds until the next request may come, 0 for now;
    reset: seconds until the whole allowance is available again."""

    limit: int
    remaining: int
    reset: int
    wait: int

    @property
    def headers(self) -> dict[str, str]:
        """Plain numbers, as drafts 00 to 06 of the IETF and most servers have them."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }


class Allowances:
    """Some requests a minute for each key; they may come at once. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._full_at: dict[Hashable, float] = {}

    def take(self, key: Hashable, limit: int) -> Left:
        """Use one request of `limit` a minute. With `wait` above 0 it is refused, and costs
        nothing. Seconds are rounded up, so who waits `wait` seconds is not refused again."""
        with self._lock:
            now = self._clock()
            full_at = max(self._full_at.pop(key, now), now)
            left = _left(limit, full_at - now)
            if not left.wait:
                full_at += MINUTE / limit
                left = _left(limit, full_at - now, wait=0)
            self._forget(now)
            self._full_at[key] = full_at
        return left

    def look(self, key: Hashable, limit: int) -> Left:
        """What take() would find, and nothing is used."""
        now = self._clock()
        return _left(limit, max(self._full_at.get(key, now) - now, 0.0))

    def clear(self) -> None:
        """Give everybody the whole allowance."""
        self._full_at.clear()

    def _forget(self, now: float) -> None:
        """The oldest ones that have everything again, or for which there is no room."""
        for key, full_at in list(itertools.islice(self._full_at.items(), 2)):
            if full_at > now and len(self._full_at) < REMEMBERED:
                return
            del self._full_at[key]


def _left(limit: int, used: float, wait: int | None = None) -> Left:
    """used: seconds until the whole allowance is available again."""
    step = MINUTE / limit
    return Left(
        limit=limit,
        remaining=max(0, math.floor((MINUTE - used) / step + ROUNDING)),
        reset=math.ceil(used - ROUNDING),
        wait=max(0, math.ceil(used + step - MINUTE - ROUNDING)) if wait is None else wait,
    )
