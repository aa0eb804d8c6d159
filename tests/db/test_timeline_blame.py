"""Who last changed what: blame, one field's history, the state at a moment."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection

from history import timeline
from history.diff import MISSING
from history.entities import ROOT
from history.record import ChangeType
from history.timeline import (
    BadParameterError,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
    Query,
)
from history.timeline.sources import statements
from tests.db.store import T0, Store, minute, queries


def blamed(id: str = "A1") -> dict[str, int]:
    return {leaf.path: leaf.origin.version for leaf in timeline.blame(ROOT, id).leaves}


def test_each_leaf_with_the_version_that_last_changed_it(store: Store) -> None:
    states = [
        {"rate": "1", "who": {"name": "a", "age": 1}, "tags": ["x", "y"], "gone": 1},
        {"rate": "2", "who": {"name": "a", "age": 2}, "tags": ["x", "y"], "gone": 1},
        {"rate": "1", "who": {"name": "a", "age": 2}, "tags": ["new", "x", "y"]},
        {"rate": "1", "who": {"name": "a", "age": 2}, "tags": ["new", "x", "y"], "empty": {}},
    ]
    for version, state in enumerate(states):
        store.add("A1", version, state, version)
    assert blamed() == {
        "/rate": 2,  # changed to 2 and back
        "/who/name": 0,
        "/who/age": 1,
        "/tags/0": 2,
        "/tags/1": 0,
        "/tags/2": 0,
        "/empty": 3,
    }


def test_list_items_are_followed_by_their_key(store: Store) -> None:
    store.add("A1", 0, {"items": [{"pid": "a", "n": 1}, {"pid": "b", "n": 1}]}, 0)
    store.add("A1", 1, {"items": [{"pid": "b", "n": 2}, {"pid": "a", "n": 1}]}, 1)
    store.add(
        "A1", 2, {"items": [{"pid": "c", "n": 1}, {"pid": "b", "n": 2}, {"pid": "a", "n": 1}]}, 2
    )
    assert blamed() == {
        "/items/0/pid": 2, "/items/0/n": 2,
        "/items/1/pid": 0, "/items/1/n": 1,
        "/items/2/pid": 0, "/items/2/n": 0,
    }  # fmt: skip


def test_blame_agrees_with_comparing_every_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history.timeline.paging.BATCH", 7)
    names = "abcdefgh"
    state = dict.fromkeys(names, 0)
    expected = dict.fromkeys(names, 0)
    store.add("A1", 0, state, 0)
    for version in range(1, 60):
        name = names[(version * version) % 8]
        state = {**state, name: version}
        expected[name] = version
        store.add("A1", version, state, version)
    assert blamed() == {f"/{name}": version for name, version in expected.items()}


def test_blame_says_where_it_cannot_know(store: Store) -> None:
    store.add("A1", 3, {"a": 1, "b": 1, "c": 1}, 3)
    store.add("A1", 4, {"a": 1, "b": 2, "c": 1}, 4)
    store.add("A1", 7, {"a": 1, "b": 2, "c": 2}, 7)
    found = {
        leaf.path: (leaf.origin.version, leaf.origin.exact)
        for leaf in timeline.blame(ROOT, "A1").leaves
    }
    assert found == {"/a": (3, False), "/b": (4, True), "/c": (7, False)}


def test_blame_of_a_deleted_and_of_a_deep_document(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "null", 1, type=ChangeType.DELETE)
    assert blamed() == {"": 1}
    deep = '{"a":' * 400 + "1" + "}" * 400
    store.add("B1", 0, deep, 0)
    store.add("B1", 1, deep.replace("1", "2"), 1)
    assert list(blamed("B1").values()) == [1]
    with pytest.raises(NoVersionError):
        timeline.blame(ROOT, "nobody")


def test_a_field_with_each_value_since_when_by_whom(store: Store) -> None:
    rates = [None, "1", "1", "2", None, "1"]
    for version, rate in enumerate(rates):
        state = {"x": version} | ({"rate": rate} if rate else {})
        store.add("A1", version, state, version, author=f"author{version}")
    found = timeline.field(ROOT, "A1", "/rate")
    assert [(value.value, value.origin.version, value.until) for value in found.values] == [
        ("1", 5, None),
        (MISSING, 4, minute(5)),
        ("2", 3, minute(4)),
        ("1", 1, minute(3)),
    ]
    assert found.values[2].origin.author is not None
    assert found.values[2].origin.author.login == "author3"
    assert found.label is not None
    assert timeline.field(ROOT, "A1", "/never").values == ()


@pytest.mark.parametrize("scan", [3, 1000])
def test_a_field_in_pages(store: Store, monkeypatch: pytest.MonkeyPatch, scan: int) -> None:
    monkeypatch.setattr("history.timeline.paging.SCAN", scan)
    for version in range(30):
        store.add("A1", version, {"rate": version // 4, "x": version}, version)
    seen = []
    token = None
    while True:
        page = timeline.field(ROOT, "A1", "/rate", 2, token)
        seen += [(value.value, value.origin.version, value.until) for value in page.values]
        token = page.next_token
        if token is None:
            break
    expected = [(n, n * 4, minute(n * 4 + 4) if n < 7 else None) for n in range(8)]
    assert seen == expected[::-1]


def test_a_field_inside_a_list_by_key(store: Store) -> None:
    store.add("A1", 0, {"items": [{"pid": "a", "n": 1}, {"pid": "b", "n": 1}]}, 0)
    store.add("A1", 1, {"items": [{"pid": "b", "n": 2}, {"pid": "a", "n": 1}]}, 1)
    values = timeline.field(ROOT, "A1", "/items/[pid=b]/n").values
    assert [(value.value, value.origin.version) for value in values] == [(2, 1), (1, 0)]
    for bad in ("rate", "/items/*/n", "/[x"):
        with pytest.raises(BadParameterError, match="path"):
            timeline.field(ROOT, "A1", bad)
    with pytest.raises(NoVersionError):
        timeline.field(ROOT, "nobody", "/rate")


def test_as_of_a_moment(store: Store) -> None:
    store.add("A1", 0, {"n": 0}, 0)
    store.add("A1", 2, {"n": 2}, 5)
    store.add("A1", 1, {"n": 1}, 9)  # late, and yet older than version 2
    for at, version in ((0, 0), (4, 0), (5, 2), (9, 2), (99, 2)):
        assert timeline.at(ROOT, "A1", minute(at)).version == version
    with pytest.raises(NoVersionError):
        timeline.at(ROOT, "A1", minute(-1))
    store.add("B1", 8, {"createdAt": (T0 - timedelta(days=300)).isoformat()}, 0)
    with pytest.raises(OlderThanRetentionError):
        timeline.at(ROOT, "B1", minute(-1))


def in_pages(path: str, size: int) -> list[tuple[object, int, object]]:
    seen: list[tuple[object, int, object]] = []
    token = None
    while True:
        page = timeline.field(ROOT, "A1", path, size, token)
        seen += [(value.value, value.origin.version, value.until) for value in page.values]
        token = page.next_token
        if token is None:
            return seen


@pytest.mark.parametrize("scan", [1, 2, 1000])
@pytest.mark.parametrize("size", [1, 2, 50])
def test_pages_of_a_field_leave_out_a_twin_that_nothing_was_compared_with(
    store: Store, monkeypatch: pytest.MonkeyPatch, scan: int, size: int
) -> None:
    monkeypatch.setattr("history.timeline.paging.SCAN", scan)
    monkeypatch.setattr("history.timeline.paging.BATCH", 2)
    for version, at, value in ((1, 1, "a"), (2, 4, "b"), (2, 6, "x"), (3, 5, "c")):
        store.add("A1", version, {"rate": value}, at)
    assert in_pages("/rate", size) == [("c", 3, None), ("b", 2, minute(5)), ("a", 1, minute(4))]


def test_pages_of_a_field_go_on_where_retention_has_removed_the_next_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in range(4):
        store.add("A1", version, {"rate": version}, version)
    first = timeline.field(ROOT, "A1", "/rate", 1)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM product_instance_aud WHERE version = 2")
    rest = timeline.field(ROOT, "A1", "/rate", 50, first.next_token)
    assert [value.value for value in rest.values] == [1, 0]


@pytest.mark.parametrize("versions", [range(0, 1200, 2), range(600)], ids=["gaps", "dense"])
def test_blame_reads_each_version_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, versions: range
) -> None:
    for version in versions:
        store.add("A1", version, {"old": 1, "new": version}, version / 60)
    read: list[int] = []
    plain = statements.fetch

    def fetch(*args: Any) -> list[tuple[Any, ...]]:
        found = plain(*args)
        read.append(len(found))
        return found

    monkeypatch.setattr(statements, "fetch", fetch)
    assert blamed() == {"/old": 0, "/new": versions[-1]}
    # All keys, and each version; only where a batch ends one is read a second time.
    assert sum(read) <= 2 * len(versions) + 10
    assert len(read) <= 6


def test_blame_of_many_leaves_looks_once_at_the_version_that_set_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With an archive, the list of archived days is asked. No file is read.
    archived = msgspec.structs.replace(settings.ANNALS, archive_url="/nowhere")
    monkeypatch.setattr(settings, "ANNALS", archived)
    store.add("A1", 7, {f"field{number}": number for number in range(200)}, 0)
    store.add("A2", 7, {"field0": 0}, 0)
    parsed: list[bytes] = []
    blaming = import_module("history.timeline.blame")  # the package has a function of this name
    plain = blaming.parse

    def parse(snapshot: bytes) -> object:
        parsed.append(snapshot)
        return plain(snapshot)

    monkeypatch.setattr(blaming, "parse", parse)
    said: dict[str, int] = {}
    for id in ("A2", "A1"):
        blamed(id)  # reads the labels
        parsed.clear()
        with queries(monkeypatch) as statements:
            assert set(blamed(id).values()) == {7}
        said[id] = len(statements)
        assert len(parsed) == 2  # the newest, and the version that set its leaves
    assert said["A1"] == said["A2"]


@pytest.mark.parametrize(
    "path, states",
    [
        ("/docs/[pid=a]/s", [[{"pid": "a", "s": 1}, {"s": 9}], [{"pid": "a", "s": 2}, {"s": 9}]]),
        ("/docs/[pid=a]/s", [[{"pid": "a", "s": 1}, {"pid": "a"}], [{"pid": "a"}]]),
        ("/docs/[id=1]/s", [[{"pid": "a", "id": 1, "s": 1}], [{"pid": "a", "id": 1, "s": 2}]]),
        ("/docs/[pid=a]/s", [[{"pid": "a", "s": 1}, 5], [{"pid": "b", "s": 1}, 5]]),
        ("/docs/1", [["a", "b"], ["new", "a", "b"]]),
    ],
)
def test_the_filter_and_the_field_mean_the_same_by_a_path(
    store: Store, path: str, states: list[Any]
) -> None:
    for version, docs in enumerate([*states, states[-1], *states[::-1]]):
        store.add("A1", version, {"docs": docs, "x": version}, version)
    query = Query(entity=ROOT, id="A1", filters=Filters(path=path))
    kept = [version.version for version in timeline.page(query).versions]
    assert kept == [4, 1]
    # The first version changed nothing, but its value is one of the field's.
    assert [value.origin.version for value in timeline.field(ROOT, "A1", path).values] == [4, 1, 0]
