"""The SQL of docs/runbook.md: an operator who follows it sees the sessions of others."""

from collections.abc import Iterator

import psycopg
import pytest

from annals.embedded import logins, process
from annals.embedded.postgres import Postgres
from tests.consuming import Database
from tests.docs_blocks.pages import SPANS, of
from tests.processes import own_database

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
