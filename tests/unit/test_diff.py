"""What a person sees of a difference: few changes, in order, named by key."""

from decimal import Decimal
from typing import Any

import pytest

from history.diff import MISSING, Change, Identity, changes


def listed(old: Any, new: Any, identity: Identity | None = None) -> list[tuple[Any, ...]]:
    """The changes in short: kind, key path, and the values or indexes."""
    found = changes(old, new, identity) if identity else changes(old, new)
    return [_listed(change) for change in found]


def _listed(change: Change) -> tuple[Any, ...]:
    start = (change.kind, change.key_path)
    if change.kind == "moved":
        return (*start, change.from_index, change.to_index)
    return (*start, *(value for value in (change.old, change.new) if value is not MISSING))


ANNA = {"pid": "8f3a", "name": "Анна", "role": "borrower"}
BORIS = {"pid": "77c1", "name": "Борис", "role": "guarantor"}
VERA = {"pid": "0d2e", "name": "Вера", "role": "guarantor"}


def people(*items: Any) -> dict[str, Any]:
    return {"participants": list(items)}


def test_a_changed_field() -> None:
    assert listed({"rate": "18.4", "sum": 1}, {"rate": "17.9", "sum": 1}) == [
        ("changed", "/rate", "18.4", "17.9")
    ]


def test_null_is_not_missing() -> None:
    assert listed({"a": None, "b": 1}, {"b": None, "c": None}) == [
        ("removed", "/a", None),
        ("changed", "/b", 1, None),
        ("added", "/c", None),
    ]


@pytest.mark.parametrize(
    "old, new, differ",
    [
        (1, True, True),
        (0, False, True),
        ([1], [True], True),
        ({"a": {"b": [0, "x"]}}, {"a": {"b": [False, "x"]}}, True),
        (1, Decimal("1.0"), False),
        (Decimal("1.0"), Decimal("1.00"), False),
        ({"a": [Decimal("1.0")]}, {"a": [Decimal("1.00")]}, False),
        (Decimal("12345678901234567890.10"), Decimal("12345678901234567890.11"), True),
        (10**30, 10**30 + 1, True),
        (10**400, Decimal("1E+400"), False),
        ("1", 1, True),
        ("", None, True),
        ({}, [], True),
        ({}, None, True),
    ],
)
def test_values_are_compared_as_json(old: Any, new: Any, differ: bool) -> None:
    assert bool(changes(old, new)) is differ
    assert bool(changes(new, old)) is differ
    assert bool(changes([old], [new])) is differ
    assert bool(changes({"a": {"b": old}}, {"a": {"b": new}})) is differ


def test_an_object_that_comes_or_goes_is_one_change() -> None:
    address = {"city": "Казань", "lines": ["1", "2"]}
    assert listed({}, {"address": address}) == [("added", "/address", address)]
    assert listed({"address": address}, {}) == [("removed", "/address", address)]


def test_a_whole_snapshot_that_comes_or_goes() -> None:
    assert listed(None, {"a": 1}) == [("changed", "", None, {"a": 1})]
    assert listed({"a": 1}, None) == [("changed", "", {"a": 1}, None)]
    assert listed({"a": 1}, ["a"]) == [("changed", "", {"a": 1}, ["a"])]


def test_a_removed_child_is_one_removal() -> None:
    assert listed(people(ANNA, BORIS, VERA), people(ANNA, VERA)) == [
        ("removed", "/participants/[pid=77c1]", BORIS)
    ]


def test_a_child_added_in_front_is_one_addition() -> None:
    [change] = changes(people(ANNA, BORIS), people(VERA, ANNA, BORIS))
    assert (change.kind, change.path) == ("added", "/participants/0")
    assert change.key_path == "/participants/[pid=0d2e]"


def test_a_moved_child_is_one_move() -> None:
    assert listed(people(ANNA, BORIS, VERA), people(VERA, ANNA, BORIS)) == [
        ("moved", "/participants/[pid=0d2e]", 2, 0)
    ]


def test_a_changed_child_is_its_changed_fields() -> None:
    assert listed(people(ANNA, BORIS), people(ANNA, {**BORIS, "role": "co-borrower"})) == [
        ("changed", "/participants/[pid=77c1]/role", "guarantor", "co-borrower")
    ]


def test_a_child_that_moved_and_changed_is_both() -> None:
    new = people({**BORIS, "role": "borrower"}, ANNA, VERA)
    assert listed(people(ANNA, VERA, BORIS), new) == [
        ("moved", "/participants/[pid=77c1]", 2, 0),
        ("changed", "/participants/[pid=77c1]/role", "guarantor", "borrower"),
    ]


def test_paths_point_into_the_snapshot_the_item_is_in() -> None:
    found = changes(people(ANNA, BORIS), people(VERA, {**BORIS, "name": "Б"}))
    assert [(change.kind, change.path) for change in found] == [
        ("removed", "/participants/0"),
        ("added", "/participants/0"),
        ("changed", "/participants/1/name"),
    ]


def test_children_with_whole_numbers_as_keys() -> None:
    old = [{"id": 7, "n": 1}, {"id": 8, "n": 1}]
    assert listed(old, [{"id": 8, "n": 1}, {"id": 7, "n": 2}])[-1] == ("changed", "/[id=7]/n", 1, 2)


def test_pid_counts_before_id() -> None:
    old = [{"pid": "a", "id": 1}, {"pid": "b", "id": 2}]
    new = [{"pid": "a", "id": 2}, {"pid": "b", "id": 1}]
    assert listed(old, new) == [
        ("changed", "/[pid=a]/id", 1, 2),
        ("changed", "/[pid=b]/id", 2, 1),
    ]


