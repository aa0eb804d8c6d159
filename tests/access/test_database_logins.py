"""The logins of PostgreSQL that processes and operators use.

An SQL statement that somebody injects into a web process or a consumer cannot make a login
unusable. An operator who runs the SQL of docs/runbook.md sees the sessions of all logins.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.access.grants import LIMITS, WEB
from annals.embedded import logins, process
from annals.embedded.postgres import EmbeddedPostgres
from history.retention.run_lock import RUN_LOCK
from history.store.database.session import SESSION
from tests.consuming import ProductDatabase, run_command
from tests.docs_blocks.pages import SPANS, list_blocks
from tests.forked import get_forker
from tests.processes import create_own_database

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
    "role": "annals_web",  # the one setting without an effect; it must not hide the others
}


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[ProductDatabase]:
    with create_own_database(server) as database_value:
        yield database_value


def make_environment(database: ProductDatabase, login: str, home: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    return env | {"DATABASE_URL": database.build_url(login), "ANNALS_HOME": str(home)}


def test_web_overrides_harmful_settings_of_its_database_login(
    database: ProductDatabase, tmp_path: Path
) -> None:
    with psycopg.connect(database.build_url(logins.WEB), autocommit=True) as plain:
        for name, value in LOCK_OUT.items():
            plain.execute(f"ALTER ROLE CURRENT_USER SET {name} = {value}")
        plain.execute("ALTER ROLE CURRENT_USER SET statement_timeout = 0")
    names = [*SESSION, "transaction_timeout"]
    try:
        result = run_command(
            make_environment(database, logins.WEB, tmp_path),
            "shell",
            "-c",
            "from django.db import connection as c; from history.models import Person;"
            " Person.objects.create(login='x', full_name='x'); k = c.cursor();"
            f" print([k.execute('SHOW ' + n) and k.fetchone()[0] for n in {names}])",
        )
        assert result.returncode == 0, result.stderr
        assert str([*SESSION.values(), "0"]) in result.stdout
    finally:
        for name in (*LOCK_OUT, "statement_timeout"):
            database.execute(f"ALTER ROLE {logins.WEB} RESET {name}")
        limit = LIMITS[WEB].settings["statement_timeout"]
        database.execute(f"ALTER ROLE {logins.WEB} SET statement_timeout = '{limit}'")


@pytest.mark.parametrize("login", [logins.OWNER, logins.WEB])
def test_maintain_reports_session_that_holds_the_run_lock(
    database: ProductDatabase, tmp_path: Path, login: str
) -> None:
    with psycopg.connect(
        database.build_url(login), autocommit=True, application_name="another"
    ) as plain:
        plain.execute("SELECT pg_advisory_lock(%s)", [RUN_LOCK])
        result = run_command(
            make_environment(database, logins.OWNER, tmp_path), "partitions", "maintain"
        )
        assert result.returncode == 1
        for word in (str(plain.info.backend_pid), login, "another"):
            assert word in result.stderr
        assert plain.execute("SELECT 1").fetchone() == (1,)


def test_database_logins_of_tests_have_the_rights_from_the_grants_command(
    database: ProductDatabase,
) -> None:
    for login, allowed in ((logins.WEB, False), (logins.CONSUMER, True)):
        with psycopg.connect(database.build_url(login)) as plain:
            query = "SELECT has_database_privilege(current_database(), 'TEMPORARY')"
            assert plain.execute(query).fetchone() == (allowed,)


def test_consumer_does_not_start_when_pooler_drops_session_settings(
    database: ProductDatabase, tmp_path: Path
) -> None:
    """PgBouncer does this with `ignore_startup_parameters = options`."""
    env = make_environment(database, logins.CONSUMER, tmp_path)
    lost = {"history.store.database.session.SESSION_MARK": "annals.lost"}
    result = get_forker().run_command(
        "consume", env=env | {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}, constants=lost
    )
    assert result.code == 1
    assert "A pooler between Annals and PostgreSQL drops the settings" in result.err


PAGE = "docs/runbook.md"
BLOCKS = [block.text.strip().rstrip(";") for block in list_blocks("sql") if block.page == PAGE]
QUERIES = [text for page, text in SPANS if page == PAGE and text.startswith("SELECT ")]
[CREATE] = [block for block in BLOCKS if block.startswith("CREATE ROLE")]
[SESSIONS] = [block for block in BLOCKS if "pg_blocking_pids" in block]
# The rights on the nodes of a cluster are tested in tests/citus.
OF_A_CLUSTER = ("run_command_on_all_nodes", "recover_prepared_transactions")
SELECTS = [
    SESSIONS,
    *(
        query
        for query in QUERIES
        if not any(name in query for name in (*OF_A_CLUSTER, "access_journal"))
    ),
]
[OF_THE_OWNER] = [query for query in QUERIES if " FROM access_journal " in query]
WORD = process.generate_password()
END = "SELECT pg_terminate_backend(PID)"


@pytest.fixture
def operator(server: EmbeddedPostgres) -> Iterator[tuple[ProductDatabase, str]]:
    """Yield a database, and the URL of a login that was created as the runbook says."""
    with create_own_database(server) as database_value:
        database_value.execute(CREATE.replace("'...'", f"'{WORD}'"))
        try:
            parameters = {"user": "operator_login", "password": WORD}
            yield database_value, psycopg.conninfo.make_conninfo(database_value.url, **parameters)
        finally:
            database_value.execute("DROP ROLE operator_login")


def test_operator_lists_and_ends_database_sessions_with_runbook_queries(
    operator: tuple[ProductDatabase, str],
) -> None:
    assert END in SELECTS
    database, address = operator
    with (
        psycopg.connect(
            database.build_url(logins.CONSUMER), application_name="annals-x"
        ) as consumer_session,
        psycopg.connect(address, autocommit=True) as operator_session,
    ):
        consumer_session.execute("SELECT 1")
        pid = consumer_session.info.backend_pid
        with psycopg.connect(database.build_url(logins.OWNER)) as owner:
            owner.execute(OF_THE_OWNER)
        for query in SELECTS:
            operator_session.execute(query.replace("PID", str(pid)) if query != END else "SELECT 1")
        actual = {row[0]: row for row in operator_session.execute(SESSIONS)}
        assert actual[pid][1] == "idle in transaction"
        assert actual[pid][-1] is not None
        assert operator_session.execute(END.replace("PID", str(pid))).fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError):
            consumer_session.execute("SELECT 1")
