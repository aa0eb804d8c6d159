"""The work for one request, and when it must end. Whatever can take long calls `check`
regularly.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TooLongError(RuntimeError):
    """The work takes longer than a request may, and ends here."""

    def __init__(self) -> None:
        super().__init__("the answer takes longer than a request may")


class RequestWork:
    """The work for one request.

    Attributes:
        until: The time.monotonic() at which it ends.
        login: Whose request it is, once that is known.
        expensive: Whether it has asked for a place among the expensive ones.
        placed: Whether it has such a place.
        also: Called at each deadline check.
    """

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
        """How long the work has lasted."""
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


_current: ContextVar[RequestWork | None] = ContextVar("work", default=None)


def get_current_work() -> RequestWork:
    """Return the work of this thread; a new one without an end if the thread answers no request."""
    return _current.get() or RequestWork()


@contextmanager
def run_as_work(work: RequestWork) -> Iterator[None]:
    """Run the block as this work, in this thread."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Check that the present request may go on. Cheap.

    Raises:
        TooLongError: It must end. `RequestWork.also` may raise other errors.
    """
    work = _current.get()
    if work is None:
        return
    if work.is_over:
        raise TooLongError
    if work.also is not None:
        work.also()


def find_overrun() -> TooLongError | None:
    """Return why the present request must end; None as long as it may go on."""
    return TooLongError() if get_current_work().is_over else None
