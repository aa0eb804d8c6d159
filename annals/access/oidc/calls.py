"""One call to a provider: bounded in time and size, and never redirected."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Any, Final

import msgspec
import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from annals.access.oidc.providers import Provider

CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 1_048_576


class ProviderDownError(Exception):
    """The provider did not answer, or not as a provider does. Asking again later is right."""


class ProviderRefusesError(ProviderDownError):
    """The provider answers, and says that what it was asked for is wrong (400)."""


class _Deadline:
    """Shuts the sockets of this thread's call down when its time is over. A limit on each read does
    not do that: a provider that sends a byte every four seconds would hold a thread for days."""

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


def ask(provider: Provider, method: str, address: str, **options: Any) -> dict[str, Any]:
    """The JSON object that the provider answers. Raises ProviderDownError."""
    try:
        with _Deadline(CONNECT_SECONDS + READ_SECONDS), requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, _Adapter())
            with session.request(
                method,
                address,
                timeout=(CONNECT_SECONDS, READ_SECONDS),
                verify=str(provider.ca_file) if provider.ca_file else True,
                allow_redirects=False,
                stream=True,
                **options,
            ) as answer:
                body = b""
                for part in answer.iter_content(65_536):
                    body += part
                    if len(body) > LONGEST_ANSWER:
                        raise ProviderDownError(f"{address} answers too much")
                if answer.status_code == 400:
                    raise ProviderRefusesError(f"{address} answers 400")
                if answer.status_code != 200:
                    raise ProviderDownError(f"{address} answers {answer.status_code}")
                found = msgspec.json.decode(body)
    except (requests.RequestException, ValueError, RecursionError) as error:
        raise ProviderDownError(f"{address}: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ProviderDownError(f"{address} answers no JSON object")
    return found
