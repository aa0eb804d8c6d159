"""The comparison of snapshots: its changes and patches, and the filter of changes by path."""

import copy
from decimal import Decimal
from typing import Any

import jsonpatch
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonpointer import resolve_pointer

from benchmarks.diff_shapes import SHAPES
from history.diff import (
    MISSING,
    BadPathError,
    ListIdentity,
    ValueChange,
    compare_snapshots,
    find_values,
    is_different,
    is_matching,
    is_touched,
    list_changes,
    make_patch,
    parse_path,
)
from history.documents.exactjson import dumps, loads
from tests.unit.diff_documents import DOCUMENTS, PAIRS, is_equal, make_exact


def list_changes_in_short(
    old: Any, new: Any, identity: ListIdentity | None = None
) -> list[tuple[Any, ...]]:
    """Return kind, key path, and the values or indexes of each change."""
    changes = list_changes(old, new, identity) if identity else list_changes(old, new)
    return [_format_change(change) for change in changes]


def _format_change(change: ValueChange) -> tuple[Any, ...]:
    start = (change.kind, change.key_path)
    if change.kind == "moved":
        return (*start, change.from_index, change.to_index)
    return (*start, *(value for value in (change.old, change.new) if value is not MISSING))


ANNA = {"pid": "8f3a", "name": "Анна", "role": "borrower"}
BORIS = {"pid": "77c1", "name": "Борис", "role": "guarantor"}
VERA = {"pid": "0d2e", "name": "Вера", "role": "guarantor"}


def make_people(*items: Any) -> dict[str, Any]:
    return {"participants": list(items)}


ADDRESS = {"city": "Казань", "lines": ["1", "2"]}
ADA = {**ANNA, "name": "Ада"}
PLAIN = {"name": "?", "role": "x"}
TWIN = {"pid": "same", "n": 1}
BOTH = {"pid": "same", "id": 1, "n": 1}
CASES: dict[str, tuple[Any, Any, list[tuple[Any, ...]]]] = {
    "null is not missing": (
        {"a": None, "b": 1},
        {"b": None, "c": None},
        [("removed", "/a", None), ("changed", "/b", 1, None), ("added", "/c", None)],
    ),
    "an object that comes is one change": (
        {},
        {"address": ADDRESS},
        [("added", "/address", ADDRESS)],
    ),
    "a whole snapshot that goes": ({"a": 1}, None, [("changed", "", {"a": 1}, None)]),
    "another kind of value": ({"a": 1}, ["a"], [("changed", "", {"a": 1}, ["a"])]),
    "a removed child is one removal": (
        make_people(ANNA, BORIS, VERA),
        make_people(ANNA, VERA),
        [("removed", "/participants/[pid=77c1]", BORIS)],
    ),
    "a child added in front is one addition": (
        make_people(ANNA, BORIS),
        make_people(VERA, ANNA, BORIS),
        [("added", "/participants/[pid=0d2e]", VERA)],
    ),
    "a moved child is one move": (
        make_people(ANNA, BORIS, VERA),
        make_people(VERA, ANNA, BORIS),
        [("moved", "/participants/[pid=0d2e]", 2, 0)],
    ),
    "a child that moved and changed is both": (
        make_people(ANNA, VERA, BORIS),
        make_people({**BORIS, "role": "borrower"}, ANNA, VERA),
        [
            ("moved", "/participants/[pid=77c1]", 2, 0),
            ("changed", "/participants/[pid=77c1]/role", "guarantor", "borrower"),
        ],
    ),
    "pid counts before id": (
        [{"pid": "a", "id": 1}, {"pid": "b", "id": 2}],
        [{"pid": "a", "id": 2}, {"pid": "b", "id": 1}],
        [("changed", "/[pid=a]/id", 1, 2), ("changed", "/[pid=b]/id", 2, 1)],
    ),
    "children that share a key are matched by content": (
        make_people(ANNA, {**ANNA, "role": "guarantor"}, BORIS),
        make_people({**ANNA, "role": "guarantor"}, BORIS),
        [("removed", "/participants/0", ANNA)],
    ),
    "a child keeps its key among others without one": (
        make_people(ANNA, PLAIN),
        make_people(PLAIN, ADA),
        [
            ("moved", "/participants/[pid=8f3a]", 0, 1),
            ("changed", "/participants/[pid=8f3a]/name", "Анна", "Ада"),
        ],
    ),
    "two keys that differ are two children, however much the rest is alike": (
        make_people(ANNA, PLAIN),
        make_people({**ANNA, "pid": "new"}, PLAIN),
        [
            ("removed", "/participants/[pid=8f3a]", ANNA),
            ("added", "/participants/[pid=new]", {**ANNA, "pid": "new"}),
        ],
    ),
    "a child that gets a key": (
        make_people(ANNA, PLAIN),
        make_people(ANNA, {**PLAIN, "pid": "new"}),
        [("added", "/participants/[pid=new]/pid", "new")],
    ),
    "a child keeps its key among others that share one": (
        make_people(TWIN, ANNA, TWIN),
        make_people(ADA, TWIN, TWIN),
        [
            ("changed", "/participants/[pid=8f3a]/name", "Анна", "Ада"),
            ("moved", "/participants/1", 0, 1),
        ],
    ),
    "the second key where the first is shared": (
        make_people(BOTH, TWIN),
        make_people(TWIN, {**BOTH, "n": 2}),
        [("moved", "/participants/[id=1]", 0, 1), ("changed", "/participants/[id=1]/n", 1, 2)],
    ),
    "scalars: one added and one removed": (
        list("abcdef"),
        list("xabdef"),
        [("added", "/0", "x"), ("removed", "/2", "c")],
    ),
    "scalars: one changed": (list("abc"), list("axc"), [("changed", "/1", "b", "x")]),
    "scalars: one moved": (list("abcd"), list("dabc"), [("moved", "/0", 3, 0)]),
    "scalars: repeated": (["x", "x"], ["x", "x", "x"], [("added", "/2", "x")]),
    "lists in lists": ([[1, 2], [3]], [[1, 2], [3, 4]], [("added", "/1/1", 4)]),
}


