"""A login that PostgreSQL refuses under a running consumer: it waits, says so, and goes on."""

import logging
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from ingest import metrics
from ingest.store.ledger import Connection
from ingest.store.retrying import RetryingWriter
from ingest.store.transaction import Writer
from tests.consuming import until

LOGIN = f"refused_{os.getpid()}"


def server(text: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as plain:
        plain.execute(text)


@pytest.fixture
def password() -> Iterator[str]:
    """Of a login of its own."""
    made = secrets.token_hex(16)
    server(f"CREATE ROLE {LOGIN} LOGIN PASSWORD '{made}'")
    yield made
    server(f"DROP ROLE {LOGIN}")


def refused() -> float:
    [family] = metrics.LOGIN_REFUSED.collect()
    [value] = [each.value for each in family.samples if each.labels["server"] == "postgresql"]
    return value


def test_a_changed_password_is_waited_for(
    db: None, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = make_conninfo(os.environ["DATABASE_URL"], user=LOGIN, password=password)

    def connect() -> Connection:
        return psycopg.connect(url, autocommit=True)

    writer = RetryingWriter(Writer(connect))
    assert writer.claim({}) == []  # it works
    writer.writer.close()
    server(f"ALTER ROLE {LOGIN} PASSWORD 'another'")
    with ThreadPoolExecutor(1) as thread:
        claiming = thread.submit(writer.claim, {})
        until(refused, "the refusal is in no metric")
        assert writer.failing
        server(f"ALTER ROLE {LOGIN} PASSWORD '{password}'")
        assert claiming.result(60) == []
    assert refused() == 0
    writer.writer.close()
    said = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert said[0].getMessage().startswith("PostgreSQL at ")
    assert "refuses the login" in said[0].getMessage()
    assert said[0].getMessage().endswith("Nothing is lost; trying again")
    assert password not in caplog.text
