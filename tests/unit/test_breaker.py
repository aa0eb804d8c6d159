"""When reading stops, and that it does not stop sooner."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ingest.consumer.positions import Breaker, Tolerance

TOLERANCE = Tolerance(consecutive=5, ratio=0.5, window=10)


def after(pattern: str, tolerance: Tolerance = TOLERANCE) -> str | None:
    """Note good (.) and bad (x) messages; what tripped() says then."""
    breaker = Breaker(tolerance)
    for each in pattern:
        breaker.note(each == "x")
    return breaker.tripped()


def test_a_number_of_bad_messages_in_a_row() -> None:
    assert after("xxxx") is None
    assert after("xxxxx") == "5 bad messages in a row"
    assert after("xxxx.xxxx") is None


def test_a_ratio_of_a_full_window() -> None:
    assert after("x.x.x.x.x") is None
    assert after("x.x.x.x.x.") == "5 of the last 10 messages are bad"
    assert after("x.x.x.x...") is None


def test_the_window_slides() -> None:
    assert after("x.x.x.x.x." + "....") is None
    assert after("." * 100 + "x.x.x.x.x") == "5 of the last 10 messages are bad"


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 8), st.integers(1, 20))
def test_it_says_what_counting_says(bad: list[bool], consecutive: int, window: int) -> None:
    breaker = Breaker(Tolerance(consecutive, 0.4, window))
    for number in range(len(bad)):
        breaker.note(bad[number])
        seen = bad[: number + 1]
        row = next((n for n, each in enumerate(reversed(seen)) if not each), len(seen))
        last = seen[-window:]
        expected = row >= consecutive or (len(last) == window and sum(last) >= 0.4 * window)
        assert (breaker.tripped() is not None) is expected


@given(st.lists(st.booleans() | st.integers(0, 30), max_size=20))
@example([True] * TOLERANCE.consecutive + [0])
def test_good_messages_may_be_counted_at_once(steps: list[bool | int]) -> None:
    one_by_one, at_once = Breaker(TOLERANCE), Breaker(TOLERANCE)
    for step in steps:
        if isinstance(step, bool):
            one_by_one.note(step)
            at_once.note(step)
        else:
            for _ in range(step):
                one_by_one.note(False)
            at_once.note_good(step)
        assert one_by_one.tripped() == at_once.tripped()
