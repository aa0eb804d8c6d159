"""Logins of PostgreSQL: a statement that somebody injected into the web or the consumer locks
nobody out, and an operator who follows the SQL of docs/runbook.md sees the sessions of others."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.access.grants import LIMITS, WEB
from annals.embedded import logins, process
from annals.embedded.postgres import Postgres
from history.database.session import SESSION
from history.partitions.exclusive import RUN_LOCK
from tests.consuming import Database, command
from tests.docs_blocks.pages import SPANS, of
from tests.forked import forking
from tests.processes import own_database

LOCK_OUT = {
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "search_path": "nowhere",
    "row_security": "off",
    "timezone": "'Asia/Tokyo'",
    "datestyle": "'SQL, DMY'",
    "transaction_timeout": "'10s'",
    "idle_session_timeout": "'1ms'",
    "exit_on_error": "on",
    "array_nulls": "off",
    "temp_buffers": "1073741823",
    "local_preload_libraries": "nowhere",
    "default_table_access_method": "nowhere",
    "role": "annals_web",  # changes nothing, and must not hide the others
}


@pytest.fixture
def database(server: Postgres) -> Iterator[Database]:
    with own_database(server) as made:
        yield made


def environment(database: Database, login: str, home: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    return env | {"DATABASE_URL": database.url_of(login), "ANNALS_HOME": str(home)}


def test_a_login_that_changed_its_own_settings_can_still_write(
    database: Database, tmp_path: Path
) -> None:
    with psycopg.connect(database.url_of(logins.WEB), autocommit=True) as plain:
        for name, value in LOCK_OUT.items():
            plain.execute(f"ALTER ROLE CURRENT_USER SET {name} = {value}")
        plain.execute("ALTER ROLE CURRENT_USER SET statement_timeout = 0")
    names = [*SESSION, "transaction_timeout"]
    try:
        done = command(
            environment(database, logins.WEB, tmp_path),
            *("shell", "-c"),
            "from django.db import connection as c; from history.models import Person;"
            " Person.objects.create(login='x', full_name='x'); k = c.cursor();"
            f" print([k.execute('SHOW ' + n) and k.fetchone()[0] for n in {names}])",
        )
        assert done.returncode == 0, done.stderr
        assert str([*SESSION.values(), "0"]) in done.stdout
    finally:
        for name in (*LOCK_OUT, "statement_timeout"):
            database.execute(f"ALTER ROLE {logins.WEB} RESET {name}")
        limit = LIMITS[WEB].settings["statement_timeout"]
        database.execute(f"ALTER ROLE {logins.WEB} SET statement_timeout = '{limit}'")


@pytest.mark.parametrize("login", [logins.OWNER, logins.WEB])
def test_maintain_says_which_session_has_its_lock(
    database: Database, tmp_path: Path, login: str
) -> None:
    with psycopg.connect(
        database.url_of(login), autocommit=True, application_name="another"
    ) as plain:
        plain.execute("SELECT pg_advisory_lock(%s)", [RUN_LOCK])
        done = command(environment(database, logins.OWNER, tmp_path), "partitions", "maintain")
        assert done.returncode == 1
        for word in (str(plain.info.backend_pid), login, "another"):
            assert word in done.stderr
        assert plain.execute("SELECT 1").fetchone() == (1,)


def test_a_test_database_has_the_rights_of_grants(database: Database) -> None:
    for login, allowed in ((logins.WEB, False), (logins.CONSUMER, True)):
        with psycopg.connect(database.url_of(login)) as plain:
            query = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
            assert plain.execute(query).fetchone() == (allowed,)


def test_a_consumer_whose_session_lost_its_settings_does_not_start(
    database: Database, tmp_path: Path
) -> None:
    """A pooler drops them: PgBouncer with ignore_startup_parameters = options."""
    env = environment(database, logins.CONSUMER, tmp_path)
    lost = {"history.database.session.SESSION_MARK": "annals.lost"}
    done = forking().run(
        "consume", env=env | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, constants=lost
    )
    assert done.code == 1
    assert "A pooler between Annals and PostgreSQL drops the settings" in done.err


PAGE = "docs/runbook.md"
BLOCKS = [each.text.strip().rstrip(";") for each in of("sql") if each.page == PAGE]
QUERIES = [text for page, text in SPANS if page == PAGE and text.startswith("SELECT ")]
[CREATE] = [each for each in BLOCKS if each.startswith("CREATE ROLE")]
[SESSIONS] = [each for each in BLOCKS if "pg_blocking_pids" in each]
# What a cluster is asked needs one: tests/citus.
OF_A_CLUSTER = ("run_command_on_all_nodes", "recover_prepared_transactions")
SELECTS = [
    SESSIONS,
    *(
        each
        for each in QUERIES
        if not any(name in each for name in (*OF_A_CLUSTER, "access_journal"))
    ),
]
[OF_THE_OWNER] = [each for each in QUERIES if " FROM access_journal " in each]
WORD = process.new_password()
END = "SELECT pg_terminate_backend(PID)"


@pytest.fixture
def operator(server: Postgres) -> Iterator[tuple[Database, str]]:
    """A database and the URI of the login that the page says how to create."""
    with own_database(server) as made:
        made.execute(CREATE.replace("'...'", f"'{WORD}'"))
        try:
            given = {"user": "operator_login", "password": WORD}
            yield made, psycopg.conninfo.make_conninfo(made.url, **given)
        finally:
            made.execute("DROP ROLE operator_login")


def test_each_query_answers_and_shows_what_others_wait_for(operator: tuple[Database, str]) -> None:
    assert END in SELECTS
    database, address = operator
    with (
        psycopg.connect(database.url_of(logins.CONSUMER), application_name="annals-x") as other,
        psycopg.connect(address, autocommit=True) as mine,
    ):
        other.execute("SELECT 1")
        pid = other.info.backend_pid
        with psycopg.connect(database.url_of(logins.OWNER)) as owner:
            owner.execute(OF_THE_OWNER)
        for each in SELECTS:
            mine.execute(each.replace("PID", str(pid)) if each != END else "SELECT 1")
        found = {row[0]: row for row in mine.execute(SESSIONS)}
        assert found[pid][1] == "idle in transaction"
        assert found[pid][-1] is not None
        assert mine.execute(END.replace("PID", str(pid))).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError):
            other.execute("SELECT 1")
