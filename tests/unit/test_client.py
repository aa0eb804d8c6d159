"""What all clients of Kafka share: patience with a group, and a log that does not repeat itself."""

from __future__ import annotations

import logging

import pytest

from ingest.source import client
from ingest.source.client import ASK_AGAIN_SECONDS, Patience, ThrottledLog

WAIT = 15.0


@pytest.fixture
def patience() -> Patience:
    """Of a member that lost its partitions at 0, maybe because its brokers went away."""
    made = Patience(WAIT, -100.0)
    made.end()
    made.begin(0.0, answer=False)
    return made


def until_stuck(patience: Patience, since: float, away_until: float = 0.0) -> float:
    """When it counts as stuck, asked every half second."""
    now = since
    while True:
        now += 0.5
        if patience.due(now):
            if now < away_until:
                patience.unanswered(now)
            elif patience.answered(now):
                return now


@pytest.mark.parametrize("outage", [10.0, 60.0, 3600.0])
def test_the_wait_after_an_outage_does_not_depend_on_its_length(
    patience: Patience, outage: float
) -> None:
    stuck = until_stuck(patience, 0.0, away_until=outage)
    assert stuck <= outage + ASK_AGAIN_SECONDS + WAIT + 1
    assert stuck >= outage + WAIT


def test_a_member_has_a_whole_wait_in_which_the_brokers_answer(patience: Patience) -> None:
    patience.unanswered(20.0)
    assert not patience.answered(22.0)
    assert not patience.due(22.0 + WAIT - 1)
    assert patience.due(22.0 + WAIT)


def test_a_revoked_or_new_member_has_one_wait() -> None:
    patience = Patience(WAIT, 0.0)
    assert until_stuck(patience, 0.0) == WAIT
    patience.begin(100.0)
    assert until_stuck(patience, 100.0) == 100.0 + WAIT


def test_each_time_the_wait_is_twice_as_long() -> None:
    patience = Patience(WAIT, 0.0)
    first = until_stuck(patience, 0.0)
    second = until_stuck(patience, first)
    assert until_stuck(patience, second) - second == 2 * (second - first) == 4 * first
    patience.end()
    patience.begin(1000.0)
    assert until_stuck(patience, 1000.0) == 1000.0 + WAIT


def test_with_partitions_nothing_is_due(patience: Patience) -> None:
    patience.end()
    assert not patience.due(1e9)


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