@pytest.mark.parametrize("old, new, expected", CASES.values(), ids=CASES)
def test_comparison_finds_the_expected_changes_and_names_list_items_by_key_fields(
    old: Any, new: Any, expected: list[tuple[Any, ...]]
) -> None:
    assert list_changes_in_short(old, new) == expected


def test_fields_that_identify_list_items_depend_on_the_path_of_the_list() -> None:
    identity = ListIdentity(
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
    assert [entry[1] for entry in list_changes_in_short(old, new, identity)] == [
        "/docs/[number=1]/id",
        "/docs/[number=2]/id",
        "/people/[id=5]/docs/[no=2]/x",
        "/a/parts/0",
    ]


def test_items_without_keys_are_matched_by_similarity() -> None:
    old = [{"type": "passport", "no": "1", "by": "МВД"}, {"type": "SNILS", "no": "2", "by": "ПФР"}]
    new = [
        {"type": "INN", "no": "9", "by": "ФНС", "at": "2020"},
        {"type": "passport", "no": "1", "by": "УФМС"},
        {"type": "SNILS", "no": "3", "by": "ПФР"},
    ]
    assert list_changes_in_short(old, new) == [
        ("added", "/0", new[0]),
        ("changed", "/1/by", "МВД", "УФМС"),
        ("changed", "/2/no", "2", "3"),
    ]


def test_changes_follow_the_order_of_the_document_and_include_removed_fields() -> None:
    old = {"a": 1, "gone": 1, "b": [1, 2, 3], "c": 1, "last": 1}
    new = {"new": 1, "a": 2, "b": [1, 3], "d": 1, "c": 2}
    assert [entry[1] for entry in list_changes_in_short(old, new)] == [
        "/new",
        "/a",
        "/gone",
        "/b/1",
        "/d",
        "/c",
        "/last",
    ]


def test_key_paths_are_unambiguous_for_names_with_special_characters() -> None:
    old = {"*": 1, "[pid=x]": 1, "a~b/c": 1, "l": [{"pid": "x/y=~]", "v": 1}], "": {"": 1}}
    new = {"*": 2, "[pid=x]": 2, "a~b/c": 2, "l": [{"pid": "x/y=~]", "v": 2}], "": {"": 2}}
    assert [entry[1] for entry in list_changes_in_short(old, new)] == [
        "/~4",
        "/~2pid=x]",
        "/a~0b~1c",
        "/l/[pid=x~1y=~0]]/v",
        "//",
    ]


def test_encoded_addition_of_null_has_a_new_value_and_no_old_value() -> None:
    [change] = list_changes({}, {"a": None})
    encoded = dumps(change)  # type: ignore[arg-type]
    assert encoded == b'{"path":"/a","keyPath":"/a","kind":"added","new":null}'


OLD = {
    "rate": "18.4",
    "rates": 1,
    "a/b": {"~": 1},
    "participants": [
        {"pid": "8f3a", "name": "Анна", "docs": [{"id": 1, "no": "x"}, {"id": 2, "no": "y"}]},
        {"pid": "77c1", "name": "Борис", "docs": []},
    ],
    "tags": ["a", "b"],
    "*": 1,
    "[x=y]": 1,
}
NEW = {
    "rate": "17.9",
    "rates": 2,
    "a/b": {"~": 2},
    "participants": [
        {"pid": "77c1", "name": "Борис", "docs": [{"id": 9, "no": "z"}]},
        {"pid": "8f3a", "name": "Ада", "docs": [{"id": 1, "no": "x"}, {"id": 2, "no": "n"}]},
    ],
    "tags": ["a", "c"],
    "*": 2,
    "[x=y]": 2,
}


def list_matching_paths(path: str, old: Any = OLD, new: Any = NEW) -> list[str]:
    return [change.key_path for change in list_changes(old, new) if is_matching(path, change)]


@pytest.mark.parametrize(
    "path, matches",
    [
        ("/rate", ["/rate"]),
        ("/rat", []),
        ("/rate/x", []),
        ("/a~1b", ["/a~1b/~0"]),
        ("/a~1b/~0", ["/a~1b/~0"]),
        ("/tags/1", ["/tags/1"]),
        ("/tags/0", []),
        ("/~4", ["/~4"]),
        ("/~2x=y]", ["/~2x=y]"]),
        ("/participants/[pid=8f3a]/name", ["/participants/[pid=8f3a]/name"]),
        ("/participants/1/name", ["/participants/[pid=8f3a]/name"]),
        ("/participants/0/name", []),
        ("/participants/*/name", ["/participants/[pid=8f3a]/name"]),
        ("/participants/[id=8f3a]/name", []),
        ("/participants/[pid=77c1]/docs/[id=9]/no", ["/participants/[pid=77c1]/docs/[id=9]"]),
        (
            "/participants/*/docs/*/no",
            [
                "/participants/[pid=77c1]/docs/[id=9]",
                "/participants/[pid=8f3a]/docs/[id=2]/no",
            ],
        ),
        ("/participants/[pid=8f3a]/docs/[id=1]", []),
    ],
)
def test_path_filter_matches_only_changes_at_or_below_its_path(
    path: str, matches: list[str]
) -> None:
    assert list_matching_paths(path) == matches


def test_path_filter_of_a_list_matches_changes_of_its_items() -> None:
    assert list_matching_paths("/participants") == [
        "/participants/[pid=77c1]/docs/[id=9]",
        "/participants/[pid=8f3a]",
        "/participants/[pid=8f3a]/name",
        "/participants/[pid=8f3a]/docs/[id=2]/no",
    ]


def test_path_filter_matches_added_or_removed_object_only_if_the_object_has_the_path() -> None:
    new = {"address": {"city": "Казань", "lines": [{"id": 1, "text": "x"}]}}
    assert list_matching_paths("/address/city", {}, new) == ["/address"]
    assert list_matching_paths("/address/city", new, {}) == ["/address"]
    assert list_matching_paths("/address/street", {}, new) == []
    assert list_matching_paths("/address/lines/[id=1]/text", {}, new) == ["/address"]
    assert list_matching_paths("/address/lines/[id=2]/text", {}, new) == []
    assert list_matching_paths("/address/lines/*", {}, new) == ["/address"]
    assert list_matching_paths("/address/city", None, {"address": {"city": "Казань"}}) == [""]


def test_path_filter_below_a_replaced_value_matches_only_if_values_at_the_path_differ() -> None:
    old, new = {"a": [{"b": 1, "c": 1}]}, {"a": {"0": {"b": 1, "c": 2}}}
    assert list_matching_paths("/a/0/c", old, new) == ["/a"]
    assert list_matching_paths("/a/0/b", old, new) == []


@pytest.mark.parametrize("path", ["rate", "~", "/a~", "/a~5", "/a~x", "/[pid]", "/[pid=1", "/["])
def test_text_that_is_not_a_path_is_refused_and_its_mistake_is_named(path: str) -> None:
    with pytest.raises(BadPathError, match=r"~|\[|slash"):
        parse_path(path)


@given(PAIRS)
def test_change_matches_filters_by_its_own_path_and_by_each_higher_path(
    pair: tuple[Any, Any],
) -> None:
    for change in list_changes(*pair):
        segments = change.key_path.split("/")
        for length in range(1, len(segments) + 1):
            assert is_matching("/".join(segments[:length]), change)
        if not any(segment.startswith("[") or segment == "*" for segment in change.path.split("/")):
            assert is_matching(change.path, change)
        assert is_matching("/*" * (len(segments) - 1), change)


@given(PAIRS)
def test_path_filter_of_an_object_field_matches_only_when_the_field_differs(
    pair: tuple[Any, Any],
) -> None:
    old, new = pair
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    for key in [*old, *new]:
        path = "/" + key.replace("~", "~0").replace("/", "~1")
        if key == "*" or key.startswith("["):
            continue
        same = (key in old) == (key in new) and is_equal(old.get(key), new.get(key))
        assert any(is_matching(path, change) for change in list_changes(old, new)) is not same


def test_find_values_selects_the_values_that_a_path_names() -> None:
    assert list(find_values("/participants/[pid=77c1]/name", NEW)) == [
        ("/participants/0/name", "Борис")
    ]
    assert list(find_values("/participants/1/name", NEW)) == [("/participants/1/name", "Ада")]
    assert [value for _, value in find_values("/participants/*/docs/*/no", NEW)] == ["z", "x", "n"]
    assert list(find_values("/a~1b/*", NEW)) == [("/a~1b/~0", 2)]
    assert list(find_values("", 5)) == [("", 5)]
    assert list(find_values("/participants/2", NEW)) == []
    assert list(find_values("/participants/-1", NEW)) == []
    assert list(find_values("/participants/01", NEW)) == []
    assert list(find_values("/rate/x", NEW)) == []
    assert list(find_values("/participants/" + "9" * 5000, NEW)) == []
    assert list(find_values("/[id=true]", [{"id": True}])) == []
    assert list(find_values("/a" * 20_000, {"a": 1})) == []


ODD_LISTS: list[tuple[str, Any, Any, bool]] = [
    # the key moves to another item, and items are matched by their contents
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}, {}], [{"pid": "b", "s": 1}, {}], True),
    # an item moves, or the path has an index
    ("/docs/[pid=a]", [{"pid": n} for n in "abc"], [{"pid": n} for n in "bca"], True),
    ("/docs/0/pid", [{"pid": "a"}, {"pid": "b"}], [{"pid": "b"}, {"pid": "a"}], True),
    ("/docs/1", ["a", "b"], ["new", "a", "b"], True),
    ("/docs/0", ["a", "b"], ["a", "new", "b"], False),
    # the path selects all items
    ("/docs/*/s", [{"pid": "a", "s": 1}, {"s": 9}], [{"s": 9}, {"pid": "a", "s": 1}], False),
    ("/docs/*/s", [{"pid": "a", "s": 1}, {"s": 9}], [{"s": 9}, {"pid": "a", "s": 2}], True),
    ("/docs/*/s", {"0": {"s": 1}}, [{"s": 1}], False),
    ("/docs/*/s", {"0": {"s": 1}}, [{"s": 2}], True),
    ("/docs/*/x", None, [{"s": 2}], False),
]


