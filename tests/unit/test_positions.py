"""What is held between the group's word and the ledger's."""

from __future__ import annotations

from ingest.consumer.breaker import Tolerance
from ingest.consumer.positions import Positions, place_of
from ingest.source.message import TopicPartition
from ingest.store.ledger import Claim

TOLERANCE = Tolerance(5, 0.5, 10)
ONE, TWO = TopicPartition("a", "id", 0), TopicPartition("a", "id", 1)


def held(*halted: TopicPartition) -> Positions:
    positions = Positions()
    positions.assign([place_of(ONE), place_of(TWO)])
    claims = [Claim(each, 1, 10 + each.partition, 0, each in halted) for each in (ONE, TWO)]
    positions.hold(claims, TOLERANCE)
    return positions


def test_nothing_is_settled_before_the_group_has_spoken() -> None:
    positions = Positions()
    assert not positions.settled
    assert not positions.claim_due


def test_what_is_assigned_is_claimed_at_once_and_then_settled() -> None:
    positions = Positions()
    positions.assign([place_of(ONE)])
    assert positions.claim_due
    assert not positions.settled
    positions.hold([Claim(ONE, 1, 10, 0, False)], TOLERANCE)
    assert not positions.claim_due
    assert positions.settled
    assert positions.expected() == {place_of(ONE): 10}


def test_no_partitions_are_settled_too() -> None:
    positions = Positions()
    positions.assign([])
    positions.hold([], TOLERANCE)
    assert positions.settled


def test_a_partition_that_was_halted_is_held_but_not_read() -> None:
    positions = held(TWO)
    assert positions.reading() == [place_of(ONE)]
    assert [*positions.halted()] == [place_of(TWO)]
    assert positions.expected() == {place_of(ONE): 10, place_of(TWO): 11}


def test_what_was_let_go_is_claimed_again_after_a_while() -> None:
    positions = held()
    positions.let_go(60)
    assert positions.held == {}
    assert not positions.claim_due
    assert not positions.settled
    positions.let_go(0)
    assert positions.claim_due


def test_what_was_revoked_is_not_claimed_again() -> None:
    positions = held()
    positions.revoke()
    assert positions.held == {}
    positions.let_go(0)
    assert not positions.claim_due


def test_every_change_of_what_is_held_is_another_generation() -> None:
    positions = Positions()
    seen = {positions.generation}
    for change in (
        lambda: positions.assign([place_of(ONE)]),
        lambda: positions.hold([], TOLERANCE),
        lambda: positions.let_go(0),
        positions.revoke,
    ):
        change()
        assert positions.generation not in seen
        seen.add(positions.generation)
