"""Prepared statements stay good when a migration changes the type of a column."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.db.partitioned import raw
from tests.db.store import Store

TYPES = [
    *(("auth_user", "first_name", "varchar(150)"), ("django_session", "session_data", "text")),
    *(("history_person", "full_name", "varchar(200)"), ("history_person", "kind", "varchar(7)")),
    *(("product_instance_aud", "author", "varchar(64)"),),
    *(("product_instance_aud", "client_id", "varchar(64)"),),
]


@pytest.fixture
def migrator(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """Another session, as a migration has."""
    with raw() as own:
        yield own


@pytest.mark.parametrize(("table", "column", "type"), TYPES)
def test_requests_after_a_column_has_another_type(
    client: Client, migrator: psycopg.Connection[Any], table: str, column: str, type: str
) -> None:
    store = Store()
    for version in range(3):
        store.add("A1", version, {"rate": version}, version)
    client.force_login(User.objects.get(username="support"))
    addresses = ("/api/v1/history/product-instance/A1", "/api/v1/history/product-instance/A1/blame")

    def answers() -> list[bytes]:
        found = [client.get(address) for address in addresses]
        assert [each.status_code for each in found] == [200, 200]
        return [each.content for each in found]

    before = answers()
    try:
        migrator.execute(f"ALTER TABLE {table} ALTER {column} TYPE varchar(2000)")
        assert answers() == before
    finally:
        migrator.execute(f"ALTER TABLE {table} ALTER {column} TYPE {type}")
    assert answers() == before
