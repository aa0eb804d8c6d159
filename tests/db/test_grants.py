"""The web cannot change history, and the consumer can only add to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import timedelta
from io import StringIO

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from msgspec.structs import replace
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from annals import start
from annals.access.grants import CONSUMER, WEB
from history.entities import ENTITIES, ROOT
from history.seals.seal import seal
from ingest.quarantine.messages import Selection
from ingest.quarantine.retry import retry
from ingest.store import ledger
from ingest.store.connect import connect
from ingest.store.transaction import Writer
from tests.db.ingested import Ingested, quarantined
from tests.messages import NOW, SOURCE, WINDOW, value

pytestmark = pytest.mark.django_db(transaction=True)

VERSIONS = [entity.table for entity in ENTITIES]
CHANGES = ("UPDATE {} SET version = 0", "DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}")


@pytest.fixture(autouse=True)
def granted() -> None:
    call_command("grants", apply=True)


@contextmanager
def acting_as(role: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with connect("test-grants") as found:
        found.execute(f"SET ROLE {role}")
        yield found


def refused(plain: psycopg.Connection[tuple[object, ...]], statement: str) -> bool:
    try:
        plain.execute(statement)
    except errors.InsufficientPrivilege:
        return True
    return False


# One test a role, not one a statement: emptying the database after each takes far longer.
@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_nobody_changes_history(role: str) -> None:
    tried = [change.format(table) for table in VERSIONS for change in CHANGES]
    with acting_as(role) as plain:
        assert [each for each in tried if not refused(plain, each)] == []


def test_the_web_reads_what_it_cannot_add_to() -> None:
    with acting_as(WEB) as plain:
        for table in (*VERSIONS, "ingest_ledger", "ingest_quarantine", "search_key"):
            plain.execute(f"SELECT * FROM {table} LIMIT 1")
            assert refused(plain, f"INSERT INTO {table} DEFAULT VALUES")


def test_the_consumer_sees_no_logins() -> None:
    with acting_as(CONSUMER) as plain:
        for table in ("auth_user", "django_session", "history_person"):
            assert refused(plain, f"SELECT * FROM {table} LIMIT 1")


def test_the_consumer_can_do_all_its_work(ingested: Ingested) -> None:
    # The days exist, as after maintain: a role that may only insert cannot create them.
    old = NOW.replace(tzinfo=None) - timedelta(days=20)
    ingested.write(value(id="before"), value(id="old", updatedAt=old.isoformat()))
    with connect("test-owner") as owner:
        seal(owner, ROOT, old.date())

    def restricted() -> psycopg.Connection[tuple[object, ...]]:
        plain = connect("test-consumer")
        plain.execute(f"SET ROLE {CONSUMER}")
        return plain

    ingested.writer.close()
    ingested.writer = Writer(restricted)
    ingested.write(value(id="a", data={"realtyCrmId": "R-1"}), b"not json")
    ingested.write(value(id="a", data={"realtyCrmId": "R-1"}), value(id="b"))
    ingested.write(value(id="late", updatedAt=old.isoformat()))
    with restricted() as plain:
        assert sum(retry(plain, Selection(), lambda: WINDOW), Counter()) == {"retrying": 1}
    ingested.writer.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM product_instance_aud ORDER BY id")
        assert cursor.fetchall() == [("a",), ("b",), ("before",), ("late",), ("old",)]
        cursor.execute('SELECT row_id, "offset" FROM late_row')
        assert cursor.fetchall() == [("late", 6)]
        cursor.execute("SELECT sum(stored), sum(repeated), sum(quarantined) FROM ingest_ledger")
        assert cursor.fetchone() == (5, 1, 1)


@contextmanager
def hardened() -> Iterator[None]:
    """A database without the right that PostgreSQL gives to PUBLIC."""
    name = sql.Identifier(connection.settings_dict["NAME"])
    with connect("test-owner") as owner:
        owner.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(name))
        try:
            yield
        finally:
            owner.execute(sql.SQL("GRANT TEMPORARY ON DATABASE {} TO PUBLIC").format(name))


def test_repeats_are_recognised_where_public_may_create_no_temporary_table(
    ingested: Ingested,
) -> None:
    ingested.write(value(id="a"))
    with hardened(), acting_as(CONSUMER) as plain:
        ingested.writer.close()
        ingested.writer = Writer(lambda: plain)
        written = ingested.write(value(id="a"))
    assert sum(written.repeated.values()) == 1


@contextmanager
def logged_in(role: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands of this process log in with a member of the role, as in production."""
    login, given = f"{role}_login", connection.settings_dict
    with connect("test-owner") as owner:
        owner.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'secret' IN ROLE {role}")
    url = make_conninfo(settings.ANNALS.database_url or "", user=login, password="secret")
    _disconnect()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(settings, "ANNALS", replace(settings.ANNALS, database_url=url))
            patch.setitem(given, "USER", login)
            patch.setitem(given, "PASSWORD", "secret")
            yield
    finally:
        _disconnect()
        with connect("test-owner") as owner:
            owner.execute(f"DROP ROLE {login}")


def _disconnect() -> None:
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]  # of psycopg's backend


def outcome(*words: str) -> int | str:
    """The exit code of a command; for an exception what the process would print."""
    try:
        call_command(*words, stdout=StringIO(), stderr=StringIO())
    except SystemExit as end:
        return int(end.code or 0)
    except Exception as error:
        said = StringIO()
        with redirect_stderr(said):
            start._uncaught(type(error), error, error.__traceback__)
        return said.getvalue()
    return 0


def test_the_consumers_login_runs_its_commands(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingested.write(value(id="a"), b"bad", b"worse")
    [first, second] = (str(held["id"]) for held in quarantined())
    with connect("test-owner") as owner:
        ledger.halt(owner, [ingested.claims[SOURCE]], "bad")
    commands = (
        ("ledger", "--offline"),
        ("ledger", "--offline", "--json"),
        ("quarantine", "list"),
        ("quarantine", "list", "--ids"),
        ("quarantine", "show", first),
        ("quarantine", "retry", "--now", "--dry-run"),
        ("quarantine", "retry", "--now"),
        ("quarantine", "retry", first),
        ("quarantine", "discard", second, "--why", "agreed"),
        ("quarantine", "resume", SOURCE.topic),
    )
    with logged_in(CONSUMER, monkeypatch):
        assert {words: outcome(*words) for words in commands} == dict.fromkeys(commands, 0)


def test_a_command_of_another_login_says_so(
    ingested: Ingested, monkeypatch: pytest.MonkeyPatch
) -> None:
    with logged_in(CONSUMER, monkeypatch):
        said = outcome("ledger", "retire", SOURCE.topic, "--why", "finished")
    assert said == (
        "annals: the database login of this process may not do that (ProgrammingError: SQLSTATE "
        "42501: permission denied for table ingest_retired_topic). docs/operations.md says which "
        "login runs which command.\n"
    )
