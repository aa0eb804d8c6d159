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
from history.common import deadline
from history.common.deadline import RequestWork

EXPENSIVE_PLACES: Final = 4  # of the 16 threads of a process
WAIT_S: Final = 2.0
# A question that has computed for this long is expensive, whatever it asks: sizes differ.
MAX_CHEAP_S: Final = 0.1
# Requests of one login at a time, half of the threads of a process.
MAX_REQUESTS_OF_LOGIN: Final = 8
# A request that has lasted this long may last much longer, so no other one waits for its thread.
QUICK_S: Final = 1.0

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """Raised for a request that does not get a place among the expensive requests.

    Args:
        by_same_login: Whether the same login has all places that one login may have.
    """

    def __init__(self, *, by_same_login: bool = False) -> None:
        super().__init__("too many expensive requests at once")
        self.by_same_login = by_same_login


class _Waiter:
    """A request that waits for a place. `called` is set when it has one, or is refused one."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.has_place = False
        self.called = threading.Event()


class PlacePool:
    """Places that are taken for the time of a block, and a fair queue for them.

    An owner has at most half of the places and half of the queue, also while they are free: a block
    cannot be stopped when another owner comes. The next place goes to the owner with the fewest
    places, and among equal ones to the request that waits longest. A full queue makes room for an
    owner with fewer requests: it refuses the newest request of the owner with most.

    Args:
        size: How many blocks run at a time.
        waiting: How many blocks wait, each for `WAIT_S` at most; by default twice as many as run.
    """

    def __init__(self, size: int, waiting: int | None = None) -> None:
        self._size = size
        self._waiting = 2 * size if waiting is None else waiting
        self._held: Counter[object] = Counter()
        self._queue: list[_Waiter] = []
        self._lock = threading.Lock()

    @property
    def count_queued(self) -> int:
        """How many blocks wait now."""
        return len(self._queue)

    @contextmanager
    def take_place(self, owner: object = None) -> Iterator[None]:
        """Run the block on a place of this owner. None: an owner of its own.

        Raises:
            BusyError: At once if the queue is full, otherwise after `WAIT_S` at most.
        """
        waiter = _Waiter(_SingleOwner() if owner is None else owner)
        self._join_queue(waiter)
        waiter.called.wait(WAIT_S)
        with self._lock:
            if not waiter.has_place:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                raise self._make_refusal(waiter)
        try:
            yield
        finally:
            with self._lock:
                self._held[waiter.owner] -= 1
                self._held += Counter()  # forget owners that have none
                self._give_places()

    def _join_queue(self, waiter: _Waiter) -> None:
        with self._lock:
            self._queue.append(waiter)
            self._give_places()
            if waiter.has_place:
                return
            owner_queued = sum(queued_waiter.owner == waiter.owner for queued_waiter in self._queue)
            if owner_queued > _compute_half(self._waiting):
                self._queue.remove(waiter)
                raise BusyError(
                    by_same_login=owner_queued > 1 or self._make_refusal(waiter).by_same_login
                )
            if len(self._queue) > self._waiting:
                refused = max(reversed(self._queue), key=self._count_of_owner)
                self._queue.remove(refused)
                refused.called.set()
                if refused is waiter:
                    raise self._make_refusal(waiter)

    def _give_places(self) -> None:
        while self._held.total() < self._size:
            max_of_owner = _compute_half(self._size)
            ready_waiters = [
                waiter for waiter in self._queue if self._held[waiter.owner] < max_of_owner
            ]
            if not ready_waiters:
                return
            waiter = min(ready_waiters, key=lambda waiter: self._held[waiter.owner])
            self._queue.remove(waiter)
            self._held[waiter.owner] += 1
            waiter.has_place = True
            waiter.called.set()

    def _count_of_owner(self, waiter: _Waiter) -> int:
        """Return how many requests the owner has, on places and in the queue."""
        queued = sum(queued_waiter.owner == waiter.owner for queued_waiter in self._queue)
        return self._held[waiter.owner] + queued

    def _make_refusal(self, waiter: _Waiter) -> BusyError:
        return BusyError(by_same_login=self._held[waiter.owner] >= _compute_half(self._size))


class _SingleOwner:
    """The owner of one block."""


def _compute_half(number: int) -> int:
    """Return half of the places, at least one where there is any."""
    return min(number, max(1, number // 2))


EXPENSIVE_POOL: Final = PlacePool(EXPENSIVE_PLACES)
# Requests without a login, for example to the documents of the API, count as one login.
_ANONYMOUS: Final = "nobody"
# The requests of logins that this process answers at the moment.
_answered_work: Final[set[RequestWork]] = set()
_work_ended: Final = threading.Condition()


@contextmanager
def take_expensive_place(is_expensive: bool = True) -> Iterator[None]:
    """Take a place for the block, if it answers an expensive question.

    Raises:
        BusyError: No place became free in WAIT_S.
    """
    work = deadline.get_current_work()
    if not is_expensive or work.placed:
        yield
        return
    work.expensive = True
    with ExitStack() as place:
        try:
            place.enter_context(
                EXPENSIVE_POOL.take_place(_ANONYMOUS if work.login is None else work.login)
            )
        except BusyError:
            metrics.EXPENSIVE_REFUSED.inc()
            raise
        work.placed = True
        try:
            yield
        finally:
            work.placed = False


@contextmanager
def count_login_request(login: object) -> Iterator[None]:
    """Count the block as a request of this login, which has at most MOST_BESIDE at a time.

    A further one waits while all of these are quick: a program that asks many cheap questions in
    parallel gets all its answers. It is refused at once if one of them is expensive or has lasted
    for QUICK_S, because the threads that wait for it would be missing for others.

    Raises:
        BusyError: after QUICK_S at most.
    """
    work = deadline.get_current_work()
    if work in _answered_work:  # the block is part of a counted request
        yield
        return
    with _work_ended:
        while (
            len(
                login_work := [
                    request_work for request_work in _answered_work if request_work.login == login
                ]
            )
            >= MAX_REQUESTS_OF_LOGIN
        ):
            seconds_left = QUICK_S - max(request_work.seconds for request_work in login_work)
            if seconds_left <= 0 or any(request_work.expensive for request_work in login_work):
                metrics.LOGIN_REFUSED.inc()
                raise BusyError(by_same_login=True)
            _work_ended.wait(seconds_left)
        work.login = login
        _answered_work.add(work)
    try:
        yield
    finally:
        with _work_ended:
            _answered_work.discard(work)
            _work_ended.notify_all()


@contextmanager
def meter_cost(work: RequestWork) -> Iterator[None]:
    """Measure what the block computes, and take a place once it has computed for MAX_CHEAP_S.

    The time counts from the first deadline check on, so a password for example does not count. The
    check at which the time is over raises BusyError if no place becomes free in WAIT_S.
    """
    until, earliest = math.inf, 0.0

    def look() -> None:
        nonlocal until, earliest
        now = time.monotonic()
        if now < earliest:  # asked often, and the clock of a thread is a call of the system
            return
        computed = time.thread_time()
        if until == math.inf:
            until = computed + MAX_CHEAP_S
        elif computed >= until:
            work.also = None
            place.enter_context(take_expensive_place())
            return
        earliest = now + until - computed

    with ExitStack() as place:
        work.also = look
        try:
            yield
        finally:
            work.also = None


def mark_expensive(view: Callable[P, R]) -> Callable[P, R]:
    """Decorate an expensive view: it takes a place before it runs."""

    @wraps(view)
    def run_in_share(*args: P.args, **kwargs: P.kwargs) -> R:
        with take_expensive_place():
            return view(*args, **kwargs)

    return run_in_share
