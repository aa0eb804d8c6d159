"""Random snapshots and pairs of snapshots for tests of the diff, and comparisons of JSON values."""

from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from history.documents.exactjson import Numeral

Document = Any

KEYS = st.one_of(
    st.sampled_from(
        ["", "/", "~", "~1", "a/b", "x.y", "ставка", "🏠", "*", "[pid=1]", "0", "-", "id"]
    ),
    st.text(max_size=4),
    st.sampled_from(["rate", "name", "pid", "items", "participants"]),
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2**63, 2**64, -(10**30), 10**400]),
    st.sampled_from(["0.0", "-0.0", "1.0", "1.00", "1E+2", "0.1", "12345678901234567890.10"]).map(
        Decimal
    ),
    st.sampled_from(["1e2", "0.0000001", "1.0E0", "-0.00000010"]).map(Numeral),
    st.integers(),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
)
SCALARS = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.sampled_from(["a", "b", "c", "1"])
)


def _draw_keyed_lists(values: st.SearchStrategy[Document]) -> st.SearchStrategy[Document]:
    """Draw lists of objects with an identity key, which is sometimes repeated, missing or odd."""
    names = st.one_of(st.sampled_from(["a", "b", "c", "d/e", "f=~]", "", "7"]), st.just(7), SCALARS)
    item = st.tuples(
        st.sampled_from(["pid", "pid", "pid", "id"]),
        names,
        st.dictionaries(st.sampled_from(["name", "rate", "items"]), values, max_size=3),
    ).map(lambda parts: {parts[0]: parts[1], **parts[2]})
    return st.one_of(
        st.lists(item, max_size=6),
        st.lists(item, max_size=8, unique_by=lambda item: str(item.get("pid", item.get("id")))),
    )


DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(SCALARS, max_size=8),
        st.lists(st.sampled_from(["a", "b", "c", 1, True, Decimal("1.0")]), max_size=12),
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=5),
        _draw_keyed_lists(inner),
    ),
    max_leaves=25,
)


@st.composite
def edit_document(draw: st.DrawFn, document: Document) -> Document:
    """Draw a copy of the document with parts replaced, removed, added, reordered or renamed."""
    if isinstance(document, dict):
        result = {key: draw(_generate_part(value)) for key, value in document.items()}
        for key in list(result):
            if draw(st.integers(0, 9)) == 0:
                value = result.pop(key)
                if draw(st.booleans()):
                    result[draw(KEYS)] = value
        if draw(st.integers(0, 4)) == 0:
            result[draw(KEYS)] = draw(SCALARS)
        return result
    if isinstance(document, list):
        items = [draw(_generate_part(value)) for value in document]
        if items and draw(st.integers(0, 3)) == 0:
            items.pop(draw(st.integers(0, len(items) - 1)))
        if draw(st.integers(0, 3)) == 0:
            items.insert(draw(st.integers(0, len(items))), draw(DOCUMENTS))
        if draw(st.integers(0, 3)) == 0:
            items = draw(st.permutations(items))
        return items
    return draw(st.one_of(st.just(document), SCALARS))


def _generate_part(value: Document) -> st.SearchStrategy[Document]:
    return st.integers(0, 3).flatmap(
        lambda roll: edit_document(value) if roll == 0 else st.just(value)
    )


PAIRS = st.one_of(
    DOCUMENTS.flatmap(lambda document: st.tuples(st.just(document), edit_document(document))),
    DOCUMENTS.flatmap(lambda document: st.tuples(edit_document(document), st.just(document))),
    st.tuples(DOCUMENTS, DOCUMENTS),
    st.tuples(
        *[st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h"]), max_size=16)] * 2
    ),
    st.permutations([{"pid": name} for name in "abcdefghij"]).flatmap(
        lambda items: st.tuples(st.just(items), edit_document(items))
    ),
)


def make_exact(value: Document) -> object:
    """Return a JSON value in a form in which 1.0 does not equal 1.00, and 1 does not equal true."""
    if isinstance(value, dict):
        return "object", frozenset((key, make_exact(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return "list", tuple(make_exact(inner) for inner in value)
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return "number", str(value)
    return type(value), value


def is_equal(old: Document, new: Document) -> bool:
    """Return whether two values are equal in JSON: 1.0 equals 1, and true does not equal 1."""
    if isinstance(old, bool) or isinstance(new, bool):
        return old is new
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(is_equal(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(is_equal, old, new))
    return bool(old == new)
