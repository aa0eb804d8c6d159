"""Calls to other servers: bounded in time and size, and never redirected."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

CHUNK: Final = 65_536


class TooLargeError(Exception):
    """The answer is larger than it may be."""


class TokenError(Exception):
    """The file of a token has none, or cannot be read. The message quotes nothing of it."""


def token(file: Path) -> str:
    """The Bearer token in a file. Raises TokenError."""
    try:
        found = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        text = f"the file of the token cannot be read ({type(error).__name__})"
        raise TokenError(text) from None
    if not found or not found.isprintable() or " " in found:
        raise TokenError("the file of the token has no token")
    return found


class _Deadline:
    """Shuts the sockets of this thread's calls down when their time is over. A limit on each read
    does not do that: a server that sends a byte every four seconds would hold a thread for days."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._passed = False
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        _here.deadline = self
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        del _here.deadline
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()

    @property
    def passed(self) -> bool:
        return self._passed

    def watch(self, one: socket.socket) -> None:
        # A second descriptor of it: TLS takes the first one away.
        with self._lock:
            self._sockets.append(one.dup())
            passed = self._passed
        if passed:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._passed = True
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


_here = threading.local()


class _Plain(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        _here.deadline.watch(made)
        return made


class _Secure(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        made = super()._new_conn()
        _here.deadline.watch(made)
        return made


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        super().init_poolmanager(*given, **more)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, *given: Any, **more: Any) -> Any:
        manager = super().proxy_manager_for(*given, **more)
        manager.pool_classes_by_scheme = POOLS
        return manager


POOLS: Final = {"http": _PlainPool, "https": _SecurePool}


class _Session(requests.Session):
    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: requests reads the whole body of a redirect, however large, also of one that it is
        not to follow and of an answer that is to be streamed."""


@contextmanager
def session(seconds: float) -> Iterator[requests.Session]:
    """A session for calls of this thread; all of them together end after this time, with what
    requests raises for a connection that breaks."""
    with _Deadline(seconds), _Session() as opened:
        for scheme in ("http://", "https://"):
            opened.mount(scheme, _Adapter())
        yield opened


def body(answer: requests.Response, most: int) -> bytes:
    """The body of a streamed answer. Raises TooLargeError beyond this many bytes, and
    requests.Timeout if the time of the session is over: an answer without a length ends there."""
    found = bytearray()
    for part in answer.iter_content(CHUNK):
        found += part
        if len(found) > most:
            raise TooLargeError
    deadline: _Deadline | None = getattr(_here, "deadline", None)
    if deadline is not None and deadline.passed:
        raise requests.Timeout
    return bytes(found)
