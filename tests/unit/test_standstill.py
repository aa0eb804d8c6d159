"""When a consumer to which nothing is delivered counts as stuck."""

from ingest.consumer.positions import Standstill

A, B = ("a", 0), ("b", 0)
WAIT = 30.0


def noticed_at(still: Standstill, since: float, most: float = 1000.0) -> float:
    """When it is noticed that A stands at 5, looked at every 5 seconds."""
    now = since
    while not still.noticed(now, {A: 5, B: 1}, {A}):
        now += 5
        assert now < since + most
    return now


def test_nothing_comes_for_the_wait_although_there_is_more() -> None:
    assert noticed_at(Standstill(WAIT), 100.0) == 100.0 + WAIT


def test_the_next_time_it_waits_twice_as_long_until_something_comes() -> None:
    still = Standstill(WAIT)
    first = noticed_at(still, 0.0)
    # The claims were given up and made again: positions are those of before.
    second = noticed_at(still, first + 5)
    assert second - (first + 5) == 2 * WAIT
    assert not still.noticed(second + 5, {A: 6, B: 1}, {A})
    assert noticed_at(still, second + 10) == second + 15 + WAIT


def test_one_partition_that_moves_is_enough() -> None:
    still = Standstill(WAIT)
    assert not any(still.noticed(5.0 * turn, {A: 5, B: turn}, {A}) for turn in range(100))


def test_what_is_read_to_its_end_stands_still_for_ever() -> None:
    still = Standstill(WAIT)
    assert not any(still.noticed(5.0 * turn, {A: 5}, set()) for turn in range(100))


def test_the_time_counts_from_when_there_is_more() -> None:
    still = Standstill(WAIT)
    for turn in range(100):
        assert not still.noticed(5.0 * turn, {A: 5, B: 1}, set())
    assert noticed_at(still, 500.0) == 500.0 + WAIT
