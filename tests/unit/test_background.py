"""Whether a sample of a halted partition is good enough to read on; whose ends were answered."""

from __future__ import annotations

import pytest

from ingest.consumer.background import ends_of_claimed, sample_is_good
from ingest.consumer.positions import Positions, Tolerance
from ingest.source.brokers import Look
from ingest.source.message import TopicPartition
from ingest.store.batch import Claim
from tests.messages import EXPIRED, WINDOW, message, value


@pytest.mark.parametrize(
    "pattern, gone",
    [
        ("", False),
        ("x", False),
        (".", True),
        ("xxxxxxxxxx", False),
        (".....xxxxx", False),
        ("......xxxx", True),
        ("eeeeeexxxx", True),
    ],
)
def test_fewer_bad_than_tolerated_and_some_there(pattern: str, gone: bool) -> None:
    """Good (.), bad (x) and expired (e) messages; half may be bad, but not quite."""
    bodies = {".": value(), "x": b"bad", "e": EXPIRED}
    messages = [message(bodies[each], offset) for offset, each in enumerate(pattern)]
    assert sample_is_good(messages, WINDOW, Tolerance(100, 0.5, 1_000)) is gone


def test_the_end_of_another_topic_of_the_same_name_is_not_taken() -> None:
    """It was asked for before the topic was deleted and created again, or after a partition went
    to another consumer. A log that was cut has the id of its topic."""
    found = Positions()
    claims = [
        Claim(TopicPartition("mine", "new", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("cut", "same#2", 0), 1, 0, 0, False, 0),
        Claim(TopicPartition("without ids", "", 0), 1, 0, 0, False, 0),
    ]
    found.grant(claims, Tolerance(100, 0.5, 1_000))
    ends = {("mine", 0): 9, ("cut", 0): 8, ("without ids", 0): 7, ("gone", 0): 6, ("mine", 1): 5}
    look = Look(0.0, {"mine": "old", "cut": "same", "without ids": "", "gone": "id"}, ends)
    assert ends_of_claimed(look, found) == {("cut", 0): 8, ("without ids", 0): 7}
    look = Look(0.0, {"mine": "new"}, ends)
    assert ends_of_claimed(look, found) == {("mine", 0): 9}
