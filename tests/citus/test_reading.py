"""Reading where the tables are distributed: the same answers, those about one document from one
shard."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest
from django.db import connection
from psycopg.rows import tuple_row

from history import distribution, timeline
from history.database.distributed import apart
from history.entities import BY_NAME, ROOT
from history.timeline import Filters, Order, Query, Sort
from history.timeline.row import LAST
from history.timeline.sources import newest
from history.timeline.sources.tables import Tables
from tests.citus.cluster import Citus, served_by
from tests.db.store import HOST, T0, Store

TASK, PERSON = BY_NAME["product-task"], BY_NAME["participant-role"]


@pytest.fixture(scope="module")
def loans(distributed: Citus) -> Citus:
    """Applications with children, one of which moved from the first to the second."""
    assert apart()
    store = Store()
    for id in ("A1", "B1", "C1"):
        for version in range(4):
            store.add(id, version, {"rate": version, "name": "x"}, at(version * 10))
    for version in range(3):
        store.add("P1", version, {"income": version}, at(version), entity=PERSON)
        store.add("T1", version, {"status": version}, at(version), entity=TASK)
        store.add("R1", version, {"n": version}, at(version), entity=TASK, application="C1")
        home = "B1" if version == 2 else "A1"
        store.add("M1", version, {"status": version}, at(version), entity=TASK, application=home)
    return distributed


def at(number: float) -> datetime:
    """The moment this number of minutes after a noon that has a day."""
    return T0 + timedelta(days=9, minutes=number)


class Said(NamedTuple):
    statement: str
    values: Any


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[Said]]:
    """The statements on distributed tables while something is called, with their values."""

    def listen(call: Callable[[], object]) -> list[Said]:
        found: list[Said] = []
        plain = psycopg.Cursor.execute

        def execute(self: Any, query: Any, params: Any = None, **kwargs: Any) -> Any:
            if any(table in str(query) for table in distribution.DISTRIBUTED_BY):
                found.append(Said(query, params))
            return plain(self, query, params, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", execute)
            call()
        return found

    return listen


def tasks(one: Said) -> list[int]:
    """How many shards each part of the statement's plan reads."""
    cursor = psycopg.Cursor(connection.connection, row_factory=tuple_row)
    plan = [line for (line,) in cursor.execute("EXPLAIN (COSTS OFF) " + one.statement, one.values)]
    assert any("Custom Scan (Citus" in line for line in plan), plan
    return [int(line.split(":")[1]) for line in plan if "Task Count:" in line]


ONE_SHARD: dict[str, Callable[[], object]] = {
    "page": lambda: timeline.page(HOST, Query(entity=ROOT, id="A1")),
    "page of a child": lambda: timeline.page(HOST, Query(entity=TASK, id="T1")),
    "by number": lambda: timeline.page(
        HOST, Query(entity=TASK, id="T1", sort=Sort.VERSION, page_size=1)
    ),
    "filtered": lambda: timeline.page(
        HOST, Query(entity=TASK, id="T1", filters=Filters(author="x"))
    ),
    "version": lambda: timeline.version(HOST, TASK, "T1", 1),
    "twins": lambda: timeline.twins(HOST, TASK, "T1", 1),
    "compare": lambda: timeline.compare(HOST, TASK, "T1", 0, 2),
    "at": lambda: timeline.at(HOST, ROOT, "A1", at(15)),
    "at, of a child": lambda: timeline.at(HOST, TASK, "T1", at(1)),
    "blame": lambda: timeline.blame(HOST, ROOT, "A1"),
    "blame of a child": lambda: timeline.blame(HOST, PERSON, "P1"),
    "field": lambda: timeline.field(HOST, PERSON, "P1", "/income"),
    "newest": lambda: timeline.newest(HOST, PERSON, "P1"),
}


@pytest.mark.parametrize("name", ONE_SHARD)
def test_one_shard_answers(
    loans: Citus, said: Callable[[Callable[[], object]], list[Said]], name: str
) -> None:
    found = said(ONE_SHARD[name])
    assert found
    for each in found:
        assert tasks(each) in ([0], [1]), each.statement


def test_a_worker_reads_versions_as_the_coordinator_does(loans: Citus) -> None:
    """People, labels and logins are on the coordinator alone: the web connects there."""

    def answers() -> list[object]:
        tables = Tables()
        return [
            tables.page(Query(entity=ROOT, id="A1"), LAST, 10),
            tables.page(Query(entity=TASK, id="T1"), LAST, 10),
            tables.page(Query(entity=TASK, id="M1"), LAST, 10),
            tables.keys(TASK, ["T1", "M1"]),
            tables.owners(TASK, ["T1", "M1"]),
            newest.newest_documents(ROOT, ["A1"]),
            tables.of_application("A1", Filters(), Order.DESC, None, 10),
            tables.children(TASK, "B1"),
            tables.keys(TASK, tables.children(TASK, "B1")),
        ]

    expected = answers()
    for url in loans.urls[1:]:
        with served_by(url):
            assert answers() == expected


def test_a_prepared_statement_reads_one_shard_every_time(loans: Citus) -> None:
    """Also from the sixth time on, when PostgreSQL considers a plan for all values."""
    kept = loans.raw()
    kept.execute("SET plan_cache_mode TO auto")
    kept.execute(
        "PREPARE of_child(varchar, varchar) AS SELECT version, data FROM product_task_aud"
        " WHERE id = ANY(ARRAY[$1]) AND product_instance_id = $2"
        " ORDER BY updated_at DESC, version DESC LIMIT 5"
    )
    for _ in range(8):
        assert len(kept.execute("EXECUTE of_child('T1', 'A1')").fetchall()) == 3
        plan = kept.execute("EXPLAIN (COSTS OFF) EXECUTE of_child('T1', 'A1')").fetchall()
        assert ("  Task Count: 1",) in plan
