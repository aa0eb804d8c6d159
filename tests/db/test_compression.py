"""Long documents are compressed with lz4 where the server can, in each way that a day is made."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from history.daily import days
from history.entities import ENTITIES
from tests.db.partitioned import TABLE, TODAY, raw, tables, transactional_db

__all__ = ["tables", "transactional_db"]
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
