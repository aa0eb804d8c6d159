"""Days keep rows whole, whoever made them, and a setting by the operator stays."""

import json
from datetime import date

import pytest

from history.daily import days
from tests.db.partitioned import NOW, TABLE, TODAY, raw

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
