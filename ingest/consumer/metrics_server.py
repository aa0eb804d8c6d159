"""Serves the metrics of a consumer over HTTP, to those who send the token."""

import hmac
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

Respond = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Respond], Iterable[bytes]]

PLAIN = ("Content-Type", "text/plain; charset=utf-8")


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own: a slow reader delays nobody."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10  # seconds, of a client that sends nothing

    def log_message(self, *_: object) -> None:
        """Write no line for each scrape."""


def start(address: str, port: int, token: str | None) -> None:
    """Serve `/metrics` and `/healthz` in the background until the process ends.

    Args:
        address: the address to listen on.
        token: the Bearer token without which `/metrics` answers 403; None: it is open.

    Raises:
        OSError: the address or the port cannot be used.
    """
    server = make_server(address, port, _guarded(make_wsgi_app(), token), _Server, _Quiet)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def _guarded(metrics: Application, token: str | None) -> Application:
    """Return an application that asks for the token, except for the answer that it lives."""

    def answer(environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/healthz":
            respond("200 OK", [PLAIN])
            return [b"ok\n"]
        given = str(environ.get("HTTP_AUTHORIZATION", "")).removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            respond("403 Forbidden", [PLAIN])
            return [b"The Bearer token is missing or wrong.\n"]
        return metrics(environ, respond)

    return answer
