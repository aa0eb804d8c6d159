"""One request as the server knows it: when it arrived, and whether its client is still there."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Final

# In the WSGI environment: the Visit of the request.
VISIT: Final = "annals.visit"


class Visit:
    """arrived: the time.monotonic() at which the request was complete. until: the one at which the
    connection is closed if the answer is not computed by then."""

    def __init__(self) -> None:
        self.arrived = time.monotonic()
        self.until = math.inf
        self._left = False
        self._tell: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def leave(self) -> None:
        """The client has closed the connection. Called by the server's loop; does not wait."""
        with self._lock:
            self._left = True
            tell = self._tell
        if tell is not None:
            tell()

    def when_left(self, tell: Callable[[], None] | None) -> None:
        """Call this once the client has left, at once if it already has; None: no longer."""
        with self._lock:
            self._tell = tell
            left = self._left
        if left and tell is not None:
            tell()
