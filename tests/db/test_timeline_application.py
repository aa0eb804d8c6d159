"""Applications with their children."""

from __future__ import annotations

from datetime import timedelta

import pytest

from history import timeline
from history.entities import ENTITIES
from history.record import ChangeType
from history.timeline import (
    ApplicationQuery,
    BadParameterError,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
    Order,
)
from tests.db.store import T0, Store, minute, queries

PERSON, TASK = "participant-role", "product-task"
Shown = list[tuple[str, str, int]]


@pytest.fixture
def loan(store: Store) -> Store:
    """An application, a participant, two tasks of which one goes, and somebody else's task."""
    for version in range(3):
        store.add("A1", version, {"rate": version}, version * 10)
    store.add("P1", 0, {"income": "1"}, 5, entity=PERSON)
    store.add("P1", 1, {"income": "2"}, 15, entity=PERSON, author="anna")
    store.add("T1", 0, {"status": "NEW"}, 6, entity=TASK)
    store.add("T1", 1, "null", 16, entity=TASK, type=ChangeType.DELETE)
    store.add("T2", 0, {"status": "NEW"}, 20, entity=TASK)
    store.add("T9", 0, {"status": "NEW"}, 7, entity=TASK, application="B1")
    return store


def walk(size: int = 50, **parameters: object) -> Shown:
    shown: Shown = []
    token = None
    while True:
        query = ApplicationQuery(id="A1", page_size=size, page_token=token, **parameters)  # type: ignore[arg-type]
        page = timeline.application(query)
        shown += [(each.entity.name, each.id, each.version) for each in page.versions]
        token = page.next_token
        if token is None:
            return shown


MERGED = [
    ("product-task", "T2", 0),
    ("product-instance", "A1", 2),
    ("product-task", "T1", 1),
    ("participant-role", "P1", 1),
    ("product-instance", "A1", 1),
    ("product-task", "T1", 0),
    ("participant-role", "P1", 0),
    ("product-instance", "A1", 0),
]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_merged_by_time_in_pages(loan: Store, size: int) -> None:
    assert walk(size) == MERGED
    assert walk(size, order=Order.ASC) == MERGED[::-1]


def test_each_is_compared_with_its_own_version_before(loan: Store) -> None:
    page = timeline.application(ApplicationQuery(id="A1", page_size=4))
    assert [each.previous_version for each in page.versions] == [None, 1, 0, 0]
    assert page.versions[3].patch == [{"op": "replace", "path": "/income", "value": "2"}]


def test_filters_reach_the_children(loan: Store) -> None:
    assert walk(filters=Filters(author="anna")) == [("participant-role", "P1", 1)]
    assert walk(filters=Filters(path="/income"), size=1) == [("participant-role", "P1", 1)]
    assert walk(filters=Filters(since=minute(15), until=minute(20)), size=1) == MERGED[2:4]
    assert walk(filters=Filters(type=ChangeType.DELETE)) == [("product-task", "T1", 1)]


def test_an_application_that_is_not_there(loan: Store) -> None:
    with pytest.raises(NoVersionError):
        timeline.application(ApplicationQuery(id="none"))
    with pytest.raises(OlderThanRetentionError):
        timeline.application(
            ApplicationQuery(id="A1", filters=Filters(until=T0 - timedelta(days=400)))
        )
    assert walk(filters=Filters(author="nobody")) == []
    with pytest.raises(BadParameterError, match="pageToken"):
        timeline.application(ApplicationQuery(id="A1", page_token="v1:x"))


def test_a_merged_page_takes_a_fixed_number_of_queries(
    loan: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk()
    with queries(monkeypatch) as said:
        timeline.application(ApplicationQuery(id="A1", page_size=500))
    assert len(said) <= 1 + 2 * len(ENTITIES) + 1


def test_the_whole_application_as_of_a_moment(loan: Store) -> None:
    found = timeline.application_at("A1", minute(15))
    assert found.application is not None
    assert found.application.version == 1
    assert [(child.id, child.version) for child in found.children] == [("P1", 1), ("T1", 0)]
    later = timeline.application_at("A1", minute(30))
    assert [(child.id, child.version) for child in later.children] == [("P1", 1), ("T2", 0)]
    assert [child.id for child in later.deleted] == ["T1"]
    with pytest.raises(NoVersionError):
        timeline.application_at("A1", minute(-1))
    with pytest.raises(NoVersionError):
        timeline.application_at("A1", T0 - timedelta(days=300))


def test_a_child_that_moved_away_is_where_it_is(loan: Store) -> None:
    loan.add("P1", 2, {"income": "2"}, 25, entity=PERSON, application="B1")
    assert [c.id for c in timeline.application_at("A1", minute(24)).children if c.id == "P1"]
    assert not [c.id for c in timeline.application_at("A1", minute(26)).children if c.id == "P1"]
    moved = timeline.application_at("B1", minute(26))
    assert moved.application is None
    assert [child.id for child in moved.children] == ["P1", "T9"]