@pytest.mark.parametrize("path, old, new, touched", ODD_LISTS)
def test_path_filter_selects_one_list_item_by_key_or_index_or_all_items_by_asterisk(
    path: str, old: Any, new: Any, touched: bool
) -> None:
    assert is_touched(path, {"docs": old}, {"docs": new}) is touched
    assert is_touched(path, {"docs": new}, {"docs": old}) is touched


NAMED = st.builds(
    lambda pid, id, inner: {"pid": pid, "id": id, "s": inner},
    st.sampled_from(["a", "b", 7, "7", None]),
    st.sampled_from([1, 2, "1"]),
    st.integers(0, 1),
)
LISTS = st.lists(NAMED | st.just({"s": 0}) | st.just("x"), max_size=4)
ITEM = st.sampled_from(["[pid=a]", "[pid=7]", "[id=1]", "[id=2]", "[none=1]"])


def list_named_values(items: Any, item: str) -> list[Any]:
    """Return the values of the field `s` in all list items that the path segment `item` names.

    This function does not use the path filter, because the tests compare the filter with it.
    """
    field, _, value = item.strip("[]").partition("=")
    return [
        item["s"]
        for item in items
        if isinstance(item, dict)
        and field in item
        and item[field] is not None
        and str(item[field]) == value
    ]


