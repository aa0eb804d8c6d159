"""PostgreSQL's own log has no contents of documents, whatever error a login causes."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml
from django.core.management import call_command
from django.db import connection

from annals.access.grants import CONSUMER, WEB
from history.store.database.session import QUIET_LOG
from ingest.store.session import open_connection
from tests.db.ingested import Ingested
from tests.messages import NOW, make_value
from tests.postgres import HOME

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.plain_only("each node of a cluster has a log of its own"),
    pytest.mark.skipif(
        "ANNALS_TEST_DATABASE_URL" in os.environ, reason="needs the log file of the embedded server"
    ),
]

Plain = psycopg.Connection[tuple[object, ...]]
MARKER = "Canary-4711"
COLUMNS = "id, version, data, updated_at, client_id, type"


def copy(plain: Plain, data: str) -> None:
    """Copy a document into the tables of versions by COPY, as the consumer does."""
    with plain.cursor().copy(f"COPY product_instance_aud ({COLUMNS}) FROM STDIN") as rows:
        rows.write(f"a\t1\t{data}\t{NOW.isoformat()}\tclient\t1\n")


def insert_twice(plain: Plain) -> None:
    """Insert two rows with the same primary key, which has MARKER as the id."""
    row = "(%s, 1, '{}', %s, 'client', 1)"
    plain.execute(
        f"INSERT INTO product_instance_aud ({COLUMNS}) VALUES {row}, {row}",
        [MARKER, NOW, MARKER, NOW],
    )


def exceed_deadline(plain: Plain) -> None:
    plain.execute("SET statement_timeout = '50ms'")
    plain.execute("SELECT pg_sleep(5), %s", [MARKER])


# Statements that cause an error with MARKER. A login without the right to run one gets another
# error, which must not show MARKER either.
FAULTS: dict[str, Callable[[Plain], object]] = {
    "a document of COPY": lambda plain: copy(plain, f'{{"name": {MARKER}'),
    "a row without a day": lambda plain: plain.execute(
        f"INSERT INTO product_instance_aud ({COLUMNS})"
        " VALUES (%s, 1, '{}', '1999-01-01', 'client', 1)",
        [MARKER],
    ),
    "a primary key twice": insert_twice,
    "a constant of another type": lambda plain: plain.execute(f"SELECT '{MARKER}'::integer"),
    "the syntax": lambda plain: plain.execute(f"SELECT '{MARKER}' FROM WHERE"),
    "a missing right": lambda plain: plain.execute(
        "UPDATE product_instance_aud SET author = %s", [MARKER]
    ),
    "a warning of a function": lambda plain: plain.execute(
        f"DO $$ BEGIN RAISE WARNING '{MARKER}'; PERFORM 1 / 0; END $$"
    ),
    "a deadline": exceed_deadline,
}


@pytest.fixture
def log(ingested: Ingested) -> Callable[[], str]:
    """Return a function that reads what the server has logged since the start of the test."""
    ingested.write(make_value(id="other"))
    call_command("grants", apply=True)
    path = HOME / "postgres" / "server.log"
    began = path.stat().st_size

    def read_log() -> str:
        return path.read_bytes()[began:].decode()

    return read_log


@pytest.mark.parametrize("role", [None, WEB, CONSUMER], ids=["owner", "web", "consumer"])
def test_server_log_has_no_values_of_rows(role: str | None, log: Callable[[], str]) -> None:
    for fault in FAULTS.values():
        with open_connection("test-log") as plain:
            if role is not None:
                plain.execute(f"SET ROLE {role}")
            if role is None and fault is FAULTS["a missing right"]:
                continue
            with pytest.raises(psycopg.Error) as caught:
                fault(plain)
            del caught
    assert MARKER not in log()


def test_server_log_says_which_timeout_ended_a_session(log: Callable[[], str]) -> None:
    with open_connection("test-log") as plain:
        plain.execute("SET idle_in_transaction_session_timeout = '10ms'")
        plain.execute("BEGIN")
        plain.execute("SELECT %s", [MARKER])
        time.sleep(0.5)
        with pytest.raises(psycopg.Error):
            plain.execute("SELECT 1")
    assert "terminating connection due to idle-in-transaction timeout" in log()
    assert MARKER not in log()


def test_compose_file_sets_log_settings_that_hide_documents() -> None:
    compose = yaml.safe_load((Path(__file__).parents[2] / "docker/compose.yaml").read_text())
    words = compose["services"]["postgres"]["command"].split()
    values = dict(word.split("=", 1) for word in words if "=" in word)
    assert {name: values.get(name) for name in QUIET_LOG} == {
        name: str(value) for name, value in QUIET_LOG.items()
    }


def test_server_of_tests_has_log_settings_that_hide_documents(db: None) -> None:
    with connection.cursor() as cursor:
        for name, expected in QUIET_LOG.items():
            cursor.execute("SELECT current_setting(%s)", [name])
            assert cursor.fetchone() == (str(expected),)
