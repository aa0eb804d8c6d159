"""How often a page asks the database: each time costs more than most of what is asked."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from tests.db.installation import BOTH, DISTRIBUTED
from tests.db.store import Store

SECRET = base64.b64encode(b"support:support").decode()


@pytest.fixture
def asked(store: Store, client: Client, tmp_path: Path) -> Callable[..., int]:
    """How many messages to PostgreSQL a page of three versions takes, when all is warm."""
    for version in range(3):
        store.add("A1", version, {"rate": str(version)}, version)

    def ask(address: str, **headers: str) -> int:
        for _ in range(2):
            assert client.get(address, headers=headers).status_code == 200
        trace = tmp_path / "trace"
        server = connection.connection.pgconn
        with trace.open("w") as file:
            server.trace(file.fileno())
            server.set_trace_flags(psycopg.pq.Trace.SUPPRESS_TIMESTAMPS)
            try:
                assert client.get(address, headers=headers).status_code == 200
            finally:
                server.untrace()
        # One of the two goes to the server each time: the simple protocol, or the end of a message.
        kinds = [line.split("\t")[2].strip() for line in trace.read_text().splitlines()
                 if line.startswith("F\t")]  # fmt: skip
        return sum(kind in ("Query", "Sync") for kind in kinds)

    return ask


def test_the_api_with_a_password(asked: Callable[..., int]) -> None:
    """The login, the ledger, the versions, the people, and the access journal."""
    found = asked("/api/v1/history/product-instance/A1", authorization=f"Basic {SECRET}")
    assert found == 5


def test_the_api_with_a_session(asked: Callable[..., int], client: Client) -> None:
    """The session too."""
    client.force_login(User.objects.get(username="support"))
    assert asked("/api/v1/history/product-instance/A1") == 6


def test_the_screen(asked: Callable[..., int], client: Client) -> None:
    """Versions and people for the page, and for its head; no permission within its 5 seconds."""
    client.force_login(User.objects.get(username="support"))
    assert asked("/admin/history/product-instance/A1/") == 8


@pytest.mark.parametrize("installation", BOTH, indirect=True)
def test_a_child(installation: str, asked: Callable[..., int], store: Store) -> None:
    """Where the tables are distributed, one more: which application it belongs to."""
    for version in range(3):
        store.add("T1", version, {"status": str(version)}, version, entity="product-task")
    found = asked("/api/v1/history/product-task/T1", authorization=f"Basic {SECRET}")
    assert found == (6 if installation == DISTRIBUTED else 5)