@given(LISTS, LISTS, ITEM)
def test_path_filter_of_a_list_item_matches_only_when_the_selected_values_differ(
    old: Any, new: Any, item: str
) -> None:
    result = is_touched(f"/x/{item}/s", {"x": old}, {"x": new})
    assert result is (list_named_values(old, item) != list_named_values(new, item))
    assert is_different(f"/x/{item}/s", {"x": old}, {"x": new}) is result


@given(PAIRS)
@example(([Decimal("1.0"), 1, Decimal("1.0")], [1, 1, 1]))
def test_comparison_finds_no_changes_only_when_the_json_values_are_equal(
    pair: tuple[Any, Any],
) -> None:
    old, new = pair
    assert (list_changes(old, new) == ()) == is_equal(old, new)


@given(DOCUMENTS)
def test_comparison_of_a_document_with_its_copy_finds_no_changes(document: Any) -> None:
    assert compare_snapshots(document, copy.deepcopy(document)).patch == []


@given(PAIRS)
def test_list_changes_and_make_patch_return_the_same_as_compare_snapshots(
    pair: tuple[Any, Any],
) -> None:
    diff = compare_snapshots(*pair)
    assert (list_changes(*pair), make_patch(*pair)) == (diff.changes, diff.patch)


# A null that moves among other nulls counts as moved, and not as changed.
@example(
    (
        [None, {"pid": "d", "s": 1}, {"pid": "c"}, {"pid": 1}],
        [{"pid": "c"}, None, {"pid": 1}, {"pid": "d", "s": 0}],
    )
)
@given(PAIRS)
def test_path_of_each_change_leads_to_its_value(pair: tuple[Any, Any]) -> None:
    old, new = pair
    for change in list_changes(old, new):
        if change.kind == "removed":
            assert make_exact(resolve_pointer(old, change.path)) == make_exact(change.old)
        else:
            assert make_exact(resolve_pointer(new, change.path)) == make_exact(change.new)
        assert (change.old is MISSING) == (change.kind == "added")
        assert (change.new is MISSING) == (change.kind == "removed")
        if change.kind == "changed":
            assert not is_equal(change.old, change.new)
        if change.kind == "moved":
            assert change.path.rpartition("/")[2] == str(change.to_index)
        else:
            assert change.from_index is MISSING
            assert change.to_index is MISSING


