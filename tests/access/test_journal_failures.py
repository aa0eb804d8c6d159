"""When the access journal cannot be written, clients get no data."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from prometheus_client import REGISTRY

from annals.access.journal.days import create_coming_days
from annals.access.local_logins import create_break_glass_link, create_break_glass_login
from annals.access.models import JournalEntry
from history.store.days.days import build_partition_name
from tests.access.test_permissions import ENTITY
from tests.consuming import wait_until
from tests.db.partitioned import connect_plainly, transactional_db
from tests.db.store import Store
from tests.messages import NOW

API = f"/api/v1/{ENTITY}"
SECRET = "4509123456"
ADDRESSES = [
    API,
    f"{API}/versions/0",
    "/api/v1/applications/A1/history",
    "/api/v1/search?q=A1",
    f"/admin/{ENTITY}/",
    f"/admin/{ENTITY}/versions/0/?download=1",
    "/admin/history/?q=A1+A2",
]
TABLE = JournalEntry._meta.db_table


@pytest.fixture
def support(client: Client, store: Store) -> Client:
    store.add("A1", 0, {"rate": "1", "number": SECRET}, 0)
    client.force_login(User.objects.get(username="support"))
    return client


@contextmanager
def rename_journal_table() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} RENAME TO gone")
    yield


@contextmanager
def detach_today() -> Iterator[None]:
    today = build_partition_name(TABLE, datetime.now(UTC).date())
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {TABLE} DETACH PARTITION {today}")
    yield


@contextmanager
def lock_journal_table() -> Iterator[None]:
    with connect_plainly() as other_connection, other_connection.transaction():
        other_connection.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        yield


def get_failure_count(became: str) -> float:
    value = REGISTRY.get_sample_value("annals_journal_failures_total", {"became": became})
    assert value is not None
    return value


@pytest.mark.parametrize("broken", [rename_journal_table, detach_today, lock_journal_table])
@pytest.mark.parametrize("address", ADDRESSES)
def test_request_shows_nothing_when_journal_fails(
    address: str, broken: Any, support: Client, caplog: pytest.LogCaptureFixture
) -> None:
    before = get_failure_count("refused")
    with broken(), caplog.at_level(logging.ERROR):
        answer = support.get(address)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    assert answer.headers["Cache-Control"] == "no-store"
    assert SECRET not in answer.content.decode()
    if address.startswith("/api/"):
        error = answer.json()["error"]
        assert (error["code"], error["requestId"]) == (
            "journal_unavailable",
            answer.headers["X-Request-ID"],
        )
    else:
        assert "Nothing can be shown now" in answer.content.decode()
    assert get_failure_count("refused") == before + 1
    assert "the access journal cannot be written" in caplog.text
    assert SECRET not in caplog.text


def test_writing_journal_entry_leaves_timeouts_of_the_transaction_unchanged(
    support: Client,
) -> None:
    with connection.cursor() as cursor:
        assert support.get(API).status_code == 200
        for name in ("lock_timeout", "statement_timeout"):
            cursor.execute("SELECT setting = reset_val FROM pg_settings WHERE name = %s", [name])
            assert cursor.fetchone() == (True,)


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("address", [f"{API}/versions/0", f"{API}/versions/99"])
def test_head_request_and_request_for_unknown_version_get_503_when_journal_fails(
    address: str, method: str, support: Client
) -> None:
    with rename_journal_table():
        assert support.generic(method, address).status_code == 503


def test_pages_without_data_are_answered_when_journal_fails(support: Client) -> None:
    with rename_journal_table():
        for address in ("/admin/", "/api/v1/completeness", "/healthz"):
            assert support.get(address).status_code == 200


def test_break_glass_login_is_refused_when_journal_fails(client: Client, db: None) -> None:
    path = urlsplit(create_break_glass_link(create_break_glass_login("glass", NOW))).path
    with rename_journal_table():
        answer = client.post(path)
    assert answer.status_code == 503
    assert not answer.cookies


@pytest.mark.parametrize("address", ADDRESSES)
def test_request_is_answered_when_journal_fails_and_setting_allows_it(
    address: str, support: Client, settings: Any
) -> None:
    settings.ANNALS = msgspec.structs.replace(settings.ANNALS, journal_failure="answer")
    before = get_failure_count("answered")
    with rename_journal_table():
        assert support.get(address).status_code == 200
    assert get_failure_count("answered") == before + 1


def test_journal_entry_is_written_before_streamed_answer_begins(client: Client, db: None) -> None:
    client.force_login(User.objects.get(username="privacy"))
    answer: Any = client.get("/admin/journal/?format=csv")
    assert answer.streaming
    assert JournalEntry.objects.get().action == "journal"
    read = b"".join(answer.streaming_content).decode()
    assert "/admin/journal/?format=csv" in read


def test_streamed_answer_is_refused_when_journal_fails(client: Client, db: None) -> None:
    client.force_login(User.objects.get(username="privacy"))
    with lock_journal_table():
        answer = client.get("/admin/journal/?format=csv")
    assert (answer.status_code, answer.streaming) == (503, False)


__all__ = ["transactional_db"]


@contextmanager
def make_inserts_hang() -> Iterator[None]:
    """Let every insert into the journal hang for longer than any test waits."""
    with connect_plainly() as other_connection:
        other_connection.execute(
            "CREATE FUNCTION silence() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$"
        )
        other_connection.execute(
            f"CREATE TRIGGER silence BEFORE INSERT ON {TABLE}"
            " FOR EACH ROW EXECUTE FUNCTION silence()"
        )
        try:
            yield
        finally:
            other_connection.execute("DROP FUNCTION silence CASCADE")


@pytest.fixture
def committed_client(transactional_db: None, client: Client) -> Iterator[Client]:
    create_coming_days()
    Store().add("A1", 0, {"rate": "1", "number": SECRET}, 0)
    client.force_login(User.objects.get(username="support"))
    yield client
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")


def test_request_is_refused_soon_when_journal_hangs(
    committed_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with make_inserts_hang():
        answer = committed_client.get(API)
        assert answer.status_code == 503
        assert SECRET not in answer.content.decode()
        assert "the access journal cannot be written" in caplog.text
        with connect_plainly() as other_connection:
            wait_until(
                lambda: (
                    other_connection.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                        " AND query LIKE %s",
                        [f"%INSERT INTO public.{TABLE}%"],
                    ).fetchone()
                    == (0,)
                ),
                "the statement was not cancelled",
            )
    wait_until(
        lambda: committed_client.get(API).status_code == 200, "no answer after the database is back"
    )
    assert JournalEntry.objects.filter(outcome="shown").count() == 1


def test_journal_entries_are_not_diverted_into_temporary_table(committed_client: Client) -> None:
    """PostgreSQL finds a temporary table of the session before the permanent table of the same
    name."""
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {TABLE} (LIKE public.{TABLE} INCLUDING ALL)")
    try:
        assert committed_client.get(API).status_code == 200
        with connect_plainly() as other_connection:
            (count,) = other_connection.execute(
                f"SELECT count(*) FROM public.{TABLE}"
            ).fetchone() or (0,)
        assert count == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE pg_temp.{TABLE}")
