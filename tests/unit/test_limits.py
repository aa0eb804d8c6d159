"""Limits for calls to the old service: the circuit breaker, and the size of an answer."""

import gzip
import tracemalloc
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.common import http_call
from history.timeline.fallback.client import FAILURES_TO_OPEN, PAUSE_SECONDS, CircuitBreaker
from tests.old_service import OldServiceServer


def open_breaker() -> CircuitBreaker:
    breaker = CircuitBreaker()
    for _ in range(FAILURES_TO_OPEN):
        assert breaker.allow_call(0)
        breaker.note_failure(0)
    return breaker


def test_circuit_breaker_opens_only_after_failures_in_a_row() -> None:
    breaker = CircuitBreaker()
    for _ in range(3):
        for _ in range(FAILURES_TO_OPEN - 1):
            breaker.note_failure(0)
        breaker.note_success()
    assert breaker.allow_call(0)
    assert not open_breaker().allow_call(0)


def test_open_circuit_breaker_allows_one_call_after_each_pause() -> None:
    breaker = open_breaker()
    assert not breaker.allow_call(PAUSE_SECONDS - 0.1)
    assert breaker.allow_call(PAUSE_SECONDS)
    assert not breaker.allow_call(PAUSE_SECONDS)
    breaker.note_failure(PAUSE_SECONDS)
    assert not breaker.allow_call(2 * PAUSE_SECONDS - 0.1)
    assert breaker.allow_call(2 * PAUSE_SECONDS)
    breaker.note_success()
    assert not breaker.is_open
    assert breaker.allow_call(0)
    assert breaker.allow_call(0)


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=60))
def test_service_that_is_down_gets_at_most_one_call_in_each_pause(
    steps: list[tuple[float, bool]],
) -> None:
    """Before the breaker opens, there are FAILURES_TO_OPEN calls."""
    breaker, now, calls = CircuitBreaker(), 0.0, 0
    for wait, _ in steps:
        now += wait
        if breaker.allow_call(now):
            calls += 1
            breaker.note_failure(now)
    assert calls <= FAILURES_TO_OPEN + now // PAUSE_SECONDS


BODIES = {"gzip": [gzip.compress(b" " * 10**8)], "identity": [b" " * 10**6] * 100}


@pytest.mark.parametrize("coding", BODIES)
def test_body_of_an_http_redirect_is_not_read(coding: str) -> None:
    def send_redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Encoding", coding)
        handler.end_headers()
        handler.wfile.writelines(BODIES[coding])

    with OldServiceServer(hostile=send_redirect) as server, http_call.HttpSession() as session:
        tracemalloc.start()
        try:
            with session.get(server.url, allow_redirects=False, stream=True, timeout=120) as answer:
                assert (answer.status_code, answer.is_redirect) == (302, True)
            assert tracemalloc.get_traced_memory()[1] < 20_000_000
        finally:
            tracemalloc.stop()
        assert len(server.requests) == 1
