"""Which applications have versions of a child, as ingest notes it where the tables are distributed,
with the same SQL on a plain PostgreSQL. On a cluster tests/citus/test_ingest.py has these tests."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from msgspec.structs import replace

from history.distribution import child_home_table, inserting
from ingest.store.batch import Row
from ingest.store.child_homes import Homes
from ingest.store.session import connect
from ingest.store.transaction import Writer
from tests.db.ingested import CHILD_SOURCE, Ingested, quarantined, query
from tests.db.installation import counted_as_distributed
from tests.messages import NOW, value

BOTH_DIRECTIONS = [("t1", "a1", "a2"), ("t1", "a2", "a1")]


@pytest.fixture(autouse=True)
def parted(ingested: Ingested) -> Iterator[None]:
    with counted_as_distributed():
        yield


def child(application: str, version: int = 0, **more: Any) -> bytes:
    return value(**{"id": "t1", "version": version, "productInstanceId": application, **more})


def noted() -> list[tuple[Any, ...]]:
    found = query("SELECT id, product_instance_id, newest_day FROM child_home ORDER BY 1, 2")
    return [tuple(row.values()) for row in found]


def moved() -> list[tuple[Any, ...]]:
    found = query("SELECT id, product_instance_id, other_application FROM child_moved")
    return sorted(tuple(row.values()) for row in found)


def test_homes_are_noted_once_and_both_directions_of_a_move(ingested: Ingested) -> None:
    yesterday = (NOW - timedelta(1)).replace(tzinfo=None).isoformat()
    ingested.write(child("a1", 0, updatedAt=yesterday), source=CHILD_SOURCE)
    assert moved() == []
    ingested.write(child("a1", 1), source=CHILD_SOURCE)
    ingested.write(child("a2", 2), child("a1", id="t2"), source=CHILD_SOURCE)
    today = NOW.date()
    assert noted() == [("t1", "a1", today), ("t1", "a2", today), ("t2", "a1", today)]
    assert moved() == BOTH_DIRECTIONS
    # A version of an earlier day does not make a home older.
    ingested.writer.close()
    ingested.writer = Writer(connect)
    ingested.write(child("a1", 9, updatedAt=yesterday), source=CHILD_SOURCE)
    assert noted()[0] == ("t1", "a1", today)


def test_a_refused_row_has_no_home(ingested: Ingested) -> None:
    bad = value(id="t1", productInstanceId="a1", data="@").replace(b'"@"', b'{"a":"\xff"}')
    ingested.write(bad, child("a2"), source=CHILD_SOURCE)
    assert len(quarantined()) == 1
    assert [application for _, application, _ in noted()] == ["a2"]


def test_more_than_one_statement_has_and_the_same_text_in_columns_of_several_types(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserting, "MOST", 2)
    day = NOW.date().isoformat()
    bodies = [
        child(application, version, id=id)
        for id in (day, "t1", "t2")
        for version, application in enumerate((day, "a1"))
    ]
    ingested.write(*bodies, source=CHILD_SOURCE)
    assert len(noted()) == len(moved()) == len(bodies)


class Racers:
    """Two writers that note the same child in two applications, the second within the transaction
    of the first: neither sees the other."""

    def __init__(self, ingested: Ingested) -> None:
        self.rows: list[list[Row]] = [
            ingested.batch(child(application), source=CHILD_SOURCE).rows["product-task"]
            for application in ("a1", "a2")
        ]
        self.homes = Homes(), Homes()

    def run(self, first: psycopg.Connection[Any], second: psycopg.Connection[Any]) -> None:
        with first.transaction():
            self.homes[0].note(first, self.rows[0])
            with second.transaction():
                self.homes[1].note(second, self.rows[1])
            self.homes[1].committed(second)


def test_of_two_writers_at_once_the_last_one_notes_the_move(ingested: Ingested) -> None:
    racers = Racers(ingested)
    with connect() as first, connect() as second:
        racers.run(first, second)
        assert moved() == []
        racers.homes[0].committed(first)
    assert moved() == BOTH_DIRECTIONS


def test_what_fails_after_the_commit_is_done_with_the_next_batch(ingested: Ingested) -> None:
    racers = Racers(ingested)
    with connect() as first, connect() as second:
        racers.run(first, second)
        first.close()
        racers.homes[0].committed(first)
        assert moved() == []
        racers.homes[0].committed(second)
    assert moved() == BOTH_DIRECTIONS


def test_what_a_writer_left_maintain_notes(ingested: Ingested) -> None:
    racers = Racers(ingested)
    with connect() as first, connect() as second:
        racers.run(first, second)
        assert moved() == []
        child_home_table.keep(first, NOW.date())
    assert moved() == BOTH_DIRECTIONS
    assert len(noted()) == 2


def test_a_child_that_returns_after_retention_has_moved(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first home and the move are gone by then; the writer has both in its memory."""
    then = (NOW - timedelta(3)).replace(tzinfo=None).isoformat()
    ingested.write(child("a1", 0, updatedAt=then), source=CHILD_SOURCE)
    ingested.write(child("a2", 1), source=CHILD_SOURCE)
    monkeypatch.setattr(settings, "ANNALS", replace(settings.ANNALS, retention_days=1))
    with connect() as plain:
        child_home_table.keep(plain, NOW.date() - timedelta(1))
    assert moved() == []
    ingested.write(child("a1", 2), source=CHILD_SOURCE)
    assert moved() == BOTH_DIRECTIONS
