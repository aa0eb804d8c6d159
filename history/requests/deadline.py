"""The work for one request, and when it ends. Whatever can take long asks `check` now and then."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TooLongError(RuntimeError):
    """It takes longer than a request may: the work for it ends here."""

    def __init__(self) -> None:
        super().__init__("the answer takes longer than a request may")


class Work:
    """until: the time.monotonic() at which it ends. login: whose request it is, once that is known.
    expensive: whether it has asked for a place among the expensive ones; placed: whether it has
    one. also: called at each check."""

    __slots__ = ("also", "began", "expensive", "login", "placed", "until")

    def __init__(self, until: float = math.inf) -> None:
        self.until = until
        self.began = time.monotonic()
        self.login: object = None
        self.expensive = False
        self.placed = False
        self.also: Callable[[], None] | None = None

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until


_current: ContextVar[Work | None] = ContextVar("work", default=None)


def current() -> Work:
    """The work of this thread; a new one without an end where it answers no request."""
    return _current.get() or Work()


@contextmanager
def limited(work: Work) -> Iterator[None]:
    """The block, in this thread, is this work."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Raises TooLongError if the present request must end, and what Work.also raises. Cheap."""
    work = _current.get()
    if work is None:
        return
    if work.over:
        raise TooLongError
    if work.also is not None:
        work.also()


def reason() -> TooLongError | None:
    """Why the present request must end; None as long as it may go on."""
    return TooLongError() if current().over else None
