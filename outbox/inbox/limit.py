"""A time limit for handlers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimit(BaseException):
    """An attempt took too long. No Exception, so that no handler takes it for one of its own."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TimeLimit in the block after so many seconds. Python looks at signals between its own
    instructions, in the main thread only: elsewhere the limit is PostgreSQL's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_: int, __: FrameType | None) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
