"""How long the work for one request may go on. Whatever can take long asks `check` now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TooLongError(RuntimeError):
    """It takes longer than a request may: the work for it ends here."""

    def __init__(self) -> None:
        super().__init__("the answer takes longer than a request may")


class Deadline:
    """at: the time.monotonic() at which the work ends. also: called at each check."""

    __slots__ = ("also", "at")

    def __init__(self, at: float) -> None:
        self.at = at
        self.also: Callable[[], None] | None = None

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.at


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
    """Raises TooLongError if the present request must end, and what Deadline.also raises. Cheap."""
    current = _current.get()
    if current is None:
        return
    if current.over:
        raise TooLongError
    if current.also is not None:
        current.also()


def reason() -> TooLongError | None:
    """Why the present request must end; None as long as it may go on."""
    current = _current.get()
    return TooLongError() if current is not None and current.over else None
