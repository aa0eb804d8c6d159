"""What a reader gets when a day leaves, or a version comes, between two statements."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from history import timeline
from history.daily.days import partition_name
from history.entities import BY_NAME, ENTITIES, ROOT, Entity
from history.timeline import (
    ApplicationQuery,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
    Query,
)
from history.timeline.sources import statements
from tests.db.screens import A1, WHOLE
from tests.db.store import HOST, T0, Store


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
    query = ApplicationQuery(id="A1", filters=Filters(path="/rate"))
    assert [each.version for each in timeline.application(HOST, query).versions] == [
        2,
        1,
    ]


def test_the_day_leaves_within_a_merged_page(loan: Store, after: Any) -> None:
    after(MERGED, leave())
    page = timeline.application(HOST, ApplicationQuery(id="A1", page_size=3))
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
