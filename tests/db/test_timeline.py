"""A timeline: order, pages, neighbours, exact numbers."""

from __future__ import annotations

from datetime import timedelta

import jsonpatch
import pytest
from django.db import connection

from history import timeline
from history.documents.exactjson import dumps, loads
from history.entities import ROOT
from history.record import ChangeType
from history.timeline import (
    Absence,
    BadParameterError,
    Filters,
    Include,
    NoVersionError,
    OlderThanRetentionError,
    Order,
    Query,
    Sort,
    Version,
)
from tests.db.store import T0, Store, minute, queries


def numbers(versions: object) -> list[int]:
    return [version.version for version in versions]  # type: ignore[attr-defined]


def page(**parameters: object) -> timeline.Page:
    return timeline.page(Query(**{"entity": ROOT, "id": "A1", **parameters}))  # type: ignore[arg-type]


def walk(**parameters: object) -> list[Version]:
    """All pages, one after another."""
    found: list[Version] = []
    token = None
    while True:
        part = page(page_token=token, **parameters)
        found.extend(part.versions)
        token = part.next_token
        if token is None:
            return found


@pytest.fixture
def seven(store: Store) -> Store:
    """Versions 0 to 6, one a minute; each raises the rate."""
    for version in range(7):
        store.add("A1", version, {"rate": version, "name": "x"}, version)
    return store


def test_newest_first_and_each_with_what_changed(seven: Store) -> None:
    found = page()
    assert numbers(found.versions) == [6, 5, 4, 3, 2, 1, 0]
    assert found.next_token is None
    newest, first = found.versions[0], found.versions[-1]
    assert newest.previous_version == 5
    assert newest.patch == [{"op": "replace", "path": "/rate", "value": 6}]
    (change,) = newest.changes
    assert (change.change.path, change.change.old, change.change.new) == ("/rate", 5, 6)
    assert change.label is not None
    assert change.label.russian == "Процентная ставка"
    assert (first.previous_version, first.patch, first.changes) == (None, None, ())
    assert first.older is None
    assert first.type is ChangeType.CREATE


@pytest.mark.parametrize("sort", Sort)
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 500])
def test_pages_lose_and_repeat_nothing(seven: Store, sort: Sort, order: Order, size: int) -> None:
    found = walk(sort=sort, order=order, page_size=size)
    expected = list(range(7))
    assert numbers(found) == (expected if order is Order.ASC else expected[::-1])
    assert [version.previous_version for version in found] == [
        number - 1 if number else None for number in numbers(found)
    ]
    assert all(v.patch == [{"op": "replace", "path": "/rate", "value": v.version}]
               for v in found if v.version)  # fmt: skip


def test_versions_of_one_moment_are_all_there(store: Store) -> None:
    for version in range(5):
        store.add("A1", version, {"n": version}, 0)
    assert numbers(walk(page_size=2)) == [4, 3, 2, 1, 0]
    assert numbers(walk(page_size=2, order=Order.ASC)) == [0, 1, 2, 3, 4]


def test_late_arrivals_are_compared_by_version_number(store: Store) -> None:
    store.add("A1", 0, {"n": "0"}, 0)
    store.add("A1", 2, {"n": "2"}, 1)
    before = {v.version: v for v in page().versions}
    assert (before[2].previous_version, list(before[2].missing)) == (0, [1])
    store.add("A1", 1, {"n": "1"}, 5)  # its clock was wrong, or it was written again late
    found = page().versions
    assert numbers(found) == [1, 2, 0]
    after = {v.version: v for v in found}
    assert (after[2].previous_version, list(after[2].missing)) == (1, [])
    assert after[2].patch == [{"op": "replace", "path": "/n", "value": "2"}]
    assert after[1].previous_version == 0
    assert numbers(page(sort=Sort.VERSION).versions) == [2, 1, 0]
    for size in (1, 2):
        alone = {v.version: v.previous_version for v in walk(page_size=size)}
        assert alone == {2: 1, 1: 0, 0: None}


def test_a_gap_of_millions_is_a_range(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 2_147_483_647, {"n": 1}, 1)
    (newest, _) = page().versions
    assert newest.previous_version == 0
    assert len(newest.missing) == 2_147_483_646


def test_a_number_given_twice_is_shown_twice(store: Store) -> None:
    store.add("A1", 0, {"n": 0}, 0)
    store.add("A1", 1, {"n": "first"}, 1)
    store.add("A1", 1, {"n": "second"}, 3)
    store.add("A1", 2, {"n": 2}, 2)
    store.add("A1", 3, {"n": 3}, 4)
    for size in (1, 2, 50):
        found = walk(page_size=size)
        assert [(v.version, v.previous_version) for v in found] == [
            (3, 2), (1, 0), (2, 1), (1, 0), (0, None),
        ]  # fmt: skip
        two = found[2]
        assert two.previous_updated_at == minute(1)  # not the younger twin
        assert two.changes[0].change.old == "first"
    assert timeline.version(ROOT, "A1", 1).updated_at == minute(3)