def test_identity_per_place() -> None:
    identity = Identity(
        places=(("/docs", ("number",)), ("/*/parts", ()), ("/people/*/docs", ("no",)))
    )
    old = {
        "docs": [{"number": "1", "id": 1}, {"number": "2", "id": 2}],
        "people": [{"id": 5, "docs": [{"no": 1, "x": 1}, {"no": 2, "x": 1}]}],
        "a": {"parts": []},
    }
    new = {
        "docs": [{"number": "1", "id": 2}, {"number": "2", "id": 1}],
        "people": [{"id": 5, "docs": [{"no": 1, "x": 1}, {"no": 2, "x": 3}]}],
        "a": {"parts": [{"id": 1}]},
    }
    assert [entry[1] for entry in listed(old, new, identity)] == [
        "/docs/[number=1]/id",
        "/docs/[number=2]/id",
        "/people/[id=5]/docs/[no=2]/x",
        "/a/parts/0",
    ]


def test_children_that_share_a_key_are_matched_by_content() -> None:
    twin = {"pid": "8f3a", "name": "Анна", "role": "guarantor"}
    assert listed(people(ANNA, twin, BORIS), people(twin, BORIS)) == [
        ("removed", "/participants/0", ANNA)
    ]


def test_a_child_keeps_its_key_among_others_without_one() -> None:
    plain = {"name": "?", "role": "x"}
    assert listed(people(ANNA, plain), people(plain, {**ANNA, "name": "Ада"})) == [
        ("moved", "/participants/[pid=8f3a]", 0, 1),
        ("changed", "/participants/[pid=8f3a]/name", "Анна", "Ада"),
    ]
    # Two keys that differ are two children, however much the rest is alike.
    assert listed(people(ANNA, plain), people({**ANNA, "pid": "new"}, plain)) == [
        ("removed", "/participants/[pid=8f3a]", ANNA),
        ("added", "/participants/[pid=new]", {**ANNA, "pid": "new"}),
    ]
    assert listed(people(ANNA, plain), people(ANNA, {**plain, "pid": "new"})) == [
        ("added", "/participants/[pid=new]/pid", "new")
    ]


def test_a_child_keeps_its_key_among_others_that_share_one() -> None:
    twin = {"pid": "same", "n": 1}
    assert listed(people(twin, ANNA, twin), people({**ANNA, "name": "Ада"}, twin, twin)) == [
        ("changed", "/participants/[pid=8f3a]/name", "Анна", "Ада"),
        ("moved", "/participants/1", 0, 1),
    ]
    both = {"pid": "same", "id": 1, "n": 1}
    assert listed(people(both, twin), people(twin, {**both, "n": 2})) == [
        ("moved", "/participants/[id=1]", 0, 1),
        ("changed", "/participants/[id=1]/n", 1, 2),
    ]


def test_items_without_keys_are_matched_by_likeness() -> None:
    old = [{"type": "passport", "no": "1", "by": "МВД"}, {"type": "SNILS", "no": "2", "by": "ПФР"}]
    new = [
        {"type": "INN", "no": "9", "by": "ФНС", "at": "2020"},
        {"type": "passport", "no": "1", "by": "УФМС"},
        {"type": "SNILS", "no": "3", "by": "ПФР"},
    ]
    assert listed(old, new) == [
        ("added", "/0", new[0]),
        ("changed", "/1/by", "МВД", "УФМС"),
        ("changed", "/2/no", "2", "3"),
    ]


def test_scalar_lists_are_aligned() -> None:
    assert listed(list("abcdef"), list("xabdef")) == [("added", "/0", "x"), ("removed", "/2", "c")]
    assert listed(list("abc"), list("axc")) == [("changed", "/1", "b", "x")]
    assert listed(list("abcd"), list("dabc")) == [("moved", "/0", 3, 0)]
    assert listed(["x", "x"], ["x", "x", "x"]) == [("added", "/2", "x")]
    assert listed([], ["a", "b"]) == [("added", "/0", "a"), ("added", "/1", "b")]
    assert listed([[1, 2], [3]], [[1, 2], [3, 4]]) == [("added", "/1/1", 4)]


def test_changes_come_in_document_order_with_removals_where_they_stood() -> None:
    old = {"a": 1, "gone": 1, "b": [1, 2, 3], "c": 1, "last": 1}
    new = {"new": 1, "a": 2, "b": [1, 3], "d": 1, "c": 2}
    assert [entry[1] for entry in listed(old, new)] == [
        "/new",
        "/a",
        "/gone",
        "/b/1",
        "/d",
        "/c",
        "/last",
    ]


def test_key_paths_read_one_way_only() -> None:
    old = {"*": 1, "[pid=x]": 1, "a~b/c": 1, "l": [{"pid": "x/y=~]", "v": 1}], "": {"": 1}}
    new = {"*": 2, "[pid=x]": 2, "a~b/c": 2, "l": [{"pid": "x/y=~]", "v": 2}], "": {"": 2}}
    assert [entry[1] for entry in listed(old, new)] == [
        "/~4",
        "/~2pid=x]",
        "/a~0b~1c",
        "/l/[pid=x~1y=~0]]/v",
        "//",
    ]


def test_an_encoded_change_leaves_out_what_is_missing() -> None:
    from history.documents.exactjson import dumps

    [change] = changes({}, {"a": None})
    encoded = dumps(change)  # type: ignore[arg-type]
    assert encoded == b'{"path":"/a","keyPath":"/a","kind":"added","new":null}'
