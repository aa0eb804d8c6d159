"""How days keep documents: those of some KB as they are, long ones compressed with lz4 where the
server can, in each way that a day is made."""

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from history.daily import days
from history.entities import ENTITIES
from tests.db.partitioned import NOW, TABLE, TODAY, raw

pytestmark = pytest.mark.usefixtures("tables")
NAMES = {"l": "lz4", "p": "pglz", "": "default"}


def compressions() -> dict[str, str]:
    """What the column `data` of each table of versions and of each of its days says."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attrelid::regclass::text, attcompression FROM pg_attribute"
            " LEFT JOIN pg_inherits ON inhrelid = attrelid"
            " WHERE attname = 'data' AND coalesce(inhparent, attrelid)"
            " = ANY(%s::text[]::regclass[])",
            [[entity.table for entity in ENTITIES]],
        )
        return {table: NAMES[kind] for table, kind in cursor.fetchall()}


def expected() -> str:
    with raw() as plain:
        row = plain.execute(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).fetchone()
    return "lz4" if row and row[0] else "default"


def test_every_day_that_maintain_makes() -> None:
    call_command("partitions", "maintain", verbosity=0)
    found = compressions()
    assert len(found) > 20 * len(ENTITIES)
    assert set(found.values()) == {expected()}


def test_a_day_that_a_consumer_makes_and_one_that_comes_from_the_archive() -> None:
    day = TODAY + timedelta(days=1)
    with raw() as plain:
        days.create(plain, TABLE, day)
        place = days.locate(plain, TABLE, day)
        days.create_detached(plain, place._replace(child=place.new), day, days.RESTORED)
        days.replace(plain, TABLE, day)
    assert compressions()[days.partition_name(TABLE, day)] == expected()


def test_a_document_of_some_kb_is_stored_as_it_is() -> None:
    text = json.dumps({"comment": "заявка " * 500}, ensure_ascii=False)
    with raw() as plain:
        days.create(plain, TABLE, TODAY)
        plain.execute(
            f"INSERT INTO {TABLE} (id, version, data, updated_at, client_id, type)"
            " VALUES ('whole', 1, %s, %s, 'test', 1)",
            [text, NOW],
        )
        row = plain.execute(
            f"SELECT pg_column_size(data), reloptions FROM {TABLE}, pg_class WHERE relname = %s",
            [days.partition_name(TABLE, TODAY)],
        ).fetchone()
    assert row is not None
    assert row[0] > len(text.encode()) * 0.9
    assert row[1] == ["toast_tuple_target=8160"]
