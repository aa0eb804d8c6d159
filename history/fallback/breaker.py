"""A circuit breaker: after failures in a row nobody calls for a while, then one call tries again.

Pure: the time comes from the caller.
"""

import threading
from typing import Final

FAILURES: Final = 3  # in a row, before it opens
PAUSE_SECONDS: Final = 15.0  # until one call tries again


class Breaker:
    """Closed: every call may go. Open: none. Half open, PAUSE_SECONDS later: one goes, and its
    outcome closes or opens it. Any thread may ask. now: seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._again: float | None = None  # None: closed
        self._probing = False

    @property
    def open(self) -> bool:
        """Whether calls are cut off; also while one call tries again."""
        return self._again is not None

    def allows(self, now: float) -> bool:
        """Whether a call may go now. Who is allowed reports `succeeded` or `failed`."""
        with self._lock:
            if self._again is None:
                return True
            if self._probing or now < self._again:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._failures, self._again, self._probing = 0, None, False

    def failed(self, now: float) -> None:
        with self._lock:
            self._failures += 1
            self._probing = False
            if self._again is not None or self._failures >= FAILURES:
                self._again = now + PAUSE_SECONDS
