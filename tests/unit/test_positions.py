"""The partitions of a consumer, the breaker that halts one, and the standstill of all."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ingest.consumer.positions import Breaker, Positions, Standstill, Tolerance
from ingest.source.message import LastMessage, TopicPartition
from ingest.store.batch import Claim

TOLERANCE = Tolerance(5, 0.5, 10)
ONE, TWO = TopicPartition("a", "id", 0), TopicPartition("a", "id", 1)


def claimed(*halted: TopicPartition) -> Positions:
    positions = Positions()
    positions.assign([ONE.kafka, TWO.kafka], 0)
    claims = [Claim(each, 1, 10 + each.partition, 0, each in halted) for each in (ONE, TWO)]
    positions.grant(claims, TOLERANCE)
    return positions


def test_nothing_is_settled_before_the_group_has_assigned() -> None:
    positions = Positions()
    assert not positions.settled
    assert not positions.claim_due(1e9)


def test_what_is_assigned_is_due_at_once_and_settled_once_claimed() -> None:
    positions = Positions()
    positions.assign([ONE.kafka], 5)
    assert positions.claim_due(5)
    assert not positions.settled
    positions.grant([Claim(ONE, 1, 10, 0, False)], TOLERANCE)
    assert not positions.claim_due(1e9)
    assert positions.settled
    assert positions.starts() == {ONE.kafka: 10}


def test_no_partitions_are_settled_too() -> None:
    positions = Positions()
    positions.assign([], 0)
    positions.grant([], TOLERANCE)
    assert positions.settled


def test_a_partition_that_was_halted_is_claimed_but_not_read() -> None:
    positions = claimed(TWO)
    assert positions.reading() == [ONE.kafka]
    assert [*positions.halted()] == [TWO.kafka]
    assert positions.starts() == {ONE.kafka: 10, TWO.kafka: 11}


def test_the_last_message_is_read_again_first() -> None:
    positions = Positions()
    positions.assign([ONE.kafka], 5)
    positions.grant([Claim(ONE, 1, 10, 0, False, last=LastMessage(7, 3, b""))], TOLERANCE)
    assert positions.starts() == {ONE.kafka: 7}


def test_what_was_released_is_due_at_its_time() -> None:
    positions = claimed()
    positions.release(60)
    assert positions.claimed == {}
    assert not positions.claim_due(59)
    assert not positions.settled
    assert positions.claim_due(60)


def test_what_was_revoked_is_not_due() -> None:
    positions = claimed()
    positions.revoke()
    assert positions.claimed == {}
    positions.release(0)
    assert not positions.claim_due(1e9)


def test_every_change_of_the_claims_is_another_generation() -> None:
    positions = Positions()
    generations = {positions.generation}
    for change in (
        lambda: positions.assign([ONE.kafka], 0),
        lambda: positions.grant([], TOLERANCE),
        lambda: positions.release(0),
        positions.revoke,
    ):
        change()
        assert positions.generation not in generations
        generations.add(positions.generation)


STRICT = Tolerance(consecutive=5, ratio=0.5, window=10)


def after(pattern: str, tolerance: Tolerance = STRICT) -> str | None:
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
@example([True] * STRICT.consecutive + [0])
def test_good_messages_may_be_counted_at_once(steps: list[bool | int]) -> None:
    one_by_one, at_once = Breaker(STRICT), Breaker(STRICT)
    for step in steps:
        if isinstance(step, bool):
            one_by_one.note(step)
            at_once.note(step)
        else:
            for _ in range(step):
                one_by_one.note(False)
            at_once.note_good(step)
        assert one_by_one.tripped() == at_once.tripped()


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
