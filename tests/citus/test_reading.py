"""Queries about one document read one shard of a distributed table."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from django.db import connection
from psycopg.rows import tuple_row

from history import timeline
from history.kinds.entities import BY_NAME, ROOT
from history.store import distribution
from history.timeline import TimelineQuery, TimelineSort, VersionFilters
from tests.citus.cluster import Citus
from tests.db.store import HOST, T0, Store

TASK, PERSON = BY_NAME["product-task"], BY_NAME["participant-role"]


@pytest.fixture(scope="module")
def loans(distributed: Citus) -> Citus:
    """An application with children."""
    assert distribution.is_distributed(distributed.connect())
    store = Store()
    for version in range(4):
        store.add("A1", version, {"rate": version, "name": "x"}, make_moment(version * 10))
    for version in range(3):
        store.add("P1", version, {"income": version}, make_moment(version), entity=PERSON)
        store.add("T1", version, {"status": version}, make_moment(version), entity=TASK)
    return distributed


def make_moment(number: float) -> datetime:
    """Return the moment `number` minutes after noon of a day that has a partition."""
    return T0 + timedelta(days=9, minutes=number)


class RecordedStatement(NamedTuple):
    statement: str
    values: Any


@pytest.fixture
def record_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[[], object]], list[RecordedStatement]]:
    """A function that makes a call, and returns its statements on distributed tables."""

    def listen(call: Callable[[], object]) -> list[RecordedStatement]:
        statements: list[RecordedStatement] = []
        plain = psycopg.Cursor.execute

        def execute(self: Any, query: Any, params: Any = None, **kwargs: Any) -> Any:
            if any(table in str(query) for table in distribution.DISTRIBUTED_BY):
                statements.append(RecordedStatement(query, params))
            return plain(self, query, params, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", execute)
            call()
        return statements

    return listen


def count_tasks(query: RecordedStatement) -> list[int]:
    """Return how many shards each part of the statement's plan reads."""
    cursor = psycopg.RawCursor(connection.connection, row_factory=tuple_row)
    plan = [
        line for (line,) in cursor.execute("EXPLAIN (COSTS OFF) " + query.statement, query.values)
    ]
    assert any("Custom Scan (Citus" in line for line in plan), plan
    return [int(line.split(":")[1]) for line in plan if "Task Count:" in line]


ONE_SHARD: dict[str, Callable[[], object]] = {
    "page": lambda: timeline.fetch_page(HOST, TimelineQuery(entity=ROOT, id="A1")),
    "page of a child": lambda: timeline.fetch_page(HOST, TimelineQuery(entity=TASK, id="T1")),
    "by number": lambda: timeline.fetch_page(
        HOST, TimelineQuery(entity=TASK, id="T1", sort=TimelineSort.VERSION, page_size=1)
    ),
    "filtered": lambda: timeline.fetch_page(
        HOST, TimelineQuery(entity=TASK, id="T1", filters=VersionFilters(author="x"))
    ),
    "version": lambda: timeline.fetch_version(HOST, TASK, "T1", 1),
    "compare": lambda: timeline.compare_versions(HOST, TASK, "T1", 0, 2),
    "at": lambda: timeline.fetch_version_at(HOST, ROOT, "A1", make_moment(15)),
    "at, of a child": lambda: timeline.fetch_version_at(HOST, TASK, "T1", make_moment(1)),
    "blame": lambda: timeline.blame_leaves(HOST, ROOT, "A1"),
    "blame of a child": lambda: timeline.blame_leaves(HOST, PERSON, "P1"),
    "field": lambda: timeline.fetch_field_history(HOST, PERSON, "P1", "/income"),
    "newest": lambda: timeline.fetch_newest_version(HOST, PERSON, "P1"),
}


@pytest.mark.parametrize("name", ONE_SHARD)
def test_query_about_one_document_reads_one_shard(
    loans: Citus,
    record_statements: Callable[[Callable[[], object]], list[RecordedStatement]],
    name: str,
) -> None:
    statements = record_statements(ONE_SHARD[name])
    assert statements
    for item in statements:
        assert count_tasks(item) in ([0], [1]), item.statement
