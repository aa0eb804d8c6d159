"""On a cluster, finding children in search_key gives the same answers as searching all shards.

If search_key has all children, each child of an application is read from one shard.
"""

import io
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from history import timeline
from history.kinds.entities import BY_NAME
from history.models import MaintainRun
from history.retention import packing
from history.store.days import days as partitions
from history.store.search_index import children as search_rows
from history.timeline import TimelineOrder, TimelineQuery, VersionFilters
from history.timeline.sources import children
from tests.citus.cluster import Citus
from tests.citus.ingest_fixtures import ingested
from tests.citus.test_reading import RecordedStatement, count_tasks, make_moment, record_statements
from tests.db.ingested import CHILD_SOURCE, Ingested
from tests.db.store import HOST, Store
from tests.messages import NOW, make_value

__all__ = ["ingested", "record_statements"]

TASK, PERSON, REALTY = (
    BY_NAME[name] for name in ("product-task", "participant-role", "realty-info")
)
APPLICATIONS = ("A1", "A2", "A3", "none")


def days_ago(number: float) -> Any:
    return make_moment(0) - timedelta(days=number)


def add_versions(store: Store) -> None:
    for version in range(5):
        author = "m.ivanov" if version % 2 else None
        store.add("A1", version, {"rate": version, "number": "N1"}, days_ago(9 - 2 * version))
        store.add("P1", version, {"income": version}, days_ago(6 - version), entity=PERSON)
        # The versions of T1 begin with 3, and every second number is missing.
        store.add("T1", 3 + 2 * version, {"n": version}, days_ago(5), entity=TASK, author=author)
    # M1 moves to another application, and back.
    for version, application in enumerate(("A2", "A1", "A1", "A2", "A2")):
        store.add(
            "M1",
            version,
            {"n": version},
            days_ago(8 - version),
            entity=TASK,
            application=application,
        )
    # R1 has one number twice, in two applications.
    store.add("R1", 0, {"n": 0}, days_ago(7), entity=REALTY)
    store.add("R1", 1, {"n": 1}, days_ago(6), entity=REALTY, application="A2")
    store.add("R1", 1, {"n": 2}, days_ago(4), entity=REALTY)
    store.add("R1", 2, {"n": 3}, days_ago(3), entity=REALTY)
    # No version of the application A3 is stored.
    store.add("T3", 0, {"n": 0}, days_ago(2), entity=TASK, application="A3")


@pytest.fixture(scope="module")
def loans(distributed: Citus) -> Iterator[Citus]:
    """Applications with children. One child moves to a second application and back.

    One day is packed, and one of its versions was stored later, as a plain row.
    """
    store, plain, packed_day = Store(), distributed.connect(), days_ago(5).date()
    for entity in (TASK, PERSON):
        partitions.create_partition(plain, entity.table, packed_day)
    add_versions(store)
    for entity in (TASK, PERSON):
        packing.pack_day(plain, entity, packed_day)
    store.add("T1", 4, {"n": "late"}, days_ago(5) + timedelta(minutes=1), entity=TASK)
    yield distributed
    connection.close()


@pytest.fixture
def unmarked_search_key(loans: Citus) -> None:
    """Index all children, but delete the row of django_migrations that says that this is done."""
    call_command("search", "index", stdout=io.StringIO())
    loans.connect().execute("DELETE FROM django_migrations WHERE name = %s", [search_rows.MARK])


def list_all(application: str, **query: Any) -> list[Any]:
    """Return the pairs (version, previous version) of a timeline, as one list for each page."""
    rows, token = [], None
    while True:
        page = timeline.fetch_page(HOST, TimelineQuery(id=application, page_token=token, **query))
        rows.append(page.versions)
        if (token := page.next_token) is None:
            return rows


