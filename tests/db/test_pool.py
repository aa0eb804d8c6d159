"""Connections from the pool work, and are checked only if they were idle.

Prepared statements keep working when a migration changes the type of a column.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections
from django.test import Client

from annals.embedded import process
from annals.operations import metrics_page
from history.store.database import base
from tests.db.partitioned import connect_plainly
from tests.db.store import Store

# Tests with this mark empty the whole database at their end.
emptied = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a Django connection to the test's database with a pool of its own."""
    connection.ensure_connection()  # from the pool of the test run
    monkeypatch.setattr(base.DatabaseWrapper, "_connection_pools", {})
    wrapper = connections["default"].copy()
    yield wrapper
    wrapper.close()
    wrapper.close_pool()


def get_backend(pooled: Any) -> int:
    with pooled.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def trace_checkout(pooled: Any, file: Path) -> str:
    """Return what is sent to PostgreSQL when the connection is taken from the pool."""
    pooled.ensure_connection()
    server = pooled.connection.pgconn
    pooled.close()
    with file.open("w") as opened:
        server.trace(opened.fileno())
        pooled.ensure_connection()
        server.untrace()
    return file.read_text()


@emptied
def test_recently_used_pooled_connection_is_not_checked(pooled: Any, tmp_path: Path) -> None:
    assert trace_checkout(pooled, tmp_path / "trace") == ""


@emptied
def test_idle_pooled_connection_is_checked(
    pooled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.ensure_connection()  # from the pool of the test run
    monkeypatch.setattr(base, "TRUSTED_S", 0.0)
    assert "Query" in trace_checkout(pooled, tmp_path / "trace")


@emptied
def test_pooled_connection_ended_by_server_is_replaced(pooled: Any) -> None:
    before = get_backend(pooled)
    session: psycopg.Connection[Any] = pooled.connection
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [before])
        assert cursor.fetchone() == (True,)
    assert not session.closed
    assert get_backend(pooled) != before


@emptied
def test_pooled_connection_closed_by_client_is_replaced(pooled: Any) -> None:
    before = get_backend(pooled)
    session: psycopg.Connection[Any] = pooled.connection
    pooled.close()
    session.close()
    assert get_backend(pooled) != before


@emptied
def test_request_does_not_wait_for_unreachable_database(
    pooled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = process.choose_free_ports([None])
    connection_params = pooled.get_connection_params()
    monkeypatch.setattr(
        pooled,
        "get_connection_params",
        lambda: {**connection_params, "port": str(port)},
        raising=True,
    )
    # A pool would fail with "couldn't get a connection" only after its timeout.
    with pytest.raises(OperationalError, match="refused"):
        pooled.ensure_connection()


@emptied
def test_page_says_that_database_is_unreachable_and_shows_request_id(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(User.objects.get(username="ops"))

    def raise_away(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(metrics_page.STORE_COLLECTOR, "collect", raise_away)
    client.raise_request_exception = False
    page = client.get("/admin/operations/", headers={"X-Request-ID": "night-7"})
    assert page.status_code == 503
    assert page.content.decode().count("<code>night-7</code>") == 2


TYPES = [
    ("auth_user", "first_name", "varchar(150)"),
    ("django_session", "session_data", "text"),
    ("history_person", "full_name", "varchar(200)"),
    ("history_person", "kind", "varchar(7)"),
    ("product_instance_aud", "author", "varchar(64)"),
    ("product_instance_aud", "client_id", "varchar(64)"),
]


@pytest.fixture
def migrator(transactional_db: None) -> Iterator[psycopg.Connection[Any]]:
    """Yield another session, for the statements of a migration."""
    with connect_plainly() as session:
        yield session


@pytest.mark.parametrize(("table", "column", "type"), TYPES)
def test_requests_succeed_after_a_column_changed_its_type(
    client: Client, migrator: psycopg.Connection[Any], table: str, column: str, type: str
) -> None:
    store = Store()
    for version in range(3):
        store.add("A1", version, {"rate": version}, version)
    client.force_login(User.objects.get(username="support"))
    addresses = ("/api/v1/history/product-instance/A1", "/api/v1/history/product-instance/A1/blame")

    def fetch_answers() -> list[bytes]:
        responses = [client.get(address) for address in addresses]
        assert [item.status_code for item in responses] == [200, 200]
        return [item.content for item in responses]

    before = fetch_answers()
    try:
        migrator.execute(f"ALTER TABLE {table} ALTER {column} TYPE varchar(2000)")
        assert fetch_answers() == before
    finally:
        migrator.execute(f"ALTER TABLE {table} ALTER {column} TYPE {type}")
    assert fetch_answers() == before
