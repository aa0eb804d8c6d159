"""A server that one asks costs no more memory than its answer may have."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from history.base import http_call
from tests.old_service import OldService

MEGABYTE = 1_000_000
BOMB = gzip.compress(b" " * 100 * MEGABYTE)


def compressed(handler: BaseHTTPRequestHandler) -> None:
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    handler.wfile.write(BOMB)


def long(handler: BaseHTTPRequestHandler) -> None:
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" " * MEGABYTE)


@pytest.mark.parametrize("rest", [compressed, long])
def test_the_body_of_a_redirect_is_not_read(rest: Callable[[BaseHTTPRequestHandler], None]) -> None:
    def redirects(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/elsewhere")
        rest(handler)

    with OldService(hostile=redirects) as server, http_call.session(20) as session:
        tracemalloc.start()
        try:
            with session.get(server.url, allow_redirects=False, stream=True, timeout=20) as answer:
                assert (answer.status_code, answer.is_redirect) == (302, True)
            assert tracemalloc.get_traced_memory()[1] < 20 * MEGABYTE
        finally:
            tracemalloc.stop()
        assert len(server.asked) == 1
