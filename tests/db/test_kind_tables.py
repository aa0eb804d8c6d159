"""The columns of blocks are added to the tables of declared kinds, and to no other tables."""

import pytest
from django.db import connection
from psycopg import sql

from history.store import kind_tables

FOREIGN = "foreign_aud"
STRANGE = 'Strange "name"; DROP_aud'
COLUMNS = """
(id varchar(32), version int4, data jsonb NOT NULL, updated_at timestamptz, client_id varchar(64),
author varchar(64), type int4) PARTITION BY RANGE (updated_at)
"""


def create_table(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE TABLE {} " + COLUMNS).format(sql.Identifier(name)))


def list_columns(name: str) -> dict[str, str]:
    """Return `pg_attribute.attstorage`, the storage strategy, of each column of a table."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname, attstorage::text FROM pg_attribute WHERE attnum > 0"
            " AND attrelid = %s::regclass",
            [sql.Identifier(name).as_string()],
        )
        return dict(cursor.fetchall())


@pytest.mark.django_db
def test_columns_are_not_added_to_tables_of_other_django_applications() -> None:
    for name in (FOREIGN, STRANGE):
        create_table(name)
    kind_tables.create_missing(using="default")
    for name in (FOREIGN, STRANGE):
        assert "keys" not in list_columns(name)


@pytest.mark.django_db
def test_block_columns_are_added_once_to_table_with_unusual_name() -> None:
    create_table(STRANGE)
    for _ in range(2):
        kind_tables._add_columns(connection, STRANGE)
    columns = list_columns(STRANGE)
    assert columns["packed"] == "e"  # EXTERNAL: stored out of line and not compressed
    assert {"unpacked", "keys", "versions", "names"} <= columns.keys()
