"""Snapshots with NUL characters or very long numbers are stored without changing a value."""

import json
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.exactjson import dump_canonically, dumps, loads
from history.documents.jsonb import (
    MIN_SHORTENED_BYTES,
    can_be_stored,
    from_store,
    may_have_nul,
    shorten_zeros,
    to_store,
)
from history.documents.record import Record
from history.store.search_index.keys import NewSearchKeys
from ingest.messages.decode import decode
from tests.messages import WINDOW, make_message, make_value_with_data

# Texts with many characters that quoting and escaping could confuse.
TEXTS = st.one_of(
    st.text(st.sampled_from('\0\\"u0{}[],: я\u2400\x01\n'), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(has_nul(item) for pair in value.items() for item in pair)
    return isinstance(value, list) and any(map(has_nul, value))


def make_texts(document: dict[str, object]) -> list[bytes]:
    """Return two JSON texts of a document: one with few escape sequences, and one with many."""
    plain = dumps(document)
    return [plain, json.dumps(json.loads(plain, parse_float=str), ensure_ascii=True).encode()]


@given(DOCUMENTS)
def test_document_with_nul_is_stored_and_restored_unchanged(document: dict[str, object]) -> None:
    for text in make_texts(document):
        expected = loads(text)
        stored = to_store(text)
        assert (stored != text) == has_nul(expected)
        assert loads(from_store(stored)) == expected
        assert dump_canonically(loads(from_store(stored))) == dump_canonically(expected)
        if has_nul(expected):
            assert may_have_nul(text)
            assert rb"\u0000" not in stored.replace(rb"\\", b"")  # PostgreSQL would refuse it
            assert isinstance(msgspec.json.decode(stored), str)


@pytest.mark.parametrize("text", [b"{}", rb'{"a":"\\u0000"}', rb'{"a":"\\\\u0000"}', b"null"])
def test_text_without_nul_is_not_changed(text: bytes) -> None:
    assert to_store(text) is text
    assert from_store(text) is text


def test_business_keys_are_found_in_a_snapshot_that_contains_nul() -> None:
    body = make_value_with_data(
        rb'{"number":"17","realtyCrmId":"a\u0000b","note":"\u0000"}', id="A1"
    )
    record: Record = decode(make_message(body), WINDOW)
    keys = NewSearchKeys()
    keys.add_record(record)
    assert [(row.key.name, row.key.value) for row in keys.list_rows()] == [("number", "17")]


ZEROS = "0" * 100


def make_document(number: str) -> bytes:
    """Return a document that contains `number` and is large enough for shorten_zeros()."""
    text = "0" * MIN_SHORTENED_BYTES
    return f'{{"text": "{text}", "quoted": "\\"{ZEROS}", "n": {number}}}'.encode()


def read_number(text: bytes) -> tuple[str, Decimal]:
    """Return the number as it is written, and its value."""
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    written = bytes(members["n"]).decode()
    assert msgspec.json.decode(members["text"]) == "0" * MIN_SHORTENED_BYTES
    assert msgspec.json.decode(members["quoted"]) == f'"{ZEROS}'
    return written, Decimal(written)


@pytest.mark.parametrize(
    "number, expected",
    [
        (f"1{ZEROS}", "1e100"),
        (f"-120{ZEROS}", "-12e101"),
        (f"0.{ZEROS}7", "7e-101"),
        (f"-0.{ZEROS}70", "-70e-102"),
        (f"0.{ZEROS}", "0e-100"),
        (f"1{ZEROS}.5", f"1{ZEROS}.5"),
        (f"1{ZEROS}e5", f"1{ZEROS}e5"),
        (f"0.{ZEROS}1e5", f"0.{ZEROS}1e5"),
        (f"1.{ZEROS}", f"1.{ZEROS}"),
        ("100", "100"),
        ("0", "0"),
    ],
)
def test_number_that_is_stored_with_fewer_zeros_keeps_its_value(number: str, expected: str) -> None:
    assert read_number(shorten_zeros(make_document(number))) == (expected, Decimal(number))


@pytest.mark.parametrize(
    "number, fits",
    [
        ("1e131071", True),
        ("-1.5E+131071", True),
        ("12e131071", False),
        ("1e131072", False),
        ("1e-16383", True),
        ("1.5e-16383", False),
        ("1e-16384", False),
        ("1e00000005", True),
        ("1e999999999", False),
        ("1e1000000000000000000000", False),
        ("1e10", True),
        ('"1e999999999"', True),
        (r'"\"1e999999999"', True),
        (f"[{'1e131071,' * 513}0]", False),
    ],
)
def test_number_counts_as_storable_exactly_when_postgresql_accepts_it(
    number: str, fits: bool
) -> None:
    assert can_be_stored(f'{{"n":{number}}}'.encode()) is fits
