"""Business keys are taken out of snapshots, whatever else is in them."""

from __future__ import annotations

import json

import pytest

from history.record import Record
from history.searchkeys import DayKey, FoundKey, NewKeys, found_keys

DAY = 86_400_000_000


def record(data: object, entity: str = "product-instance", at: int = 0) -> Record:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    application = None if entity == "product-instance" else "A1"
    return Record(entity, "X1", 0, 0, at, "crm", None, application, text)


def values(data: object, entity: str = "product-instance") -> dict[str, str]:
    return {key.name: key.value for key in found_keys(record(data, entity))}


@pytest.mark.parametrize(
    "data, expected",
    [
        ({"realtyCrmId": "4-AB"}, {"realtyCrmId": "4-AB"}),
        ({"realtyCrmId": 17, "x": [1.5, {"realtyCrmId": "no"}]}, {"realtyCrmId": "17"}),
        ({"encumbrance": {"submissionId": "КУВД"}}, {"submissionId": "КУВД"}),
        ({"encumbrance": "none", "realtyCrmId": "4"}, {"realtyCrmId": "4"}),
        ({"encumbrance": None, "realtyCrmId": True}, {}),
        ({"realtyCrmId": ""}, {}),
        ({"realtyCrmId": "x" * 101}, {}),
        ({"realtyCrmId": "a\0b"}, {}),
        ({"realtyCrmId": 1.5}, {}),
        ({}, {}),
        (b"null", {}),
        (b'{"realtyCrmId": "\\ud800"}', {}),
    ],
)
def test_found(data: object, expected: dict[str, str]) -> None:
    assert values(data) == expected


def test_a_child_is_found_with_its_application() -> None:
    assert found_keys(record({"clientId": "77"}, "participant-role")) == [
        FoundKey("77", "clientId", "participant-role", "X1", "A1")
    ]
    assert values({"clientId": "77"}, "product-car") == {}


def new(*records: Record, known: frozenset[DayKey] = frozenset()) -> list[tuple[str, int]]:
    keys = NewKeys(known)
    for each in records:
        keys.add(each)
    return [(key.value, day) for key, day in keys.rows()]


def test_a_batch_has_each_key_once_with_its_newest_day() -> None:
    b, a, later = (
        record({"realtyCrmId": name}, at=at) for name, at in (("b", 0), ("a", 0), ("b", DAY))
    )
    assert new(b, a, later) == new(later, a, b) == [("a", 0), ("b", 1)]


def test_what_search_knows_of_that_day_is_left_out() -> None:
    (key,) = found_keys(record({"realtyCrmId": "b"}))
    known = frozenset({(key, 0)})
    assert new(record({"realtyCrmId": "b"}), record({"realtyCrmId": "a"}), known=known) == [
        ("a", 0)
    ]
    assert new(record({"realtyCrmId": "b"}, at=DAY), known=known) == [("b", 1)]