def test_first_stored_version_says_why_it_is_first(store: Store) -> None:
    recently, long_ago = T0.isoformat(), (T0 - timedelta(days=200)).isoformat()
    store.add("kept", 4, {"createdAt": long_ago}, 0)
    store.add("lost", 4, {"createdAt": recently}, 0)
    store.add("both", 4, {}, 0)
    store.add("made", 4, {}, 0, type=ChangeType.CREATE)
    store.add("zero", 0, {}, 0, type=ChangeType.UPDATE)
    reasons = {id: page(id=id).versions[0].older for id in ("kept", "lost", "both", "made", "zero")}
    assert reasons == {
        "kept": Absence.REMOVED,
        "lost": Absence.NEVER_ARRIVED,
        "both": Absence.UNKNOWN,
        "made": Absence.UNKNOWN,  # CREATE, but of a second life
        "zero": None,
    }


def test_numbers_stay_exact(store: Store) -> None:
    text = '{"a": 12345678901234567890.10, "b": 1.00, "c": 900719925474099312345}'
    store.add("A1", 0, '{"a": 1, "b": 1.0, "c": 0}', 0)
    store.add("A1", 1, text, 1)
    newest = page().versions[0]
    assert loads(newest.snapshot) == loads(text)
    assert b"12345678901234567890.10" in newest.snapshot
    again = loads(dumps(jsonpatch.apply_patch({"a": 1}, newest.patch)))
    assert str(again) == str(loads(text))


def test_a_document_that_python_cannot_hold_is_compared_as_a_whole(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "[" * 3000 + "]" * 3000, 1)
    store.add("A1", 2, {"n": 2}, 2)
    found = page().versions
    assert [[op["op"] for op in v.patch or []] for v in found] == [["replace"], ["replace"], []]


def test_deleted_with_null(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "null", 1, type=ChangeType.DELETE)
    newest = page().versions[0]
    assert newest.patch == [{"op": "replace", "path": "", "value": None}]
    assert newest.snapshot == b"null"


def test_filters_combine(store: Store) -> None:
    for version in range(12):
        store.add(
            "A1", version, {"n": version}, version,
            author=("anna", "boris", None)[version % 3], client=("crm", "web")[version % 2],
        )  # fmt: skip
    assert numbers(walk(filters=Filters(author="anna"), page_size=2)) == [9, 6, 3, 0]
    assert numbers(walk(filters=Filters(author="anna", client_id="web"))) == [9, 3]
    assert numbers(walk(filters=Filters(type=ChangeType.CREATE))) == [0]
    span = Filters(since=minute(3), until=minute(6))
    assert numbers(walk(filters=span, page_size=1)) == [5, 4, 3]
    assert numbers(walk(filters=span, order=Order.ASC, sort=Sort.VERSION)) == [3, 4, 5]
    # What is left out between two shown versions is still what they are compared with.
    assert {v.version: v.previous_version for v in walk(filters=Filters(author="anna"))} == {
        9: 8, 6: 5, 3: 2, 0: None,
    }  # fmt: skip
    assert walk(filters=Filters(author="nobody")) == []


def test_path_filter_shows_what_changed_it(store: Store) -> None:
    items = [{"pid": "p1", "sum": 1}, {"pid": "p2", "sum": 2}]
    states = [
        {"rate": "1", "items": items},
        {"rate": "2", "items": items},
        {"rate": "2", "items": [items[1], items[0]]},
        {"rate": "2", "items": [{"pid": "p2", "sum": 9}, items[0]]},
        {"rate": "3", "items": []},
    ]
    for version, state in enumerate(states):
        store.add("A1", version, state, version)
    assert numbers(walk(filters=Filters(path="/rate"))) == [4, 1]
    assert numbers(walk(filters=Filters(path="/items/[pid=p2]/sum"))) == [4, 3]
    assert numbers(walk(filters=Filters(path="/items"), page_size=1)) == [4, 3, 2]
    assert numbers(walk(filters=Filters(path="/rate"), order=Order.ASC, page_size=1)) == [1, 4]
    assert walk(filters=Filters(path="/nowhere")) == []
    with pytest.raises(BadParameterError, match="path"):
        page(filters=Filters(path="rate"))


