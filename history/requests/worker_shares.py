"""How the threads of one web process are shared between logins.

Each limit holds in each process alone, with no word between processes: a login that has at most
half of the places of every process has at most half of all places.
"""

import math
import threading
import time
from collections import Counter
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
# Requests of one login at a time, half of the threads of a process.
MOST_BESIDE: Final = 8
# A request that has lasted this long may last much longer, so no other one waits for its thread.
QUICK_S: Final = 1.0

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """A request has no place among those that are being answered.

    Args:
        own: Whether the same login has all places that one login may have.
    """

    def __init__(self, *, own: bool = False) -> None:
        super().__init__("too many expensive requests at once")
        self.own = own


class _Waiter:
    """A request that waits for a place. `called` is set when it has one, or is refused one."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.has_place = False
        self.called = threading.Event()


class Share:
    """Places that are taken for the time of a block, and a fair queue for them.

    An owner has at most half of the places and half of the queue, also while nobody else wants
    them: a block cannot be stopped when another owner comes. The next place goes to the owner with
    the fewest, and among equal ones to the request that waits longest. A full queue makes room for
    an owner with fewer requests: it refuses the newest one of the owner with most.

    Args:
        size: Blocks that run at a time.
        waiting: Blocks that wait, each for `WAIT_S` at most; by default twice as many as run.
    """

    def __init__(self, size: int, waiting: int | None = None) -> None:
        self._size = size
        self._waiting = 2 * size if waiting is None else waiting
        self._held: Counter[object] = Counter()
        self._queue: list[_Waiter] = []
        self._lock = threading.Lock()

    @property
    def queued(self) -> int:
        """How many blocks wait now."""
        return len(self._queue)

    @contextmanager
    def taken(self, owner: object = None) -> Iterator[None]:
        """Run the block on a place of this owner. None: an owner of its own.

        Raises:
            BusyError: at once if the queue has no room, otherwise after `WAIT_S` at most.
        """
        waiter = _Waiter(_Alone() if owner is None else owner)
        self._join(waiter)
        waiter.called.wait(WAIT_S)
        with self._lock:
            if not waiter.has_place:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                raise self._refusal(waiter)
        try:
            yield
        finally:
            with self._lock:
                self._held[waiter.owner] -= 1
                self._held += Counter()  # forget owners that have none
                self._give_places()

    def _join(self, waiter: _Waiter) -> None:
        with self._lock:
            self._queue.append(waiter)
            self._give_places()
            if waiter.has_place:
                return
            own = sum(other.owner == waiter.owner for other in self._queue)
            if own > _half(self._waiting):
                self._queue.remove(waiter)
                raise BusyError(own=own > 1 or self._refusal(waiter).own)
            if len(self._queue) > self._waiting:
                refused = max(reversed(self._queue), key=self._count)
                self._queue.remove(refused)
                refused.called.set()
                if refused is waiter:
                    raise self._refusal(waiter)

    def _give_places(self) -> None:
        while self._held.total() < self._size:
            most = _half(self._size)
            ready = [waiter for waiter in self._queue if self._held[waiter.owner] < most]
            if not ready:
                return
            waiter = min(ready, key=lambda waiter: self._held[waiter.owner])
            self._queue.remove(waiter)
            self._held[waiter.owner] += 1
            waiter.has_place = True
            waiter.called.set()

    def _count(self, waiter: _Waiter) -> int:
        """Return how many requests the owner has, on places and in the queue."""
        queued = sum(other.owner == waiter.owner for other in self._queue)
        return self._held[waiter.owner] + queued

    def _refusal(self, waiter: _Waiter) -> BusyError:
        return BusyError(own=self._held[waiter.owner] >= _half(self._size))


class _Alone:
    """The owner of one block."""


def _half(number: int) -> int:
    """Return half of the places, at least one where there is any."""
    return min(number, max(1, number // 2))


_share: Final = Share(AT_ONCE)
# Requests without a login, for example to the documents of the API, count as one login.
_NOBODY: Final = "nobody"
# What this process answers for logins at the moment.
_answered: Final[set[Work]] = set()
_ended: Final = threading.Condition()


@contextmanager
def expensive(really: bool = True) -> Iterator[None]:
    """The block answers an expensive question, really or not.

    Raises BusyError, after WAIT_S at most."""
    work = deadline.current()
    if not really or work.placed:
        yield
        return
    work.expensive = True
    with ExitStack() as place:
        try:
            place.enter_context(_share.taken(_NOBODY if work.login is None else work.login))
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
    """Count the block as a request of this login, which has at most MOST_BESIDE at a time.

    A further one waits while all of these are quick: a program that asks many cheap questions in
    parallel gets all its answers. It is refused at once if one of them is expensive or has lasted
    for QUICK_S, because the threads that wait for it would be missing for others.

    Raises:
        BusyError: after QUICK_S at most.
    """
    work = deadline.current()
    if work in _answered:  # the block is part of a counted request
        yield
        return
    with _ended:
        while len(others := [other for other in _answered if other.login == login]) >= MOST_BESIDE:
            left = QUICK_S - max(other.seconds for other in others)
            if left <= 0 or any(other.expensive for other in others):
                metrics.LOGIN_REFUSED.inc()
                raise BusyError(own=True)
            _ended.wait(left)
        work.login = login
        _answered.add(work)
    try:
        yield
    finally:
        with _ended:
            _answered.discard(work)
            _ended.notify_all()


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
