"""The rate limit in memory: never more than the limit, and never more refused than it says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from history.api import allowance
from history.api.allowance import Allowances


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


def test_a_look_uses_nothing() -> None:
    allowances = Allowances(Clock())
    for _ in range(3):
        assert allowances.look("a", 1).remaining == 1
    allowances.take("a", 1)
    assert allowances.look("a", 1).wait == 60
    assert allowances.look("b", 1).wait == 0


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
