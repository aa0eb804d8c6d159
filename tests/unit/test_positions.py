"""The partitions of a consumer between the group's assignment and the ledger's claims."""

from __future__ import annotations

from ingest.consumer.positions import Positions, Tolerance
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
