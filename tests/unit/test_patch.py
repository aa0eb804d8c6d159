"""The patch, proved with an independent library."""

import copy
from decimal import Decimal
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.diff import Identity, compare, patch
from history.documents.exactjson import dumps, loads
from tests.unit.diff_documents import DOCUMENTS, PAIRS, exact


def applied(document: Any, operations: list[dict[str, Any]]) -> Any:
    return jsonpatch.JsonPatch(operations).apply(copy.deepcopy(document))


@given(PAIRS)
def test_applied_to_old_gives_new_to_the_digit(pair: tuple[Any, Any]) -> None:
    old, new = pair
    before, after = exact(old), exact(new)
    operations = patch(old, new)
    assert exact(applied(old, operations)) == after
    assert (exact(old), exact(new)) == (before, after), "the snapshots were modified"


@given(PAIRS)
def test_survives_the_wire(pair: tuple[Any, Any]) -> None:
    old, new = pair
    operations = loads(dumps(patch(old, new)))  # type: ignore[arg-type]
    assert exact(applied(old, operations)) == exact(new)  # type: ignore[arg-type]


@given(PAIRS)
def test_holds_without_identity_keys(pair: tuple[Any, Any]) -> None:
    old, new = pair
    assert exact(applied(old, patch(old, new, Identity(keys=())))) == exact(new)


@given(DOCUMENTS)
def test_of_equal_snapshots_is_empty(document: Any) -> None:
    assert patch(document, copy.deepcopy(document)) == []


@given(PAIRS)
def test_has_only_the_operations_that_change_something(pair: tuple[Any, Any]) -> None:
    shapes = {
        "add": {"op", "path", "value"},
        "replace": {"op", "path", "value"},
        "remove": {"op", "path"},
        "move": {"op", "path", "from"},
    }
    for operation in patch(*pair):
        assert set(operation) == shapes[operation["op"]]
        assert operation["path"] != operation.get("from")


@given(PAIRS)
def test_is_not_longer_than_the_whole(pair: tuple[Any, Any]) -> None:
    old, new = pair
    whole = [{"op": "replace", "path": "", "value": new}]
    operations = patch(old, new)
    # A container is weighed where that can pay: small ones may be a few bytes off.
    assert len(dumps(operations)) <= len(dumps(whole)) + 300  # type: ignore[arg-type]


@given(st.permutations(range(30)), st.sets(st.integers(0, 29)), st.sets(st.integers(30, 40)))
def test_of_reordered_children(order: list[int], gone: set[int], came: set[int]) -> None:
    old = [{"pid": f"p{number}", "text": "x" * 40} for number in range(30)]
    new = [old[number] for number in order if number not in gone]
    for number in sorted(came):
        new.insert(number % (len(new) + 1), {"pid": f"p{number}", "text": "y" * 40})
    assert exact(applied(old, patch(old, new))) == exact(new)


@pytest.mark.parametrize(
    "old, new, operations",
    [
        ({"a": 1}, {"a": 2}, [{"op": "replace", "path": "/a", "value": 2}]),
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"a": None}, {}, [{"op": "remove", "path": "/a"}]),
        ({}, {"a": None}, [{"op": "add", "path": "/a", "value": None}]),
        ({"": 1}, {"": 2}, [{"op": "replace", "path": "/", "value": 2}]),
        ({"a/b~c": 1}, {"a/b~c": 2}, [{"op": "replace", "path": "/a~1b~0c", "value": 2}]),
        ({"a": ["x", "y"]}, {"a": ["y", "x"]}, None),
        ({"rate": 18}, {"percent": 18}, [{"op": "move", "from": "/rate", "path": "/percent"}]),
        (None, {"a": 1}, [{"op": "replace", "path": "", "value": {"a": 1}}]),
        ({"a": 1}, None, [{"op": "replace", "path": "", "value": None}]),
        ([1, 2, 3], [2, 3], [{"op": "remove", "path": "/0"}]),
        (["b", "c"], ["a", "b", "c"], [{"op": "add", "path": "/0", "value": "a"}]),
    ],
)
def test_examples(old: Any, new: Any, operations: list[dict[str, Any]] | None) -> None:
    made = patch(old, new)
    assert operations is None or made == operations
    assert exact(applied(old, made)) == exact(new)


def test_replaces_the_digits_of_an_equal_number() -> None:
    diff = compare({"amount": Decimal("1.0")}, {"amount": Decimal("1.00")})
    assert diff.changes == ()
    assert diff.patch == [{"op": "replace", "path": "/amount", "value": Decimal("1.00")}]


def test_replaces_a_rewritten_object_whole() -> None:
    old = {"address": {f"line{number}": "old" for number in range(9)}, "stays": "x" * 200}
    new = {"address": {f"line{number}": "new" for number in range(9)}, "stays": "x" * 200}
    assert patch(old, new) == [{"op": "replace", "path": "/address", "value": new["address"]}]


def test_of_a_snapshot_nested_beyond_recursion() -> None:
    old: Any = "old"
    new: Any = "new"
    for _ in range(5000):
        old, new = [old], [new]
    assert patch(old, new) == [{"op": "replace", "path": "", "value": new}]
