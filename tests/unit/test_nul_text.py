"""Documents with NUL characters come back as they were, and others are not touched."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.documents.exactjson import canonical, dumps, loads
from history.documents.jsonb import from_store, line_from_store, may_have_nul, to_store
from history.record import Record
from history.search_index.keys import NewKeys
from ingest.source.decode import decode
from tests.messages import WINDOW, message, with_data

# What quoting and escaping could confuse, often.
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
        return any(has_nul(each) for pair in value.items() for each in pair)
    return isinstance(value, list) and any(map(has_nul, value))


def texts_of(document: dict[str, object]) -> list[bytes]:
    """The document with few and with many escapes."""
    plain = dumps(document)
    return [plain, json.dumps(json.loads(plain, parse_float=str), ensure_ascii=True).encode()]


@given(DOCUMENTS)
def test_every_document_comes_back(document: dict[str, object]) -> None:
    for text in texts_of(document):
        expected = loads(text)
        stored = to_store(text)
        assert (stored != text) == has_nul(expected)
        assert loads(from_store(stored)) == expected
        assert canonical(loads(from_store(stored))) == canonical(expected)
        if has_nul(expected):
            assert may_have_nul(text)
            assert rb"\u0000" not in stored.replace(rb"\\", b"")  # PostgreSQL would refuse it
            assert isinstance(msgspec.json.decode(stored), str)


@given(DOCUMENTS, DOCUMENTS)
def test_two_texts_of_one_document_are_stored_equally(
    document: dict[str, object], more: dict[str, object]
) -> None:
    whole = {**document, **more, "\0": "\0"}
    turned = dict(reversed(whole.items()))
    spaced = msgspec.json.format(dumps(turned), indent=3)
    assert to_store(dumps(whole)) == to_store(spaced)


@given(DOCUMENTS, TEXTS)
def test_lines_of_an_export(document: dict[str, object], id: str) -> None:
    text = dumps(document)
    head = b'{"id":%b,"data":' % dumps(id)
    line = head + to_store(text) + b"}\n"
    assert loads(line_from_store(line)) == loads(head + text + b"}")
    assert loads(line_from_store(memoryview(line))) == loads(head + text + b"}")
    assert line_from_store(head + b"null}\n") == head + b"null}\n"


@pytest.mark.parametrize("text", [b"{}", rb'{"a":"\\u0000"}', rb'{"a":"\\\\u0000"}', b"null"])
def test_what_has_no_nul_is_not_changed(text: bytes) -> None:
    assert to_store(text) is text
    assert from_store(text) is text


@pytest.mark.parametrize("text", [rb'{"a":"\\\u0000"}', rb'{"\u0000":1}', rb'{"a":["\u0000"]}'])
def test_what_has_one_is(text: bytes) -> None:
    assert to_store(text)[:1] == b'"'


def test_digits_and_notation_of_numbers_stay() -> None:
    text = rb'{"a":1e2,"b":1.10,"c":12345678901234567890.10,"d":"\u0000"}'
    assert from_store(to_store(text)) == text


def test_keys_are_found_in_a_wrapped_document() -> None:
    body = with_data(rb'{"number":"17","realtyCrmId":"a\u0000b","note":"\u0000"}', id="A1")
    record: Record = decode(message(body), WINDOW)
    keys = NewKeys()
    keys.add(record)
    assert [(row.key.name, row.key.value) for row in keys.rows()] == [("number", "17")]
