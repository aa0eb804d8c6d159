"""How long the work for one request may go on. Whatever can take long asks `check` now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class StoppedError(RuntimeError):
    """The work for this request ends here."""


class TooLongError(StoppedError):
    """It takes longer than a request may."""

    def __init__(self) -> None:
        super().__init__("the answer takes longer than a request may")


class ClientLeftError(StoppedError):
    """The client has closed its connection: nobody reads the answer."""

    def __init__(self) -> None:
        super().__init__("the client has closed the connection")


class Deadline:
    """at: the time.monotonic() at which the work ends. Another thread may stop it earlier.
    also: called at each check, in the thread that works."""

    __slots__ = ("_why", "also", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self.also: Callable[[], None] | None = None
        self._why: type[StoppedError] | None = None

    def stop(self, why: type[StoppedError]) -> None:
        """End the work at its next check. The first reason counts."""
        self._why = self._why or why

    @property
    def why(self) -> type[StoppedError] | None:
        """Why the work must end; None as long as it may go on."""
        if self._why is None and time.monotonic() >= self.at:
            self._why = TooLongError
        return self._why


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def limited(deadline: Deadline) -> Iterator[None]:
    """The block, in this thread, has this deadline."""
    token = _current.set(deadline)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Raises StoppedError if the present request must end, and what Deadline.also raises. Cheap;
    does nothing where no request is."""
    current = _current.get()
    if current is None:
        return
    if current.why is not None:
        raise current.why()
    if current.also is not None:
        current.also()


def reason() -> StoppedError | None:
    """Why the present request must end; None as long as it may go on."""
    current = _current.get()
    why = current.why if current else None
    return why() if why else None
