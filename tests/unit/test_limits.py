"""Limits: of requests, of calls of an old service that is down, of the bytes of an answer."""

import gzip
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.api import allowance
from history.api.allowance import Allowances
from history.base import http_call
from history.fallback.breaker import FAILURES, PAUSE_SECONDS, Breaker
from tests.old_service import OldService


class Clock:
    """A time that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_all_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    allowances = Allowances(clock)
    taken = [allowances.take("a", 3) for _ in range(4)]
    assert [each.remaining for each in taken] == [2, 1, 0, 0]
    assert [each.reset for each in taken] == [20, 40, 60, 60]
    assert [each.wait for each in taken] == [0, 0, 0, 20]
    clock.now += 20
    assert allowances.take("a", 3).wait == 0
    assert allowances.take("a", 3).wait == 20
    assert taken[3].headers == {
        "RateLimit-Limit": "3",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "60",
    }


@given(
    limit=st.integers(1, 40_000),
    pauses=st.lists(st.floats(0, 90) | st.sampled_from([0.0, 1e-4, 1.0, 60.0]), max_size=60),
)
def test_what_it_says_is_true(limit: int, pauses: list[float]) -> None:
    """`remaining` requests may come now; who waits `wait` seconds is let through; after `reset`
    seconds the whole allowance is there."""
    clock = Clock()
    allowances = Allowances(clock)
    for pause in pauses:
        clock.now += pause
        left = allowances.take("a", limit)
        assert 0 <= left.remaining < limit or left.wait
        after = allowances.look("a", limit)
        assert (after.wait == 0) == (after.remaining > 0)
        if left.wait:
            clock.now += left.wait
            assert allowances.take("a", limit).wait == 0
    clock.now += allowances.look("a", limit).reset
    assert allowances.look("a", limit).remaining == limit


def test_many_keys_take_bounded_memory() -> None:
    clock = Clock()
    allowances = Allowances(clock)
    for number in range(allowance.REMEMBERED + 500):
        allowances.take(number, 10)
    assert len(allowances._full_at) <= allowance.REMEMBERED
    assert allowances.look(number, 10).remaining == 9
    clock.now += 60
    for _ in range(allowance.REMEMBERED):
        allowances.take("a", 10_000)
    assert len(allowances._full_at) == 1


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES):
        assert breaker.allows(0)
        breaker.failed(0)
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker()
    for _ in range(3):
        for _ in range(FAILURES - 1):
            breaker.failed(0)
        breaker.succeeded()
    assert breaker.allows(0)
    assert not opened().allows(0)


def test_one_call_tries_again() -> None:
    breaker = opened()
    assert not breaker.allows(PAUSE_SECONDS - 0.1)
    assert breaker.allows(PAUSE_SECONDS)
    assert not breaker.allows(PAUSE_SECONDS)
    breaker.failed(PAUSE_SECONDS)
    assert not breaker.allows(2 * PAUSE_SECONDS - 0.1)
    assert breaker.allows(2 * PAUSE_SECONDS)
    breaker.succeeded()
    assert not breaker.open
    assert breaker.allows(0)
    assert breaker.allows(0)


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans()), max_size=60))
def test_a_service_that_is_down_gets_one_call_a_pause(steps: list[tuple[float, bool]]) -> None:
    """However requests come: at most FAILURES calls, and then one for each pause."""
    breaker, now, calls = Breaker(), 0.0, 0
    for wait, _ in steps:
        now += wait
        if breaker.allows(now):
            calls += 1
            breaker.failed(now)
    assert calls <= FAILURES + now // PAUSE_SECONDS


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

    with OldService(hostile=redirects) as server, http_call.Session() as session:
        tracemalloc.start()
        try:
            with session.get(server.url, allow_redirects=False, stream=True, timeout=20) as answer:
                assert (answer.status_code, answer.is_redirect) == (302, True)
            assert tracemalloc.get_traced_memory()[1] < 20 * MEGABYTE
        finally:
            tracemalloc.stop()
        assert len(server.asked) == 1