@given(PAIRS)
def test_applying_changes_to_old_snapshot_gives_the_new_snapshot(pair: tuple[Any, Any]) -> None:
    old, new = pair
    for changes in (list_changes(old, new), list_changes(old, new, ListIdentity(keys=()))):
        assert is_equal(ReplayedChanges(changes).replay_value(old, "", ""), new)


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class ReplayedChanges:
    """Computes the new snapshot from the old one and the list of changes, without the patch."""

    def __init__(self, changes: tuple[ValueChange, ...]) -> None:
        self.removed = {change.path for change in changes if change.kind == "removed"}
        self.added = {change.path: change.new for change in changes if change.kind == "added"}
        self.changed = {change.path: change.new for change in changes if change.kind == "changed"}
        self.moved = {
            change.path: change.from_index for change in changes if change.kind == "moved"
        }

    def replay_value(self, old: Any, old_path: str, new_path: str) -> Any:
        if new_path in self.changed:
            return self.changed[new_path]
        if isinstance(old, dict):
            return self.replay_object(old, old_path, new_path)
        if isinstance(old, list):
            return self.replay_list(old, old_path, new_path)
        return old

    def replay_object(self, old: dict[str, Any], old_path: str, new_path: str) -> dict[str, Any]:
        members = {}
        for key, value in old.items():
            segment = _escape(key)
            if f"{old_path}/{segment}" not in self.removed:
                members[key] = self.replay_value(
                    value, f"{old_path}/{segment}", f"{new_path}/{segment}"
                )
        for path, value in self.added.items():
            parent, _, segment = path.rpartition("/")
            if path and parent == new_path:
                members[segment.replace("~1", "/").replace("~0", "~")] = value
        return members

    def replay_list(self, old: list[Any], old_path: str, new_path: str) -> list[Any]:
        old_indexes = [i for i in range(len(old)) if f"{old_path}/{i}" not in self.removed]
        new_paths = {path for path in self.added if path.rpartition("/")[0] == new_path and path}
        length = len(old_indexes) + len(new_paths)
        moved = {to: self.moved.get(f"{new_path}/{to}", -1) for to in range(length)}
        stay = iter([index for index in old_indexes if index not in moved.values()])
        items = []
        for to in range(length):
            if f"{new_path}/{to}" in new_paths:
                items.append(self.added[f"{new_path}/{to}"])
                continue
            origin = moved[to] if moved[to] >= 0 else next(stay)
            items.append(self.replay_value(old[origin], f"{old_path}/{origin}", f"{new_path}/{to}"))
        return items


