"""Serves the metrics of a consumer over HTTP. If a token is set, clients must send it."""

import hmac
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

Respond = Callable[[str, list[tuple[str, str]]], object]
Application = Callable[[dict[str, Any], Respond], Iterable[bytes]]

TEXT_HEADER = ("Content-Type", "text/plain; charset=utf-8")


def start_server(address: str, port: int, token: str | None) -> None:
    """Serve `/metrics` and `/healthz` in the background until the process ends.

    Args:
        address: The address to listen on.
        token: The Bearer token that a request for `/metrics` must have. Without it, the answer is
            403. None: no token is needed.

    Raises:
        OSError: The address or the port cannot be used.
    """
    application = _guard_metrics(make_wsgi_app(), token)
    server = make_server(address, port, application, _MetricsServer, _QuietRequestHandler)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()


class _MetricsServer(ThreadingMixIn, WSGIServer):
    """Answers each request in its own thread, so that a slow client does not delay the others."""

    daemon_threads = True


class _QuietRequestHandler(WSGIRequestHandler):
    timeout = 10  # seconds to wait for a client that sends nothing

    def log_message(self, *_: object) -> None:
        """Log nothing: every scrape would be a line."""


def _guard_metrics(metrics: Application, token: str | None) -> Application:
    """Return an application that refuses requests without the token, except for `/healthz`."""

    def answer(environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        if environ.get("PATH_INFO") == "/healthz":
            respond("200 OK", [TEXT_HEADER])
            return [b"ok\n"]
        sent_token = str(environ.get("HTTP_AUTHORIZATION", "")).removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(sent_token.encode(), token.encode()):
            respond("403 Forbidden", [TEXT_HEADER])
            return [b"The Bearer token is missing or wrong.\n"]
        return metrics(environ, respond)

    return answer
