"""The consumer's session in PostgreSQL does not depend on default settings of the database role."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from psycopg import sql

from ingest.store.session import open_connection
from ingest.store.transaction import BatchWriter
from tests.db.ingested import Ingested, list_ids, list_rows, query
from tests.messages import make_value

SLOW = "annals-slow"

SETTINGS = {
    "client_encoding": "WIN1251",
    "default_transaction_isolation": "repeatable read",
    "statement_timeout": "5s",
    "transaction_timeout": "5s",
}


@pytest.fixture
def login_settings(db: None) -> Iterator[None]:
    """Make SETTINGS the default settings of the database role of the tests, by ALTER ROLE."""
    [row] = query("SELECT current_user AS login, current_database() AS database")
    names = {name: sql.Identifier(text) for name, text in row.items()}

    def change(action: str) -> None:
        with open_connection("test") as plain:
            for name, value in SETTINGS.items():
                words = {"name": sql.Identifier(name), "given": sql.Literal(value)}
                alter = sql.SQL("ALTER ROLE {login} IN DATABASE {database} ").format(**names)
                plain.execute(alter + sql.SQL(action).format(**words))

    change("SET {name} = {given}")
    yield
    change("RESET {name}")


@pytest.mark.usefixtures("login_settings")
def test_text_is_stored_unchanged_when_client_encoding_of_database_role_is_not_utf8(
    ingested: Ingested,
) -> None:
    ingested.write(make_value(author="Прыгунов", data={"type": "Квартира"}))
    [row] = list_rows()
    assert row["author"] == "Прыгунов"
    assert row["text"] == '{"type": "Квартира"}'


@pytest.mark.usefixtures("login_settings")
def test_session_of_consumer_overrides_default_settings_of_database_role() -> None:
    """A time limit would make the consumer repeat a slow batch for ever. A writer that waited for
    the lock of a day sees only under `read committed` that the day is being sealed."""
    expected = {
        "transaction_isolation": "read committed",
        "statement_timeout": "0",
        "transaction_timeout": "0",
        "idle_in_transaction_session_timeout": "10s",
        "timezone": "UTC",
    }
    with open_connection("test") as plain:
        for name, text in expected.items():
            assert plain.execute(f"SHOW {name}").fetchone() == (text,), name


@pytest.fixture
def hour_per_row(ingested: Ingested) -> Iterator[None]:
    """Create a trigger that waits an hour after each row that the session named SLOW inserts."""
    with open_connection("test") as plain:
        plain.execute(
            "CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            f" IF current_setting('application_name') = '{SLOW}' THEN PERFORM pg_sleep(3600);"
            " END IF; RETURN NULL; END $$"
        )
        plain.execute(
            "CREATE TRIGGER audit AFTER INSERT ON product_instance_aud"
            " FOR EACH ROW EXECUTE FUNCTION audit()"
        )
    yield
    with open_connection("test") as plain:
        plain.execute("DROP FUNCTION audit CASCADE")


@pytest.mark.usefixtures("hour_per_row")
@pytest.mark.plain_only("needs a trigger on a table of versions, which Citus refuses")
def test_consumer_that_ends_during_a_slow_statement_leaves_no_locks(ingested: Ingested) -> None:
    slow = BatchWriter(partial(open_connection, SLOW))
    batch, again = ingested.make_batch(make_value(id="a")), ingested.make_batch(make_value(id="a"))
    for progress in again.progress.values():
        progress.start, progress.next = 0, 1
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(slow.write, batch, ingested.claims, {})
        while not query(
            "SELECT FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'PgSleep'",
            SLOW,
        ):
            time.sleep(0.05)
        slow.break_connection()
        with pytest.raises(psycopg.OperationalError):
            writing.result()
    slow.close()
    ingested.claim()
    ingested.store(again)  # raises LockNotAvailable if the row is still locked
    assert list_ids() == ["a"]
