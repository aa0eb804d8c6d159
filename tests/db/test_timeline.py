"""A timeline: order, pages, neighbours, exact numbers."""

import pytest
from django.db import connection

from history import timeline
from history.entities import ROOT
from history.record import ChangeType
from history.requests import deadline
from history.timeline import (
    BadParameterError,
    Filters,
    Order,
    Query,
    Sort,
    compose,
)
from history.timeline.neighbours import Document
from history.timeline.row import LAST, Key
from tests.db.store import HOST, Store, minute, queries


def numbers(versions: object) -> list[int]:
    return [version.version for version in versions]  # type: ignore[attr-defined]


def page(**parameters: object) -> timeline.Page:
    return timeline.page(HOST, Query(**{"entity": ROOT, "id": "A1", **parameters}))  # type: ignore[arg-type]


@pytest.fixture
def seven(store: Store) -> Store:
    """Versions 0 to 6, one a minute; each raises the rate."""
    for version in range(7):
        store.add("A1", version, {"rate": version, "name": "x"}, version)
    return store


def test_a_gap_of_millions_is_a_range(store: Store) -> None:
    store.add("A1", 0, {}, 0)
    store.add("A1", 2_147_483_647, {"n": 1}, 1)
    (newest, _) = page().versions
    assert newest.previous_version == 0
    assert len(newest.missing) == 2_147_483_646


def test_a_document_that_python_cannot_hold_is_compared_as_a_whole(store: Store) -> None:
    store.add("A1", 0, {"n": 1}, 0)
    store.add("A1", 1, "[" * 3000 + "]" * 3000, 1)
    store.add("A1", 2, {"n": 2}, 2)
    found = page().versions
    assert [[op["op"] for op in v.patch or []] for v in found] == [["replace"], ["replace"], []]


def test_the_end_of_a_request_is_seen_at_each_version(seven: Store) -> None:
    [newest] = Document.of(HOST, ROOT, "A1", [LAST], 2).pairs(Key(6, minute(6)))
    checks: list[None] = []
    with deadline.limited(work := deadline.Work()):
        work.also = lambda: checks.append(None)
        compose.versions(HOST, [newest], frozenset())
        few = len(checks)
        compose.versions(HOST, [newest] * 5, frozenset())
    assert (few, len(checks)) == (1, 6)


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
    assert len(kept) == 2  # with filters that leave rows out, and without
    assert sum(kept) >= 4
