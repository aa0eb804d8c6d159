"""The share of a web process for expensive requests: those that read or compute much."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from history import metrics
from history.requests import deadline
from history.requests.deadline import Work

AT_ONCE: Final = 4  # of the 16 threads of a process
WAIT_S: Final = 2.0
# A question that has computed for this long is expensive, whatever it asks: sizes differ.
CHEAP_S: Final = 0.1
# Requests of a login that asks expensive questions, half of the threads of a process.
MOST_BESIDE: Final = 8

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """Other requests that are as expensive are being answered."""

    def __init__(self) -> None:
        super().__init__("too many expensive requests at once")


class Share:
    """At most `size` at a time; `waiting` more (unset: twice as many) wait, for WAIT_S at most."""

    def __init__(self, size: int, waiting: int | None = None) -> None:
        places = size + (2 * size if waiting is None else waiting)
        self._running = threading.Semaphore(size)
        self._inside = threading.Semaphore(places)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The block is one of those that run. Raises BusyError."""
        if not self._inside.acquire(blocking=False):
            raise BusyError
        try:
            if not self._running.acquire(timeout=WAIT_S):
                raise BusyError
            try:
                yield
            finally:
                self._running.release()
        finally:
            self._inside.release()


_share: Final = Share(AT_ONCE)
# What this process answers for logins at the moment.
_answered: Final[set[Work]] = set()
_counting: Final = threading.Lock()


@contextmanager
def expensive(really: bool = True) -> Iterator[None]:
    """The block answers an expensive question, really or not.

    Raises BusyError, after WAIT_S at most."""
    work = deadline.current()
    if not really or work.placed:
        yield
        return
    with ExitStack() as place:
        try:
            place.enter_context(_share.taken())
        except BusyError:
            metrics.EXPENSIVE_REFUSED.inc()
            raise
        work.placed = True
        try:
            yield
        finally:
            work.placed = False


@contextmanager
def of_login(login: object) -> Iterator[None]:
    """The block answers a request of this login. Raises BusyError at once where the login has
    MOST_BESIDE requests, and a place: what it asks now is likely to be expensive too, and would
    keep a thread from others until that is known."""
    work = deadline.current()
    with _counting:
        its = [each for each in _answered if each.login == login]
        if len(its) >= MOST_BESIDE and any(each.placed for each in its):
            metrics.LOGIN_REFUSED.inc()
            raise BusyError
        work.login = login
        _answered.add(work)
    try:
        yield
    finally:
        with _counting:
            _answered.discard(work)


@contextmanager
def metered(work: Work) -> Iterator[None]:
    """The block is expensive from the check on at which it has computed for CHEAP_S since the first
    one; that check then raises BusyError, after WAIT_S at most. What comes before the first one,
    a password for example, does not count."""
    until, earliest = math.inf, 0.0

    def look() -> None:
        nonlocal until, earliest
        now = time.monotonic()
        if now < earliest:  # asked often, and the clock of a thread is a call of the system
            return
        computed = time.thread_time()
        if until == math.inf:
            until = computed + CHEAP_S
        elif computed >= until:
            work.also = None
            place.enter_context(expensive())
            return
        earliest = now + until - computed

    with ExitStack() as place:
        work.also = look
        try:
            yield
        finally:
            work.also = None


def expensive_view(view: Callable[P, R]) -> Callable[P, R]:
    """A view that answers expensive questions."""

    @wraps(view)
    def shared(*args: P.args, **kwargs: P.kwargs) -> R:
        with expensive():
            return view(*args, **kwargs)

    return shared