def try_call(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except timeline.NotFoundError as error:
        return type(error), str(error)


def list_answers() -> list[Any]:
    """Return the results of all calls that look for the children of an application."""
    answers: list[Any] = []
    filters = (
        VersionFilters(),
        VersionFilters(author="m.ivanov"),
        VersionFilters(since=days_ago(6), until=days_ago(3)),
        VersionFilters(path="/n"),
    )
    for application in APPLICATIONS:
        for order in TimelineOrder:
            for size in (2, 50):
                for conditions in filters:
                    query = {"order": order, "page_size": size, "filters": conditions}
                    answers.append(try_call(lambda: list_all(application, **query)))  # noqa: B023
        for number in (9, 6.5, 4, 1):
            moment = days_ago(number)
            answers.append(
                try_call(lambda: timeline.fetch_application_at(HOST, application, moment))  # noqa: B023
            )
        answers += [
            timeline.fetch_members(HOST, application),
            timeline.search(HOST, application),
            HOST.store_lists.fetch_newest_child_moments([application]),
        ]
    answers += [
        timeline.search(HOST, "N1"),
        HOST.store_lists.fetch_children(APPLICATIONS),
        HOST.store_lists.fetch_owners(TASK, ["T1", "M1", "T3"]),
        HOST.store_lists.fetch_keys(TASK, ["T1", "M1", "T3"]),
    ]
    return answers


def test_search_index_command_records_that_search_key_has_all_children(
    loans: Citus, unmarked_search_key: None
) -> None:
    assert children.list_children(["A1"]).spans is None
    call_command("search", "index", stdout=io.StringIO())
    assert children.list_children(["A1"]).spans


def test_answers_are_equal_whether_children_are_found_in_search_key_or_on_all_shards(
    loans: Citus,
    unmarked_search_key: None,
    record_statements: Callable[[Callable[[], object]], list[RecordedStatement]],
) -> None:
    expected = list_answers()
    assert children.list_children(["A1"]).spans is None
    search_rows.mark_complete(loans.connect())
    assert [
        (span.entity.name, span.id, span.first.date(), span.end.date())
        for span in children.list_children(["A1"]).spans or ()
    ] == [
        ("participant-role", "P1", days_ago(6).date(), days_ago(1).date()),
        ("product-task", "M1", days_ago(7).date(), days_ago(5).date()),
        ("product-task", "T1", days_ago(5).date(), days_ago(4).date()),
        ("realty-info", "R1", days_ago(7).date(), days_ago(2).date()),
    ]
    assert list_answers() == expected
    for call in (
        lambda: timeline.fetch_page(HOST, TimelineQuery(id="A1")),
        lambda: timeline.fetch_application_at(HOST, "A1", days_ago(1)),
        lambda: timeline.search(HOST, "A3"),
    ):
        statements = record_statements(call)
        assert len(statements) > 4
        for statement in statements:
            assert count_tasks(statement) in ([0], [1]), statement.statement


def test_application_with_many_children_is_read_from_all_shards(
    loans: Citus, unmarked_search_key: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_rows.mark_complete(loans.connect())
    expected = list_answers()
    monkeypatch.setattr(children, "MAX_STATEMENTS", 2)
    assert children.list_children(["A1"]).spans is None
    assert list_answers() == expected


def test_children_are_searched_in_all_shards_when_a_stored_day_lost_its_search_keys(
    loans: Citus, unmarked_search_key: None
) -> None:
    """`partitions maintain` removes search keys of old days. Such a day can be restored later."""
    search_rows.mark_complete(loans.connect())
    assert children.list_children(["A1"]).spans
    for before, is_complete in ((days_ago(8), True), (days_ago(7), False)):
        MaintainRun.objects.create(
            started_at=NOW,
            seconds=1,
            search_keys_before=before.date(),
            **dict.fromkeys(("exit_code", "created", "dropped", "held", "busy", "broken"), 0),
        )
        assert (children.list_children(["A1"]).spans is not None) is is_complete
    MaintainRun.objects.all().delete()


def test_consumer_lists_each_child_with_its_first_and_last_day(ingested: Ingested) -> None:
    citus_rows = ingested.writer.connection.execute
    today = NOW.date()
    entity = CHILD_SOURCE.topic.rpartition(".")[2]

    def write(version: int, age: int, application: str = "a1") -> None:
        moment = (NOW - timedelta(days=age)).replace(tzinfo=None).isoformat()
        ingested.write(
            make_value(id="t1", version=version, updatedAt=moment, productInstanceId=application),
            source=CHILD_SOURCE,
        )

    def list_spans() -> list[tuple[Any, ...]]:
        return citus_rows(
            "SELECT value, entity, id, first_day, day FROM search_key WHERE name = %s ORDER BY 1",
            [search_rows.KEY_NAME],
        ).fetchall()

    write(1, 0)
    assert list_spans() == [("a1", entity, "t1", today, today)]
    write(0, 1)
    assert list_spans() == [("a1", entity, "t1", today - timedelta(1), today)]
    write(2, 0, "a2")
    assert list_spans()[1] == ("a2", entity, "t1", today, today)
    citus_rows("DELETE FROM search_key")
    write(3, 0, "a2")
    assert list_spans() == []  # the writer knows that it has listed this child today
