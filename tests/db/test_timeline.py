"""A timeline: order, pages, neighbours, exact numbers; and what a reader gets when a day leaves, or
a version comes, between two statements."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from history import timeline
from history.daily.days import partition_name
from history.entities import BY_NAME, ENTITIES, ROOT, Entity
from history.record import ChangeType
from history.requests import deadline
from history.timeline import (
    BadParameterError,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
    Order,
    Query,
    Sort,
    compose,
)
from history.timeline.keys import Document
from history.timeline.sources import statements
from history.versions import LAST, Key
from tests.db.screens import A1, WHOLE
from tests.db.store import HOST, T0, Store, minute, queries


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


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something right after the first (or n-th) statement that contains a text."""

    def arrange(text: str, action: Callable[[], None], which: int = 1) -> None:
        plain, seen = statements.fetch, [0]

        def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            found = plain(statement, values)
            seen[0] += text in statement
            if text in statement and seen[0] == which:
                action()
            return found

        monkeypatch.setattr(statements, "fetch", fetch)

    return arrange


def leave(*entities: Entity) -> Callable[[], None]:
    """The day of T0 leaves the tables, as retention drops it."""

    def drop() -> None:
        with connection.cursor() as cursor:
            for entity in entities or ENTITIES:
                cursor.execute(f"DROP TABLE IF EXISTS {partition_name(entity.table, T0.date())}")

    return drop


@pytest.fixture
def loan(store: Store) -> Store:
    """Versions 0 to 2 on one day, 3 to 5 on the day of T0."""
    for version in range(6):
        day = 0 if version > 2 else -24 * 60
        store.add("A1", version, {"rate": version}, day + version)
    return store


TASK = BY_NAME["product-task"]
MERGED = "page AS MATERIALIZED ("
KEYS = "WITH keys AS MATERIALIZED"


def test_the_day_leaves_after_the_places_of_a_merged_page_were_read(
    loan: Store, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("history.timeline.budget.BATCH", 3)
    after(MERGED, leave())
    query = Query(id="A1", filters=Filters(path="/rate"))
    assert [each.version for each in timeline.page(HOST, query).versions] == [
        2,
        1,
    ]


def test_the_day_leaves_within_a_merged_page(loan: Store, after: Any) -> None:
    after(MERGED, leave())
    page = timeline.page(HOST, Query(id="A1", page_size=3))
    assert [each.version for each in page.versions] == [2, 1, 0]
    assert page.next_token is None


def test_the_day_leaves_after_the_keys_were_read(loan: Store, after: Any) -> None:
    """A version comes with them, and the one before it."""
    after(KEYS, leave(ROOT))
    found = timeline.version(HOST, ROOT, "A1", 5)
    assert (found.version, found.previous_version) == (5, 4)
    assert [operation["path"] for operation in found.patch or ()] == ["/rate"]


def test_the_day_leaves_before_large_documents_were_read(
    loan: Store, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one of them comes with the keys."""
    monkeypatch.setattr(statements, "READ_BYTES", 1)
    after(KEYS, leave(ROOT))
    with pytest.raises(OlderThanRetentionError):
        timeline.compare(HOST, ROOT, "A1", 4, 5)


def test_the_first_version_comes_after_an_empty_page_was_read(store: Store, after: Any) -> None:
    after("FROM product_instance_aud", lambda: store.add("A1", 0, {"rate": 1}, 0))
    with pytest.raises(NoVersionError):
        timeline.page(HOST, Query(entity=ROOT, id="A1"))
    assert len(timeline.page(HOST, Query(entity=ROOT, id="A1")).versions) == 1


@pytest.mark.parametrize("address", [A1, WHOLE, f"{A1}state/", f"{A1}compare/"])
def test_the_screens_of_an_entity_whose_first_version_comes_late(
    store: Store, support: Client, after: Any, address: str
) -> None:
    after("FROM product_instance_aud", lambda: store.add("A1", 0, {"rate": 1}, 0))
    assert support.get(address).status_code in (200, 404)
    assert support.get(address).status_code == 200


@pytest.mark.parametrize("address", [A1, WHOLE, f"{A1}state/", f"{A1}compare/"])
@pytest.mark.parametrize("statement", [1, 2, 3, 4])
def test_the_screens_of_an_entity_that_leaves_whole(
    store: Store, support: Client, after: Any, address: str, statement: int
) -> None:
    store.add("A1", 0, {"rate": 1}, 0)
    store.add("A1", 2, {"rate": 1}, 1)
    after("product_instance_aud", leave(), statement)
    assert support.get(address).status_code in (200, 404)
