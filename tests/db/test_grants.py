"""The web cannot change history, and the consumer can only add to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection
from psycopg import errors, sql

from annals.access.grants import CONSUMER, WEB
from history.entities import ENTITIES, ROOT
from history.seals.seal import seal
from ingest.quarantine.messages import Selection
from ingest.quarantine.retry import retry
from ingest.store.connect import connect
from ingest.store.transaction import Writer
from tests.db.ingested import Ingested
from tests.messages import NOW, WINDOW, value

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
