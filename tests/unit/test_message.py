"""The last message of a partition is recognised by its place, time, key, value and leader."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from ingest.source.message import LastMessage, Message

MESSAGE = Message("t", 0, 7, 1_700_000_000_000, b"key", b"value", leader_epoch=3)


@pytest.mark.parametrize(
    "change",
    [
        {"offset": 8},
        {"timestamp": 1},
        {"key": b"kez"},
        {"key": None},
        {"value": b"other"},
        {"value": None},
        {"key": b"keyv", "value": b"alue"},
        {"leader_epoch": 4},
    ],
    ids=str,
)
def test_another_message_is_not_the_same(change: dict[str, Any]) -> None:
    assert not LastMessage.of(MESSAGE).same(structs.replace(MESSAGE, **change))


@pytest.mark.parametrize("change", [{}, {"leader_epoch": -1}, {"headers": (("a", None),)}], ids=str)
def test_the_same_message(change: dict[str, Any]) -> None:
    again = structs.replace(MESSAGE, **change)
    assert LastMessage.of(MESSAGE).same(again)
    assert LastMessage.of(again).same(MESSAGE)


@pytest.mark.parametrize(
    ("low", "leader_epoch", "gone"),
    [(8, -1, True), (7, -1, False), (0, 3, True), (0, 4, False), (0, -1, False)],
)
def test_whether_it_may_be_gone(low: int, leader_epoch: int, gone: bool) -> None:
    assert LastMessage.of(MESSAGE).may_be_gone(low, leader_epoch) is gone


def test_an_unknown_leader_proves_nothing() -> None:
    unknown = structs.replace(MESSAGE, leader_epoch=-1)
    assert not LastMessage.of(unknown).may_be_gone(0, -1)
