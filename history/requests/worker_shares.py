"""The share of a web process for dear requests: those that read or compute much."""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from django.conf import settings

from history import metrics
from history.requests.deadline import Deadline

WAIT_S: Final = 2.0
# A question that has computed for this long is dear, whatever it asks: documents differ in size.
CHEAP_S: Final = 0.1
# Requests of a login that asks dear questions, half of the threads of a process.
MOST_BESIDE: Final = 8
# Places of a login from which on all that it asks needs one, as its cost is known too late.
FEW: Final = 2

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """Other requests that are as dear are being answered."""

    def __init__(self) -> None:
        super().__init__("too many dear requests at once")


class Share:
    """At most `size` at a time; `waiting` more (unset: twice as many) wait, for WAIT_S at most."""

    def __init__(self, size: int, waiting: int | None = None) -> None:
        self.places = size + (2 * size if waiting is None else waiting)
        self._running = threading.Semaphore(size)
        self._inside = threading.Semaphore(self.places)

    @property
    def full(self) -> bool:
        """Whether one more would be refused at once."""
        if not self._inside.acquire(blocking=False):
            return True
        self._inside.release()
        return False

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


_share: Final = Share(settings.ANNALS.dear_requests)
_downloads: Final = Share(1, 1)
# Whether the request of this thread has a place, and whose it is.
_placed: Final[ContextVar[bool]] = ContextVar("placed", default=False)
_login: Final[ContextVar[object]] = ContextVar("login", default=None)
# The places that each login has, those that wait included; and the requests that it has.
_taken: Final[Counter[object]] = Counter()
_asked: Final[Counter[object]] = Counter()
_counting: Final = threading.Lock()


@contextmanager
def dear(really: bool = True) -> Iterator[None]:
    """The block answers a dear question, really or not. Raises BusyError, after WAIT_S at most."""
    if not really or _placed.get():
        yield
        return
    login = _login.get()
    _count(_taken, login, 1)
    try:
        with _counted(), _share.taken():
            token = _placed.set(True)
            try:
                yield
            finally:
                _placed.reset(token)
    finally:
        _count(_taken, login, -1)


def _count(those: Counter[object], login: object, more: int) -> None:
    with _counting:
        those[login] += more
        if not those[login]:
            del those[login]


@contextmanager
def of_login(login: object) -> Iterator[None]:
    """The block answers a request of this login, with a place where the login has FEW. Raises
    BusyError, after WAIT_S at most; at once where the login has a place and MOST_BESIDE requests,
    or most of the places and all are taken: what it asks now is likely to be dear too, and would
    keep a thread from others until that is known."""
    many = _taken[login] and _asked[login] >= MOST_BESIDE
    if many or (2 * _taken[login] > _share.places and _share.full):
        metrics.LOGIN_REFUSED.inc()
        raise BusyError
    _count(_asked, login, 1)
    token = _login.set(login)
    try:
        with dear(_taken[login] >= FEW):
            yield
    finally:
        _login.reset(token)
        _count(_asked, login, -1)


@contextmanager
def metered(limit: Deadline) -> Iterator[None]:
    """The block is dear from the check of its deadline on at which it has computed for CHEAP_S
    since the first check; that check then raises BusyError, after WAIT_S at most. What comes before
    the first one, a password for example, does not count."""
    until = math.inf

    def look() -> None:
        nonlocal until
        now = time.thread_time()
        if until == math.inf:
            until = now + CHEAP_S
        elif now >= until:
            limit.also = None
            place.enter_context(dear())

    with ExitStack() as place:
        limit.also = look
        try:
            yield
        finally:
            limit.also = None


def dear_view(view: Callable[P, R]) -> Callable[P, R]:
    """A view that answers dear questions."""

    @wraps(view)
    def shared(*args: P.args, **kwargs: P.kwargs) -> R:
        with dear():
            return view(*args, **kwargs)

    return shared


@contextmanager
def download() -> Iterator[None]:
    """The block answers with a file, however slowly. Raises BusyError after WAIT_S."""
    with _counted(), _downloads.taken():
        yield


@contextmanager
def _counted() -> Iterator[None]:
    try:
        yield
    except BusyError:
        metrics.DEAR_REFUSED.inc()
        raise
