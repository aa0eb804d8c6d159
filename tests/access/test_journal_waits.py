"""A database that does not answer holds up no request for longer than a moment, and no answer goes
out without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from annals.access.journal.days import create
from annals.access.models import JournalEntry
from tests.access.test_journal_failures import API, SECRET
from tests.consuming import until
from tests.db.partitioned import raw, transactional_db
from tests.db.store import Store

__all__ = ["transactional_db"]

TABLE = JournalEntry._meta.db_table


@contextmanager
def silent() -> Iterator[None]:
    """The database does not answer to what adds to the journal, for longer than any test waits."""
    with raw() as other:
        other.execute(
            "CREATE FUNCTION silence() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_sleep(600); RETURN NEW; END $$"
        )
        other.execute(
            f"CREATE TRIGGER silence BEFORE INSERT ON {TABLE}"
            " FOR EACH ROW EXECUTE FUNCTION silence()"
        )
        try:
            yield
        finally:
            other.execute("DROP FUNCTION silence CASCADE")


@pytest.fixture
def support(transactional_db: None, client: Client) -> Iterator[Client]:
    create()
    Store().add("A1", 0, {"rate": "1", "number": SECRET}, 0)
    client.force_login(User.objects.get(username="support"))
    yield client
    with connection.cursor() as cursor:
        cursor.execute(f"TRUNCATE {TABLE}")


def test_no_request_waits_for_a_silent_database(
    support: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with silent():
        answer = support.get(API)
        assert answer.status_code == 503
        assert SECRET not in answer.content.decode()
        assert "the access journal cannot be written" in caplog.text
        with raw() as other:
            until(
                lambda: (
                    other.execute(
                        "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                        " AND query LIKE %s",
                        [f"%INSERT INTO public.{TABLE}%"],
                    ).fetchone()
                    == (0,)
                ),
                "the statement was not cancelled",
            )
    until(lambda: support.get(API).status_code == 200, "no answer after the database is back")
    assert JournalEntry.objects.filter(outcome="shown").count() == 1


def test_a_temporary_table_takes_no_rows(support: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TEMPORARY TABLE {TABLE} (LIKE public.{TABLE} INCLUDING ALL)")
    try:
        assert support.get(API).status_code == 200
        with raw() as other:
            (found,) = other.execute(f"SELECT count(*) FROM public.{TABLE}").fetchone() or (0,)
        assert found == 1
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE pg_temp.{TABLE}")
