"""Answers about packed days of a cluster equal the answers about the same days with plain rows."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from history import timeline
from history.retention import packing
from history.store.days import days
from history.store.days.canonical import Connection
from history.store.versions import VersionKey, VersionRef
from history.timeline import (
    ChangesPage,
    ChangesQuery,
    TimelineOrder,
    TimelinePage,
    TimelineQuery,
    VersionFilters,
)
from history.timeline.sources.changes import fetch_listed
from tests.citus.cluster import Citus
from tests.citus.cluster_fixtures import own_labels, tables, transactional_db
from tests.db.calls import read_data
from tests.db.partitioned import plain
from tests.db.store import HOST, Store, minute
from tests.db.test_packing import DAY, ROOT, TASK, read_blocks

__all__ = ["own_labels", "plain", "tables", "transactional_db"]

pytestmark = pytest.mark.usefixtures("tables")

NOON = minute(20)
HOUR = VersionFilters(since=minute(0), until=minute(60))


def fetch_second_page() -> Any:
    first = timeline.fetch_page(HOST, TimelineQuery(id="A1", page_size=3))
    return timeline.fetch_page(
        HOST, TimelineQuery(id="A1", page_size=3, page_token=first.next_token)
    )


CALLS: dict[str, Callable[[], Any]] = {
    "page": lambda: timeline.fetch_page(HOST, TimelineQuery(id="A1", entity=ROOT)),
    "application": lambda: timeline.fetch_page(HOST, TimelineQuery(id="A1")),
    "application, second page": fetch_second_page,
    "application, of an author": lambda: timeline.fetch_page(
        HOST, TimelineQuery(id="A1", filters=VersionFilters(author="p.petrov"))
    ),
    "application at a moment": lambda: timeline.fetch_application_at(HOST, "A1", NOON),
    "keys of an application": lambda: timeline.fetch_members(HOST, "A1"),
    "keys of several documents": lambda: timeline.fetch_keys(HOST, TASK, ["T1", "T2"]),
    "search": lambda: timeline.search(HOST, "A1"),
    "search for several": lambda: timeline.search_all(HOST, ["A1", "T1", "T2"]),
    "newest documents": lambda: timeline.fetch_newest_snapshots(
        HOST, [(TASK, "T1"), (TASK, "T2"), (ROOT, "A1")]
    ),
    "changes": lambda: timeline.fetch_changes_page(HOST, ChangesQuery(filters=HOUR)),
    "changes, oldest first": lambda: timeline.fetch_changes_page(
        HOST, ChangesQuery(filters=HOUR, order=TimelineOrder.ASC, page_size=3)
    ),
    "changes of a person": lambda: timeline.fetch_changes_page(
        HOST, ChangesQuery(filters=VersionFilters(author="p.petrov", until=minute(60)))
    ),
    "a person": lambda: timeline.fetch_person_activity(HOST, "p.petrov", "UTC"),
}


@pytest.fixture
def application(plain: Connection) -> None:
    """An application with two tasks, and an application without tasks."""
    store = Store()
    for entity in (ROOT, TASK):
        days.create_partition(plain, entity.table, DAY)
    for version in range(12):
        author = "p.petrov" if version % 3 else "m.ivanov"
        store.add("A1", version, {"rate": version}, 3 * version, author=author)
        store.add("T1", version, {"n": version}, 3 * version + 1, entity=TASK, author=author)
    for version in range(4):
        store.add("T2", version, {"n": version}, 7 * version + 2, entity=TASK)
        store.add("A2", version, {"rate": -version}, version)


def drop_token(answer: Any) -> Any:
    """Return an answer without its page token, which contains the time of the answer."""
    if isinstance(answer, TimelinePage | ChangesPage):
        return answer.versions, answer.damaged
    return answer


def test_every_answer_is_the_same_when_the_days_are_packed(
    application: None, citus: Citus, plain: Connection
) -> None:
    before = {name: drop_token(call()) for name, call in CALLS.items()}
    for entity in (ROOT, TASK):
        packing.pack_day(plain, entity, DAY)
        assert read_blocks(plain, entity) != []
    connection.close()
    for name, call in CALLS.items():
        assert drop_token(call()) == before[name], name


def test_late_list_finds_versions_on_plain_and_packed_days(
    application: None, plain: Connection
) -> None:
    refs = [
        VersionRef(ROOT, "A1", VersionKey(2, minute(6))),
        VersionRef(TASK, "T1", VersionKey(3, minute(10))),
    ]
    before = fetch_listed(refs, VersionFilters())
    assert set(before) == set(refs)
    for entity in (ROOT, TASK):
        packing.pack_day(plain, entity, DAY)
    assert fetch_listed(refs, VersionFilters()) == before


def test_get_changes_with_path_lists_same_versions_before_and_after_packing(
    application: None, client: Client, plain: Connection
) -> None:
    """Each version of a task changes `/n`. The application changes `/rate`, and has no `/n`."""
    client.force_login(User.objects.get(username="auditor"))

    def list_versions(path: str) -> list[tuple[str, int]]:
        window = {"from": minute(0).isoformat(), "to": minute(60).isoformat()}
        entries = read_data(client.get("/api/v1/changes", {**window, "path": path}))["history"]
        return sorted((entry["id"], entry["version"]) for entry in entries)

    before = {path: list_versions(path) for path in ("/n", "/rate", "/absent")}
    assert before["/n"] == [
        *[("T1", number) for number in range(1, 12)],
        *[("T2", number) for number in range(1, 4)],
    ]
    assert before["/absent"] == []
    for entity in (ROOT, TASK):
        packing.pack_day(plain, entity, DAY)
        assert read_blocks(plain, entity) != []
    connection.close()
    assert {path: list_versions(path) for path in before} == before
