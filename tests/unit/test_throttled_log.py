"""What is said over and over is said once in a while."""

from __future__ import annotations

import logging

import pytest

from ingest.source import throttled_log
from ingest.source.throttled_log import ThrottledLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(throttled_log.time, "monotonic", lambda: now[0])
    return now


def says(thinned: ThrottledLog, text: str) -> bool:
    return thinned.filter(logging.LogRecord("x", logging.WARNING, "", 0, text, None, None))


def test_the_same_is_said_again_only_after_a_while(clock: list[float]) -> None:
    thinned = ThrottledLog()
    assert says(thinned, "broker 1 down after 12 ms")
    assert not says(thinned, "broker 1 down after 13 ms")
    assert says(thinned, "broker is back")
    clock[0] = throttled_log.EVERY_SECONDS
    assert says(thinned, "broker 1 down after 14 ms")


def test_what_was_said_is_not_remembered_for_ever(clock: list[float]) -> None:
    thinned = ThrottledLog()
    for number in range(5_000):
        says(thinned, "x" * number)
    assert len(thinned._said) <= 1_000