def test_path_filter_gives_back_what_it_has_and_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history.timeline.paging.BATCH", 4)
    monkeypatch.setattr("history.timeline.paging.SCAN", 8)
    for version in range(30):
        store.add("A1", version, {"n": version, "rate": version // 10}, version)
    first = page(filters=Filters(path="/rate"), page_size=1)
    assert first.versions == ()
    assert first.next_token is not None
    for order, expected in ((Order.DESC, [20, 10]), (Order.ASC, [10, 20])):
        found = walk(filters=Filters(path="/rate"), page_size=1, order=order)
        assert numbers(found) == expected


def test_a_token_fits_its_own_question_only(seven: Store) -> None:
    token = page(page_size=2).next_token
    assert token is not None
    assert token.startswith("v1:")
    assert numbers(page(page_token=token, page_size=3).versions) == [4, 3, 2]
    seven.add("B1", 0, {}, 0)
    for other in (
        {"id": "B1"},
        {"sort": Sort.VERSION},
        {"order": Order.ASC},
        {"filters": Filters(author="m.ivanov")},
        {"page_token": token[:-1] + ("A" if token[-1] != "A" else "B")},
        {"page_token": token.replace("v1:", "")},
        {"page_token": "v1:"},
        {"page_token": "v1:é"},
    ):
        with pytest.raises(BadParameterError, match="pageToken"):
            page(**{"page_token": token, **other})


def test_new_versions_between_pages_change_nothing_already_begun(seven: Store) -> None:
    first = page(page_size=3)
    seven.add("A1", 7, {"rate": 7}, 7)
    rest = page(page_size=50, page_token=first.next_token)
    assert numbers([*first.versions, *rest.versions]) == [6, 5, 4, 3, 2, 1, 0]


def test_nothing_to_show_says_why(seven: Store) -> None:
    with pytest.raises(NoVersionError):
        page(id="nobody")
    with pytest.raises(NoVersionError):
        page(id="x" * 33)
    with pytest.raises(NoVersionError):
        page(id="a\0b")
    with pytest.raises(OlderThanRetentionError):
        page(filters=Filters(until=T0 - timedelta(days=300)))
    assert page(filters=Filters(since=minute(60))).versions == ()


def test_a_version_alone(seven: Store) -> None:
    found = timeline.version(ROOT, "A1", 3)
    assert (found.version, found.previous_version) == (3, 2)
    assert found == next(v for v in page().versions if v.version == 3)
    with pytest.raises(NoVersionError):
        timeline.version(ROOT, "A1", 99)
    with pytest.raises(NoVersionError):
        timeline.version(ROOT, "nobody", 0)


def test_a_version_removed_by_retention_differs_from_one_that_never_was(store: Store) -> None:
    store.add("A1", 5, {"createdAt": (T0 - timedelta(days=300)).isoformat()}, 0)
    store.add("A1", 7, {}, 1)
    store.add("B1", 5, {"createdAt": T0.isoformat()}, 0)
    with pytest.raises(OlderThanRetentionError):
        timeline.version(ROOT, "A1", 2)
    with pytest.raises(NoVersionError):
        timeline.version(ROOT, "A1", 6)
    with pytest.raises(NoVersionError):
        timeline.version(ROOT, "B1", 2)


def test_any_two_versions_compared_in_either_direction(seven: Store) -> None:
    found = timeline.compare(ROOT, "A1", 1, 5)
    assert (found.before.version, found.after.version) == (1, 5)
    assert found.patch == [{"op": "replace", "path": "/rate", "value": 5}]
    back = timeline.compare(ROOT, "A1", 5, 1)
    assert jsonpatch.apply_patch(loads(back.before.snapshot), back.patch) == loads(
        back.after.snapshot
    )
    assert timeline.compare(ROOT, "A1", 2, 2).patch == []
    with pytest.raises(NoVersionError):
        timeline.compare(ROOT, "A1", 1, 99)


def test_only_what_is_asked_for(seven: Store) -> None:
    plain = page(include=frozenset({Include.ENTITY})).versions[0]
    assert (plain.patch, plain.changes, plain.previous_version) == (None, (), 5)
    patched = page(include=frozenset({Include.DIFF})).versions[0]
    assert (patched.patch, patched.changes) == (
        [{"op": "replace", "path": "/rate", "value": 6}],
        (),
    )
    changed = page(include=frozenset({Include.CHANGES})).versions[0]
    assert changed.patch is None
    assert len(changed.changes) == 1


@pytest.mark.parametrize("size", [2, 5, 100])
@pytest.mark.parametrize("filters", [Filters(), Filters(author="m.ivanov")])
@pytest.mark.parametrize("sort", Sort)
def test_a_page_takes_a_fixed_number_of_queries(
    seven: Store, monkeypatch: pytest.MonkeyPatch, size: int, filters: Filters, sort: Sort
) -> None:
    page()  # the catalogue of labels is fresh now
    token = page(page_size=2, filters=filters, sort=sort).next_token
    with queries(monkeypatch) as said:
        page(page_size=size, filters=filters, sort=sort, page_token=token)
    assert len(said) <= 4, said
    asked = [text.upper().replace("OFFSET 0)", "") for text in said]  # this one skips no row
    assert not [text for text in asked if "OFFSET" in text or "COUNT(" in text]


def test_statements_are_prepared_and_keep_their_shape(seven: Store) -> None:
    for filters in (
        Filters(),
        Filters(author="anna"),
        Filters(type=ChangeType.UPDATE, since=minute(1)),
        Filters(client_id="crm", until=minute(5)),
    ):
        page(filters=filters, page_size=2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement, generic_plans FROM pg_prepared_statements")
        kept = [count for text, count in cursor.fetchall() if "ORDER BY updated_at desc" in text]
    assert len(kept) == 1
    assert kept[0] >= 4