def apply_patch(document: Any, operations: list[dict[str, Any]]) -> Any:
    return jsonpatch.JsonPatch(operations).apply(copy.deepcopy(document))


@given(PAIRS)
def test_applying_patch_to_old_snapshot_gives_new_snapshot_with_all_digits_of_numbers(
    pair: tuple[Any, Any],
) -> None:
    old, new = pair
    before, after = make_exact(old), make_exact(new)
    operations = make_patch(old, new)
    assert make_exact(apply_patch(old, operations)) == after
    assert make_exact(apply_patch(old, make_patch(old, new, ListIdentity(keys=())))) == after
    assert make_exact(apply_patch(old, loads(dumps(operations)))) == after  # type: ignore[arg-type]
    assert (make_exact(old), make_exact(new)) == (before, after), "the snapshots were modified"


@pytest.mark.parametrize(
    "old, new, operations",
    [
        ({"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
        ({"": 1}, {"": 2}, [{"op": "replace", "path": "/", "value": 2}]),
        ({"a/b~c": 1}, {"a/b~c": 2}, [{"op": "replace", "path": "/a~1b~0c", "value": 2}]),
        ({"rate": 18}, {"percent": 18}, [{"op": "move", "from": "/rate", "path": "/percent"}]),
        (None, {"a": 1}, [{"op": "replace", "path": "", "value": {"a": 1}}]),
        ([1, 2, 3], [2, 3], [{"op": "remove", "path": "/0"}]),
        (["b", "c"], ["a", "b", "c"], [{"op": "add", "path": "/0", "value": "a"}]),
    ],
)
def test_patch_has_the_expected_operations(
    old: Any, new: Any, operations: list[dict[str, Any]]
) -> None:
    patch = make_patch(old, new)
    assert patch == operations
    assert make_exact(apply_patch(old, patch)) == make_exact(new)


def test_patch_replaces_number_that_is_equal_but_has_other_digits() -> None:
    diff = compare_snapshots({"amount": Decimal("1.0")}, {"amount": Decimal("1.00")})
    assert diff.changes == ()
    assert diff.patch == [{"op": "replace", "path": "/amount", "value": Decimal("1.00")}]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [1, 7, 60])
def test_patch_is_not_longer_than_replacing_the_whole_document(name: str, count: int) -> None:
    old, new = SHAPES[name](count)
    operations = make_patch(old, new)
    assert make_exact(jsonpatch.JsonPatch(operations).apply(old)) == make_exact(new)
    assert len(dumps(operations)) <= len(dumps([{"op": "replace", "path": "", "value": new}]))


def test_patch_of_reordered_list_has_the_fewest_possible_moves() -> None:
    old: list[dict[str, Any]] = [{"pid": str(number)} for number in range(9)]
    order = [3, 0, 1, 8, 2, 4, 7, 6, 5]  # 0, 1, 2, 4 and one of 5, 6 and 7 stay
    changes = list_changes(old, [old[number] for number in order])
    assert [change.kind for change in changes] == ["moved"] * 4
