"""What the pool gives to a request works, and that it does costs no question most of the time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections
from django.test import Client

from annals.embedded import process
from annals.observe import metrics
from history.database import base

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A connection of its own to the tests' database, with a pool of its own."""
    connection.ensure_connection()  # from the pool of all tests
    monkeypatch.setattr(base.DatabaseWrapper, "_connection_pools", {})
    own = connections["default"].copy()
    yield own
    own.close()
    own.close_pool()


def backend(pooled: Any) -> int:
    with pooled.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def traced(pooled: Any, file: Path) -> str:
    """What is sent for taking the connection out of the pool."""
    pooled.ensure_connection()
    server = pooled.connection.pgconn
    pooled.close()
    with file.open("w") as opened:
        server.trace(opened.fileno())
        pooled.ensure_connection()
        server.untrace()
    return file.read_text()


def test_one_that_worked_a_moment_ago_is_not_asked(pooled: Any, tmp_path: Path) -> None:
    assert traced(pooled, tmp_path / "trace") == ""


def test_one_that_was_idle_is_asked(
    pooled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.ensure_connection()  # from the pool of all tests
    monkeypatch.setattr(base, "TRUSTED_S", 0.0)
    assert "Query" in traced(pooled, tmp_path / "trace")


def test_one_that_the_server_ended_is_not_given(pooled: Any) -> None:
    before = backend(pooled)
    own: psycopg.Connection[Any] = pooled.connection
    pooled.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [before])
        assert cursor.fetchone() == (True,)
    assert not own.closed
    assert backend(pooled) != before


def test_one_that_was_closed_on_this_side_is_not_given(pooled: Any) -> None:
    before = backend(pooled)
    own: psycopg.Connection[Any] = pooled.connection
    pooled.close()
    own.close()
    assert backend(pooled) != before


def test_a_server_that_is_away_is_not_waited_for(
    pooled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = process.free_ports([None])
    given = pooled.get_connection_params()
    monkeypatch.setattr(
        pooled, "get_connection_params", lambda: {**given, "port": str(port)}, raising=True
    )
    # The pool would say "couldn't get a connection" after its timeout.
    with pytest.raises(OperationalError, match="refused"):
        pooled.ensure_connection()


def test_the_page_says_so_and_names_the_request(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(User.objects.get(username="ops"))

    def away(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(metrics.STORE, "collect", away)
    client.raise_request_exception = False
    page = client.get("/admin/operations/", headers={"X-Request-ID": "night-7"})
    assert page.status_code == 503
    assert page.content.decode().count("<code>night-7</code>") == 2
