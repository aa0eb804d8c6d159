"""Business keys are taken out of snapshots, whatever else is in them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.record import Record
from history.search_index.keys import (
    NONE_KNOWN,
    Fingerprint,
    FoundKey,
    KeyRow,
    KnownFingerprints,
    NewKeys,
)
from ingest.consumer.lanes import BoundedCache

DAY = 86_400_000_000


def record(
    data: object,
    entity: str = "product-instance",
    at: int = 0,
    id: str = "X1",
) -> Record:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    parent = None if entity == "product-instance" else "A1"
    return Record(entity, id, 0, 0, at, "crm", None, parent, text)


def new(*records: Record, known: KnownFingerprints = NONE_KNOWN) -> list[KeyRow]:
    keys = NewKeys(known)
    for each in records:
        keys.add(each)
    return keys.rows()


def values(data: object, entity: str = "product-instance") -> dict[str, str]:
    return {row.key.name: row.key.value for row in new(record(data, entity))}


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


def test_the_keys_of_a_child_are_those_of_its_kind() -> None:
    assert new(record({"clientId": "77"}, "participant-role")) == [
        KeyRow(FoundKey("77", "clientId", "participant-role", "X1"), 0)
    ]
    assert values({"clientId": "77"}, "product-car") == {}


def test_a_batch_has_each_key_once_with_its_newest_day() -> None:
    b, a, later = (
        record({"realtyCrmId": name}, at=at) for name, at in (("b", 0), ("a", 0), ("b", DAY))
    )
    for batch in ((b, a, later), (later, a, b)):
        assert [(row.key.value, row.day) for row in new(*batch)] == [("a", 0), ("b", 1)]


def test_what_was_shown_that_day_is_left_out_and_all_else_is_not() -> None:
    once = NewKeys()
    once.add(record({"realtyCrmId": "b"}))
    assert new(record({"realtyCrmId": "b", "rate": 2}), known=once.fingerprints) == []
    for data, at in (({"realtyCrmId": "b"}, DAY), ({"realtyCrmId": "b", "number": 1}, 0)):
        assert new(record(data, at=at), known=once.fingerprints)


@pytest.mark.parametrize(
    "first, then", [(-1, -2), (1, 1 << 61), ("UNSET", None), (None, "UNSET"), (True, "None")]
)
def test_values_that_are_alike_to_python_are_distinguished(first: object, then: object) -> None:
    once, now = NewKeys(), NewKeys()
    for keys, fingerprint in ((once, first), (now, then)):
        keys.add(record({"rate": 1} if fingerprint is None else {"rate": 1, "number": fingerprint}))
    assert once.fingerprints != now.fingerprints


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2)), max_size=20
    ),
    st.lists(st.integers(0, 20)),
)
def test_nothing_is_missed_however_batches_are_cut(shows: list[Any], cuts: list[int]) -> None:
    """Every key ends with its newest day, as if each record had been stored by itself."""
    stored: dict[tuple[str, str], int] = {}
    expected: dict[tuple[str, str], int] = {}
    known: BoundedCache[Fingerprint] = BoundedCache(1)
    edges = sorted({0, len(shows), *(cut for cut in cuts if cut < len(shows))})
    for start, end in pairwise(edges):
        keys = NewKeys(known)
        for id, fingerprint, day in shows[start:end]:
            keys.add(record({"number": fingerprint}, at=day * DAY, id=id))
            expected[id, fingerprint] = max(day, expected.get((id, fingerprint), 0))
        for row in keys.rows():
            place = row.key.id, row.key.value
            stored[place] = max(row.day, stored.get(place, 0))
        known.update(keys.fingerprints)
    assert stored == expected
