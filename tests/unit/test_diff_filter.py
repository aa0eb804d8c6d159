"""Which changes a `path=` filter lets through, and which values a path means."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from history.diff import BadPath, changes, differs, find, matches, parse, touches
from tests.unit.diff_documents import DOCUMENTS, PAIRS, equal

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


def seen(path: str, old: Any = OLD, new: Any = NEW) -> list[str]:
    return [change.key_path for change in changes(old, new) if matches(path, change)]


@pytest.mark.parametrize(
    "path, found",
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
def test_paths(path: str, found: list[str]) -> None:
    assert seen(path) == found


def test_the_empty_path_is_everything() -> None:
    assert len(seen("")) == len(changes(OLD, NEW)) > 8


def test_a_list_sees_what_happens_to_its_items() -> None:
    assert seen("/participants") == [
        "/participants/[pid=77c1]/docs/[id=9]",
        "/participants/[pid=8f3a]",
        "/participants/[pid=8f3a]/name",
        "/participants/[pid=8f3a]/docs/[id=2]/no",
    ]


def test_a_path_inside_what_came_whole_sees_only_what_it_had() -> None:
    new = {"address": {"city": "Казань", "lines": [{"id": 1, "text": "x"}]}}
    assert seen("/address/city", {}, new) == ["/address"]
    assert seen("/address/city", new, {}) == ["/address"]
    assert seen("/address/street", {}, new) == []
    assert seen("/address/lines/[id=1]/text", {}, new) == ["/address"]
    assert seen("/address/lines/[id=2]/text", {}, new) == []
    assert seen("/address/lines/*", {}, new) == ["/address"]
    assert seen("/address/city", None, {"address": {"city": "Казань"}}) == [""]


def test_a_path_inside_what_was_replaced_sees_only_what_differs() -> None:
    old, new = {"a": [{"b": 1, "c": 1}]}, {"a": {"0": {"b": 1, "c": 2}}}
    assert seen("/a/0/c", old, new) == ["/a"]
    assert seen("/a/0/b", old, new) == []


def test_a_move_changes_nothing_inside() -> None:
    assert seen("/participants/[pid=8f3a]/docs/[id=1]/no") == []


@pytest.mark.parametrize("path", ["rate", "~", "/a~", "/a~5", "/a~x", "/[pid]", "/[pid=1", "/["])
def test_what_is_not_a_path_is_named(path: str) -> None:
    with pytest.raises(BadPath, match=r"~|\[|slash"):
        parse(path)


@given(PAIRS)
def test_every_change_is_found_by_its_own_paths_and_those_above(pair: tuple[Any, Any]) -> None:
    for change in changes(*pair):
        segments = change.key_path.split("/")
        for length in range(1, len(segments) + 1):
            assert matches("/".join(segments[:length]), change)
        if not any(segment.startswith("[") or segment == "*" for segment in change.path.split("/")):
            assert matches(change.path, change)
        assert matches("/*" * (len(segments) - 1), change)


@given(PAIRS)
def test_a_path_into_objects_sees_a_change_iff_its_value_differs(pair: tuple[Any, Any]) -> None:
    old, new = pair
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    for key in [*old, *new]:
        path = "/" + key.replace("~", "~0").replace("/", "~1")
        if key == "*" or key.startswith("["):
            continue
        same = (key in old) == (key in new) and equal(old.get(key), new.get(key))
        assert any(matches(path, change) for change in changes(old, new)) is not same


def test_find() -> None:
    assert list(find("/participants/[pid=77c1]/name", NEW)) == [("/participants/0/name", "Борис")]
    assert list(find("/participants/1/name", NEW)) == [("/participants/1/name", "Ада")]
    assert [value for _, value in find("/participants/*/docs/*/no", NEW)] == ["z", "x", "n"]
    assert list(find("/a~1b/*", NEW)) == [("/a~1b/~0", 2)]
    assert list(find("", 5)) == [("", 5)]
    assert list(find("/participants/2", NEW)) == []
    assert list(find("/participants/-1", NEW)) == []
    assert list(find("/participants/01", NEW)) == []
    assert list(find("/rate/x", NEW)) == []
    assert list(find("/participants/" + "9" * 5000, NEW)) == []
    assert list(find("/[id=true]", [{"id": True}])) == []
    assert list(find("/a" * 20_000, {"a": 1})) == []


ODD_LISTS: list[tuple[str, Any, Any, bool]] = [
    # one item has no key
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}, {"s": 9}], [{"pid": "a", "s": 2}, {"s": 9}], True),
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}, {"s": 8}], [{"s": 9}, {"pid": "a", "s": 1}], False),
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}, 5], [7, {"pid": "a", "s": 2}, 5], True),
    # another item has its key twice
    (
        "/docs/[pid=a]/s",
        [{"pid": "a", "s": 1}, {"pid": "b"}, {"pid": "b"}],
        [{"pid": "b"}, {"pid": "a", "s": 2}],
        True,
    ),
    # two items share the key
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}] * 2, [{"pid": "a", "s": 1}, {"pid": "a"}], True),
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}] * 2, [{"pid": "a", "s": 1}] * 2, False),
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}] * 2, [{"pid": "a", "s": 1}], True),
    # items have both keys, and are matched by the other one
    ("/docs/[id=1]/s", [{"pid": "a", "id": 1, "s": 1}], [{"pid": "a", "id": 1, "s": 2}], True),
    (
        "/docs/[id=1]/s",
        [{"pid": "a", "id": 1, "s": 1}, {"pid": "b", "id": 2, "s": 1}],
        [{"pid": "b", "id": 2, "s": 2}, {"pid": "a", "id": 1, "s": 1}],
        False,
    ),
    ("/docs/[id=1]/s", [{"pid": "a", "id": 1, "s": 1}], [{"pid": "a", "id": 2, "s": 1}], True),
    # any other field names an item too
    ("/docs/[kind=x]/s", [{"kind": "x", "s": 1}], [{"kind": "x", "s": 2}], True),
    # the key goes from one item to the next, and the items are matched by what they hold
    ("/docs/[pid=a]/s", [{"pid": "a", "s": 1}, {}], [{"pid": "b", "s": 1}, {}], True),
    # a move of the item itself, and what an index means
    (
        "/docs/[pid=a]",
        [{"pid": "a"}, {"pid": "b"}, {"pid": "c"}],
        [{"pid": "b"}, {"pid": "c"}, {"pid": "a"}],
        True,
    ),
    ("/docs/0/pid", [{"pid": "a"}, {"pid": "b"}], [{"pid": "b"}, {"pid": "a"}], True),
    ("/docs/1", ["a", "b"], ["new", "a", "b"], True),
    ("/docs/0", ["a", "b"], ["a", "new", "b"], False),
    # any item
    ("/docs/*/s", [{"pid": "a", "s": 1}, {"s": 9}], [{"s": 9}, {"pid": "a", "s": 1}], False),
    ("/docs/*/s", [{"pid": "a", "s": 1}, {"s": 9}], [{"s": 9}, {"pid": "a", "s": 2}], True),
    ("/docs/*/s", {"0": {"s": 1}}, [{"s": 1}], False),
    ("/docs/*/s", {"0": {"s": 1}}, [{"s": 2}], True),
    ("/docs/*/s", None, [{"s": 2}], True),
    ("/docs/*/x", None, [{"s": 2}], False),
]


@pytest.mark.parametrize("path, old, new, touched", ODD_LISTS)
def test_an_item_is_found_by_its_key_whatever_else_the_list_holds(
    path: str, old: Any, new: Any, touched: bool
) -> None:
    assert touches(path, {"docs": old}, {"docs": new}) is touched
    assert touches(path, {"docs": new}, {"docs": old}) is touched


NAMED = st.builds(
    lambda pid, id, inner: {"pid": pid, "id": id, "s": inner},
    st.sampled_from(["a", "b", 7, "7", None]),
    st.sampled_from([1, 2, "1"]),
    st.integers(0, 1),
)
LISTS = st.lists(NAMED | st.just({"s": 0}) | st.just("x"), max_size=4)
ITEM = st.sampled_from(["[pid=a]", "[pid=7]", "[id=1]", "[id=2]", "[none=1]"])


def named(items: Any, item: str) -> list[Any]:
    """What stands in `s` of the items that a segment names; nothing borrowed from the filter."""
    field, _, value = item.strip("[]").partition("=")
    return [
        one["s"]
        for one in items
        if isinstance(one, dict)
        and field in one
        and one[field] is not None
        and str(one[field]) == value
    ]


@given(LISTS, LISTS, ITEM)
def test_a_key_path_is_touched_iff_what_it_selects_differs(old: Any, new: Any, item: str) -> None:
    found = touches(f"/x/{item}/s", {"x": old}, {"x": new})
    assert found is (named(old, item) != named(new, item))
    assert differs(f"/x/{item}/s", {"x": old}, {"x": new}) is found


@given(PAIRS)
def test_every_change_touches_its_own_paths(pair: tuple[Any, Any]) -> None:
    for change in changes(*pair):
        assert touches(change.key_path, *pair)
        assert touches("", *pair)


@given(DOCUMENTS)
def test_a_copy_differs_nowhere(document: Any) -> None:
    for path in ("", "/*", "/*/*", "/[pid=a]/*", "/0"):
        assert not touches(path, document, deepcopy(document))
