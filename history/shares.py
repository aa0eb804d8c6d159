"""The share of a web process that dear requests may take, so that cheap ones are always answered.

Dear is what reads many versions for one answer. Passwords have a share of their own
(annals.access.passwords), and so have logins at a provider (annals.access.oidc.discovery).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from django.conf import settings

from history import metrics

WAIT_S: Final = 2.0

P = ParamSpec("P")
R = TypeVar("R")


class BusyError(RuntimeError):
    """Other requests that are as dear are being answered."""

    def __init__(self) -> None:
        super().__init__("too many dear requests at once")


class Share:
    """At most `size` at a time; `waiting` more (unset: twice as many) wait, for WAIT_S at most."""

    def __init__(self, size: int, waiting: int | None = None) -> None:
        self._running = threading.Semaphore(size)
        self._inside = threading.Semaphore(size + (2 * size if waiting is None else waiting))

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


@contextmanager
def dear(really: bool = True) -> Iterator[None]:
    """The block answers a dear question, really or not. Raises BusyError, after WAIT_S at most."""
    if not really:
        yield
        return
    with _counted(), _share.taken():
        yield


def dear_view(view: Callable[P, R]) -> Callable[P, R]:
    """A view that answers dear questions."""

    @wraps(view)
    def shared(*args: P.args, **kwargs: P.kwargs) -> R:
        with dear():
            return view(*args, **kwargs)

    return shared


@contextmanager
def download() -> Iterator[None]:
    """The block answers with a file, which lasts as long as its reader is slow. Raises BusyError,
    after WAIT_S at most."""
    with _counted(), _downloads.taken():
        yield


@contextmanager
def _counted() -> Iterator[None]:
    try:
        yield
    except BusyError:
        metrics.DEAR_REFUSED.inc()
        raise
