"""Business keys are read from snapshots, and stored as search keys with their newest day."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.record import Record
from history.store.search_index.keys import (
    NONE_KNOWN,
    KnownFingerprints,
    NewSearchKeys,
    SearchKeyRow,
)
from ingest.consumer.lanes import FingerprintCache

DAY = 86_400_000_000


def record(
    data: object,
    entity: str = "product-instance",
    updated_at: int = 0,
    id: str = "X1",
) -> Record:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    parent = None if entity == "product-instance" else "A1"
    return Record(entity, id, 0, 0, updated_at, "crm", None, parent, text)


def list_new_keys(
    *records: Record, fingerprints: KnownFingerprints = NONE_KNOWN
) -> list[SearchKeyRow]:
    keys = NewSearchKeys(fingerprints)
    for item in records:
        keys.add_record(item)
    return keys.list_rows()


def list_key_values(data: object, entity: str = "product-instance") -> dict[str, str]:
    return {row.key.name: row.key.value for row in list_new_keys(record(data, entity))}


@pytest.mark.parametrize(
    "data, expected",
    [
        ({"realtyCrmId": "4-AB"}, {"realtyCrmId": "4-AB"}),
        ({"realtyCrmId": 17, "x": [1.5, {"realtyCrmId": "no"}]}, {"realtyCrmId": "17"}),
        ({"encumbrance": {"submissionId": "КУВД"}}, {"submissionId": "КУВД"}),
        ({"encumbrance": "none", "realtyCrmId": "4"}, {"realtyCrmId": "4"}),
        ({"encumbrance": None, "realtyCrmId": True}, {}),
        ({"realtyCrmId": "и\N{COMBINING BREVE}-4"}, {"realtyCrmId": "й-4"}),
        ({"realtyCrmId": "и\N{COMBINING BREVE}" * 100}, {"realtyCrmId": "й" * 100}),
        ({"realtyCrmId": "\N{DEVANAGARI LETTER QA}" * 51}, {}),
        ({"realtyCrmId": ""}, {}),
        ({"realtyCrmId": "x" * 101}, {}),
        ({"realtyCrmId": "a\0b"}, {}),
        ({"realtyCrmId": 1.5}, {}),
        ({}, {}),
        (b"null", {}),
        (b'{"realtyCrmId": "\\ud800"}', {}),
    ],
)
def test_business_keys_are_read_at_the_declared_paths_of_the_snapshot(
    data: object, expected: dict[str, str]
) -> None:
    assert list_key_values(data) == expected


@pytest.mark.parametrize(
    "first, then", [(-1, -2), (1, 1 << 61), ("UNSET", None), (None, "UNSET"), (True, "None")]
)
def test_business_keys_that_python_considers_equal_are_distinguished(
    first: object, then: object
) -> None:
    once, now = NewSearchKeys(), NewSearchKeys()
    for keys, fingerprint in ((once, first), (now, then)):
        keys.add_record(
            record({"rate": 1} if fingerprint is None else {"rate": 1, "number": fingerprint})
        )
    assert once.fingerprints != now.fingerprints


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(0, 2)), max_size=20
    ),
    st.lists(st.integers(0, 20)),
)
def test_search_keys_are_complete_whatever_the_batches_contain(
    shows: list[Any], cuts: list[int]
) -> None:
    """Each key is stored with its newest day, as if each record had been in its own batch."""
    stored: dict[tuple[str, str], int] = {}
    expected: dict[tuple[str, str], int] = {}
    cache = FingerprintCache(1)
    edges = sorted({0, len(shows), *(cut for cut in cuts if cut < len(shows))})
    for start, end in pairwise(edges):
        keys = NewSearchKeys(cache)
        for id, fingerprint, day in shows[start:end]:
            keys.add_record(record({"number": fingerprint}, updated_at=day * DAY, id=id))
            expected[id, fingerprint] = max(day, expected.get((id, fingerprint), 0))
        for row in keys.list_rows():
            place = row.key.id, row.key.value
            stored[place] = max(row.day, stored.get(place, 0))
        cache.update(keys.fingerprints)
    assert stored == expected
