"""Days keep rows whole, whoever made them, and a setting by the operator stays."""

from __future__ import annotations

import json
from datetime import date

import pytest
from django.db import connection

from history import days
from history.partitions.maintain import Outcome, maintain
from tests.db.partitioned import NOW, TABLE, TODAY, day, policy, raw

pytestmark = pytest.mark.usefixtures("tables")

WHOLE = ["toast_tuple_target=8160"]


def options(of: date) -> list[str] | None:
    with raw() as plain:
        row = plain.execute(
            "SELECT reloptions FROM pg_class WHERE oid = %s::regclass",
            [days.partition_name(TABLE, of)],
        ).fetchone()
    assert row is not None
    found: list[str] | None = row[0]
    return found


def made(of: date, *more: str) -> None:
    """A partition that somebody made manually, like psqlextra's or a DBA's."""
    start, end = days.bounds(of)
    name = days.partition_name(TABLE, of)
    with raw() as plain:
        plain.execute(
            f"CREATE TABLE {name} PARTITION OF {TABLE} FOR VALUES FROM ('{start}') TO ('{end}')"
        )
        for command in more:
            plain.execute(command.format(name=name))


def maintained() -> Outcome:
    try:
        return maintain(policy())
    finally:
        connection.close()


def test_a_document_of_some_kb_is_stored_as_it_is() -> None:
    text = json.dumps({"comment": "заявка " * 500}, ensure_ascii=False)
    with raw() as plain:
        days.create(plain, TABLE, TODAY)
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            " VALUES ('whole', 1, %s, %s, 'test', 1)",
            [text, NOW],
        )
        row = plain.execute(f"SELECT pg_column_size(data) FROM {TABLE}").fetchone()
    assert options(TODAY) == WHOLE
    assert row is not None
    assert row[0] > len(text.encode()) * 0.9


def test_maintain_sees_to_days_that_were_made_otherwise() -> None:
    made(day(-1))
    made(TODAY)
    made(day(1), "ALTER TABLE {name} SET (toast_tuple_target = 4000)")
    outcome = maintained()
    assert outcome.kept_whole == [days.partition_name(TABLE, TODAY)]
    assert outcome.exit_code == 0
    assert [options(day(n)) for n in (-1, 0, 1)] == [None, WHOLE, ["toast_tuple_target=4000"]]
    assert maintained().kept_whole == []


def test_a_day_in_other_hands_is_left_for_the_next_run() -> None:
    made(TODAY)
    with raw() as other, other.transaction():
        other.execute(f"LOCK {days.partition_name(TABLE, TODAY)} IN SHARE UPDATE EXCLUSIVE MODE")
        outcome = maintained()
    assert (outcome.busy, outcome.exit_code) == ([days.partition_name(TABLE, TODAY)], 1)
    assert maintained().exit_code == 0
    assert options(TODAY) == WHOLE
