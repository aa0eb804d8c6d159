"""A message that repeats passes once in a while."""

from __future__ import annotations

import logging

import pytest

from ingest.source import client
from ingest.source.client import ThrottledLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(client.time, "monotonic", lambda: now[0])
    return now


def says(throttled: ThrottledLog, text: str) -> bool:
    return throttled.filter(logging.LogRecord("x", logging.WARNING, "", 0, text, None, None))


def test_the_same_is_said_again_only_after_a_while(clock: list[float]) -> None:
    throttled = ThrottledLog()
    assert says(throttled, "broker 1 down after 12 ms")
    assert not says(throttled, "broker 1 down after 13 ms")
    assert says(throttled, "broker is back")
    clock[0] = client.EVERY_SECONDS
    assert says(throttled, "broker 1 down after 14 ms")


def test_what_was_said_is_not_remembered_for_ever(clock: list[float]) -> None:
    throttled = ThrottledLog()
    for number in range(5_000):
        says(throttled, "x" * number)
    assert len(throttled._passed) <= 1_000
