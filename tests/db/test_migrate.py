"""`annals migrate` waits only briefly for locks, so that other processes can go on using the
tables."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection
from django.test import Client

from annals.management.commands import migrate
from history.common import schema
from history.common.error_sentences import explain_error
from ingest.management.preconditions import refuse_incompatible_tables
from ingest.store.session import open_connection
from tests.consuming import wait_until
from tests.db.ingested import Ingested, query
from tests.messages import make_value

pytestmark = pytest.mark.django_db(transaction=True)

# A migration that locks a table into which requests write.
WITH_A_LOCK = ("access", "0008_no_failed_logins")
JOURNAL = "access_journal"
# The insert of a web process of the release before 0005, without three of today's columns.
WRITE = (
    "INSERT INTO access_journal (login, actor, address, request_id, action, entity, entity_id,"
    " application, outcome, status, method, query, reason) VALUES"
    " ('m', 'person', '', '', 'timeline', '', '', '', 'shown', 200, 'GET', '', '')"
)


@pytest.fixture(autouse=True)
def restored_migrations() -> Iterator[None]:
    """Restore the rows of the table `django_migrations` after the test."""
    before = query("SELECT app, name FROM django_migrations")
    yield
    with open_connection("test") as plain:
        plain.execute("TRUNCATE django_migrations")
        for row in before:
            _insert_migration(plain, (str(row["app"]), str(row["name"])))


def _insert_migration(
    plain: psycopg.Connection[tuple[object, ...]], name: schema.MigrationName
) -> None:
    plain.execute("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, now())", name)


def forget_migration(name: schema.MigrationName) -> None:
    """Delete the row of a migration from the table `django_migrations`."""
    with open_connection("test") as plain:
        plain.execute("DELETE FROM django_migrations WHERE app = %s AND name = %s", name)


def forget_migrations_from(name: schema.MigrationName) -> None:
    """Delete the rows of a migration and of all later ones of the same app from the table
    `django_migrations`."""
    with open_connection("test") as plain:
        plain.execute("DELETE FROM django_migrations WHERE app = %s AND name >= %s", name)


def query_applied() -> list[schema.MigrationName]:
    return [(str(row["app"]), str(row["name"])) for row in query(schema.APPLIED)]


def is_applied(name: schema.MigrationName) -> bool:
    return bool(query("SELECT 1 FROM django_migrations WHERE app = %s AND name = %s", *name))


@contextmanager
def hold_lock(table: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Read a table in a transaction that stays open until the end of the `with` block."""
    with open_connection("a-long-report") as plain:
        plain.execute("SET idle_in_transaction_session_timeout = 0")
        plain.execute("BEGIN")
        plain.execute(f"SELECT count(*) FROM {table}")
        yield plain


@contextmanager
def write_meanwhile(insert: str) -> Iterator[list[float]]:
    """Execute `insert` again and again during the `with` block.

    Yields a list that gets the duration of each INSERT, in seconds.
    """
    stop, took = threading.Event(), []

    def write() -> None:
        with open_connection("writer") as plain:
            while not stop.is_set():
                began = time.monotonic()
                plain.execute(insert)
                took.append(time.monotonic() - began)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


def test_migrate_gives_up_without_stopping_writers_when_a_table_stays_locked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(migrate, "GIVE_UP_SECONDS", 5)
    forget_migrations_from(WITH_A_LOCK)
    text = StringIO()
    with hold_lock(JOURNAL), write_meanwhile(WRITE) as took:
        wait_until(lambda: len(took) > 10, "the writer stores no rows")
        with pytest.raises(CommandError) as error:
            call_command("migrate", verbosity=0, stderr=text)
        before = len(took)
        # The transaction is still open. If the migration still waited for it, inserts would wait.
        wait_until(lambda: len(took) > before + 10, "the writer does not continue")
    assert "Nothing is half applied" in str(error.value)
    assert "Trying again in 1 s" in text.getvalue()
    assert not is_applied(WITH_A_LOCK)
    assert max(took) > migrate.LOCK_SECONDS / 2, (
        "the writer never waited, so the test shows nothing"
    )
    call_command("migrate", verbosity=0)
    assert is_applied(WITH_A_LOCK)


def test_migrate_tries_again_until_lock_is_free() -> None:
    forget_migrations_from(WITH_A_LOCK)
    text = StringIO()

    def free() -> None:
        wait_until(lambda: "Trying again" in text.getvalue(), "no second attempt")
        holder.execute("ROLLBACK")

    with hold_lock(JOURNAL) as holder:
        thread = threading.Thread(target=free)
        thread.start()
        call_command("migrate", verbosity=0, stderr=text)
        thread.join()
    assert is_applied(WITH_A_LOCK)


def test_migrate_command_fails_when_statement_of_a_migration_exceeds_statement_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sleep_in_database(*_: object, **__: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr(migrate.migrate.Command, "handle", sleep_in_database)
    with pytest.raises(CommandError, match=r"took more than 0\.2 seconds"):
        call_command("migrate", statement_timeout=0.2)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        assert cursor.fetchone() == ("0",)


def test_lock_timeout_below_one_millisecond_is_not_rounded_to_zero() -> None:
    with migrate.limit_waits(connection, 0.0004, 0), connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("1ms",)
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


@pytest.mark.parametrize(
    "now, replaced",
    [
        ("0001_release_0_1_0", "0010_search_key_without_application"),
        ("0002_gaps_asked_for_packed_days", "0019_no_child_homes"),
    ],
)
def test_migration_that_replaces_applied_migrations_does_not_count_as_missing(
    now: str, replaced: str
) -> None:
    forget_migration(("history", now))
    assert schema.find_missing_migrations(query_applied()) == []
    forget_migration(("history", replaced))
    assert schema.find_missing_migrations(query_applied()) == [("history", now)]


def test_consumer_refuses_tables_of_a_different_release(ingested: Ingested) -> None:
    refuse_incompatible_tables()
    forget_migrations_from(WITH_A_LOCK)
    with pytest.raises(CommandError, match=f"{WITH_A_LOCK[1]}.*Run `annals migrate`"):
        refuse_incompatible_tables()
    call_command("migrate", verbosity=0)
    with open_connection("test") as plain:
        # A migration of the next release.
        _insert_migration(plain, ("history", "9998_one_more_table"))
    refuse_incompatible_tables()
    ingested.write(make_value(id="a"))


def test_command_refuses_tables_of_a_different_release(
    db: None,
) -> None:
    with pytest.raises(DatabaseError) as caught, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM a_later_table")
    # No migration is missing, so this is another fault.
    assert "UndefinedTable" in explain_error(caught.value)
    forget_migrations_from(WITH_A_LOCK)
    text = explain_error(caught.value)
    assert text.startswith("The database lacks migrations of this release (access.0008")
    assert len(text.splitlines()) == 1


def test_web_answers_503_until_tables_are_migrated() -> None:
    forget_migrations_from(WITH_A_LOCK)
    client = Client()  # as in a new process, which has not checked the tables yet
    for path, text in (
        ("/api/v1/completeness", "the database is not at the version of this release yet"),
        ("/admin/", "the database is not at the version of this release yet"),
    ):
        answer = client.get(path, headers={"Accept-Language": "en"})
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert text in answer.content.decode()
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").json()["checks"]["migrations"] == "1 not applied"
    call_command("migrate", verbosity=0)
    assert client.get("/api/v1/completeness").status_code == 401
