"""Divides the threads and the places of one web process between logins.

Web processes need not coordinate. If a login has at most half of the places in each process, it
also has at most half of all places.
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

EXPENSIVE_PLACES: Final = 4  # a process has 16 threads
WAIT_S: Final = 2.0
# A request that has computed for this long counts as expensive, whatever it asks for.
MAX_CHEAP_S: Final = 0.1
# The most requests of one login at a time: half of the threads of a process.
MAX_REQUESTS_OF_LOGIN: Final = 8
# A request that has lasted longer may last much longer, so other requests do not wait for its end.
QUICK_S: Final = 1.0

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """Raised if a request is refused because too many requests run at once.

    Args:
        by_same_login: Whether requests of the same login are the reason.
    """

    def __init__(self, *, by_same_login: bool = False) -> None:
        super().__init__("too many expensive requests at once")
        self.by_same_login = by_same_login


class _Waiter:
    """A request that waits for a place. `called` is set when the request gets it or is refused."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self.has_place = False
        self.called = threading.Event()


class PlacePool:
    """A number of places for requests, and a fair queue of requests that wait for a place.

    The owner of a request is its login. An owner gets at most half of the places and half of the
    queue, even if the rest is free: a running request cannot be stopped when a different owner
    sends a request. A free place goes to the owner with the fewest places. If several owners have
    equally few, the request that has waited longest gets the place. If the queue is full, the pool
    refuses the newest request of the owner with the most requests.

    Args:
        size: How many requests can run at a time.
        waiting: How many requests can wait, each for at most `WAIT_S`; by default twice `size`.
    """

    def __init__(self, size: int, waiting: int | None = None) -> None:
        self._size = size
        self._waiting = 2 * size if waiting is None else waiting
        self._held: Counter[object] = Counter()
        self._queue: list[_Waiter] = []
        self._lock = threading.Lock()

    @property
    def queue_length(self) -> int:
        """How many requests are waiting now."""
        return len(self._queue)

    @contextmanager
    def take_place(self, owner: object = None) -> Iterator[None]:
        """Hold a place during the `with` block.

        Args:
            owner: The login for which the place is counted, or a different hashable object. Places
                are shared fairly between owners. None: the pool creates an owner for this request
                alone.

        Raises:
            BusyError: No place became free within `WAIT_S`. Or requests of this owner fill half of
                the queue. Or the queue is full, and this owner has the most requests.
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
                self._held += Counter()  # remove owners without places
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
        """Return how many running and waiting requests have the same owner as this request."""
        queued = sum(queued_waiter.owner == waiter.owner for queued_waiter in self._queue)
        return self._held[waiter.owner] + queued

    def _make_refusal(self, waiter: _Waiter) -> BusyError:
        return BusyError(by_same_login=self._held[waiter.owner] >= _compute_half(self._size))


class _SingleOwner:
    """The owner that a PlacePool creates for a single request if the caller names no owner."""


def _compute_half(number: int) -> int:
    """Return half of a number, rounded down, but at least 1 unless the number is 0."""
    return min(number, max(1, number // 2))


EXPENSIVE_POOL: Final = PlacePool(EXPENSIVE_PLACES)
# Requests without a login, for example for the API's documentation, share one owner.
_ANONYMOUS: Final = "nobody"
# The requests with a known login that this process answers now.
_answered_work: Final[set[RequestWork]] = set()
_work_ended: Final = threading.Condition()


@contextmanager
def take_expensive_place(is_expensive: bool = True) -> Iterator[None]:
    """Hold a place for expensive requests during the `with` block, if `is_expensive`.

    Raises:
        BusyError: No place became free within WAIT_S, or the queue is full. See PlacePool.
    """
    work = deadline.get_current_work()
    if not is_expensive or work.has_place:
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
        work.has_place = True
        try:
            yield
        finally:
            work.has_place = False


@contextmanager
def count_login_request(login: object) -> Iterator[None]:
    """Count the `with` block as a request of this login.

    A login can have MAX_REQUESTS_OF_LOGIN running requests. One more request waits until a running
    request of the login ends. So a program that sends many cheap requests in parallel gets all
    answers. The waiting request is refused if a running request of the login is expensive or has
    lasted QUICK_S, because a waiting request keeps a thread that could serve other logins.

    Raises:
        BusyError: The request is refused, after at most QUICK_S.
    """
    work = deadline.get_current_work()
    if work in _answered_work:  # this request is counted already
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
    """Take a place for expensive requests once the `with` block has computed for MAX_CHEAP_S.

    The time is measured from the first deadline check on, so earlier work, such as checking a
    password, does not count. If a deadline check finds that the time is over, the check takes the
    place. It raises BusyError if no place becomes free within WAIT_S.
    """
    until, earliest = math.inf, 0.0

    def measure() -> None:
        nonlocal until, earliest
        now = time.monotonic()
        if now < earliest:  # this is called often, and reading a thread's clock is a system call
            return
        computed = time.thread_time()
        if until == math.inf:
            until = computed + MAX_CHEAP_S
        elif computed >= until:
            work.on_check = None
            place.enter_context(take_expensive_place())
            return
        earliest = now + until - computed

    with ExitStack() as place:
        work.on_check = measure
        try:
            yield
        finally:
            work.on_check = None


def mark_expensive(view: Callable[P, R]) -> Callable[P, R]:
    """Decorate an expensive view, so that it holds a place while it runs."""

    @wraps(view)
    def run_in_share(*args: P.args, **kwargs: P.kwargs) -> R:
        with take_expensive_place():
            return view(*args, **kwargs)

    return run_in_share
