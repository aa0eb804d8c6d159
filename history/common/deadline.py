"""The deadline of a request. Code that may run for a long time must call `check` often."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TooLongError(RuntimeError):
    """Raised if the work for a request takes longer than it may."""

    def __init__(self) -> None:
        super().__init__("the answer takes longer than a request may")


class RequestWork:
    """The work for one request.

    Attributes:
        until: The time.monotonic() at which the work must end.
        login: The login that made the request; None until it is known.
        expensive: Whether the work needs a place (history.common.worker_shares).
        has_place: Whether the work has a place now.
        on_check: A function that every deadline check calls, or None.
    """

    __slots__ = ("began", "expensive", "has_place", "login", "on_check", "until")

    def __init__(self, until: float = math.inf) -> None:
        self.until = until
        self.began = time.monotonic()
        self.login: object = None
        self.expensive = False
        self.has_place = False
        self.on_check: Callable[[], None] | None = None

    @property
    def seconds(self) -> float:
        """How many seconds the work has lasted so far."""
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until


_current: ContextVar[RequestWork | None] = ContextVar("work", default=None)


def get_current_work() -> RequestWork:
    """Return the work of the request that this thread answers.

    Outside of a request, return new work without a deadline.
    """
    return _current.get() or RequestWork()


@contextmanager
def run_as_work(work: RequestWork) -> Iterator[None]:
    """Let get_current_work() return `work` in this thread during the `with` block."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Check that the current request may go on. The check is cheap.

    Raises:
        TooLongError: The request has reached its deadline.
        Exception: Any error that `RequestWork.on_check` raises.
    """
    work = _current.get()
    if work is None:
        return
    if work.is_over:
        raise TooLongError
    if work.on_check is not None:
        work.on_check()


def find_overrun() -> TooLongError | None:
    """Return the error with which the current request must end, or None if it may go on."""
    return TooLongError() if get_current_work().is_over else None
