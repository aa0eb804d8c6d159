"""The limits that `annals grants` sets for database logins, and the logins that it creates."""

import re
from functools import partial
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from annals.access import grants
from annals.access.grants import CONSUMER, WEB, list_web_rights
from history.common import private_files
from history.kinds.entities import ROOT
from history.store.database import privileges
from ingest.store import rights
from ingest.store.session import open_connection
from tests.consuming import wait_until
from tests.db.as_role import PASSWORD, build_url, create_member

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def granted() -> None:
    call_command("grants", apply=True, stdout=StringIO())


def fetch_limits(login: str) -> tuple[int, list[str]]:
    """Return the connection limit and the settings of a login."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolconnlimit, rolconfig FROM pg_roles WHERE rolname = %s", [login])
        actual: tuple[int, list[str] | None] = cursor.fetchone()
    return actual[0], sorted(actual[1] or [])


def alter_login(login: str, clause: str) -> None:
    with open_connection("test-owner") as owner:
        owner.execute(f"ALTER ROLE {login} {clause}")


@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_each_database_login_gets_its_connection_limit_and_settings(role: str) -> None:
    with create_member(role) as login:
        call_command("grants", apply=True, stdout=StringIO())
        expected = grants.LIMITS[role]
        settings = sorted(f"{name}={value}" for name, value in expected.settings.items())
        assert fetch_limits(login) == (expected.connections, settings)


def test_grants_command_keeps_limits_set_by_administrator() -> None:
    with create_member(WEB) as login:
        alter_login(login, "SET statement_timeout = '3s'")
        alter_login(login, "CONNECTION LIMIT 200")
        call_command("grants", apply=True, stdout=StringIO())
        connections, settings = fetch_limits(login)
        assert connections == 200
        assert settings == [
            "idle_in_transaction_session_timeout=1min",
            "lock_timeout=10s",
            "statement_timeout=3s",
        ]
        out = StringIO()
        call_command("grants", stdout=out)
        assert "ALTER ROLE" not in out.getvalue()


def test_connection_limits_of_all_logins_leave_connections_for_administrator() -> None:
    assert sum(limit.connections for limit in grants.LIMITS.values()) <= 97


def test_grants_command_creates_logins_and_changes_passwords(tmp_path: Path) -> None:
    file = tmp_path / "password"
    try:
        for password in ("first", "second"):
            private_files.write_private_file(file, f"{password}\n")
            words = ("web", "made_login", str(file))
            call_command("grants", apply=True, login=[words], stdout=StringIO())
            url = build_url("made_login").replace(PASSWORD, password)
            with psycopg.connect(url) as plain:
                row = plain.execute("SELECT pg_has_role('annals_web', 'USAGE')").fetchone()
                assert row == (True,)
        assert fetch_limits("made_login")[0] == grants.LIMITS[WEB].connections
    finally:
        with open_connection("test-owner") as owner:
            owner.execute("DROP ROLE IF EXISTS made_login")


def test_login_cannot_get_rights_of_second_role(tmp_path: Path) -> None:
    file = tmp_path / "password"
    private_files.write_private_file(file, "other")
    with create_member(CONSUMER) as login:
        with pytest.raises(CommandError, match=f"{login} already has the rights of {CONSUMER}, "):
            call_command("grants", apply=True, login=[("web", login, str(file))])
        with psycopg.connect(build_url(login)) as plain:  # its password has not changed
            row = plain.execute("SELECT pg_has_role('annals_web', 'MEMBER')").fetchone()
        assert row == (False,)
        alter_login(login, "SUPERUSER")
        with pytest.raises(CommandError, match=r"already has the rights of .*owner"):
            call_command("grants", apply=True, login=[("consumer", login, str(file))])


@pytest.mark.parametrize("role", [WEB, CONSUMER])
def test_database_login_of_web_or_consumer_is_neither_superuser_nor_owner(role: str) -> None:
    with create_member(role) as login, psycopg.connect(build_url(login)) as plain:
        assert privileges.explain_wrong_login(plain) is None


def test_database_login_that_is_superuser_or_owns_the_tables_is_reported() -> None:
    with open_connection("test-owner") as plain:
        actual = privileges.explain_wrong_login(plain) or ""
        assert re.match(r"The database login '\w+' of this process is a superuser", actual)
        with plain.transaction(force_rollback=True):
            plain.execute("CREATE ROLE made_owner")
            plain.execute("GRANT CREATE ON SCHEMA public TO made_owner")
            plain.execute(f"ALTER TABLE {ROOT.table} OWNER TO made_owner")
            plain.execute("SET LOCAL ROLE made_owner")
            actual = privileges.explain_wrong_login(plain) or ""
    assert "'made_owner' of this process owns the tables" in actual


def test_missing_rights_are_reported_when_web_uses_database_login_of_consumer() -> None:
    with create_member(CONSUMER) as login, psycopg.connect(build_url(login)) as plain:
        actual = privileges.explain_lacking_rights(plain, list_web_rights()) or ""
    assert f"'{login}' of this process lacks rights: " in actual
    assert " more. Run `annals grants --apply`" in actual
    with create_member(WEB) as login, psycopg.connect(build_url(login)) as plain:
        assert privileges.explain_lacking_rights(plain, list_web_rights()) is None


def test_failure_to_check_a_database_login_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    privileges.warn_in_background(partial(psycopg.connect, "host=127.0.0.1 port=1"))
    wait_until(lambda: "was not checked" in caplog.text, "nothing is logged")


def test_consumer_logs_missing_rights(caplog: pytest.LogCaptureFixture) -> None:
    expected = tuple(rights.list_consumer_rights())
    with create_member(CONSUMER) as login:
        with psycopg.connect(build_url(login)) as plain:
            assert privileges.explain_lacking_rights(plain, expected) is None
        with open_connection("test-owner") as owner:
            owner.execute(f"REVOKE INSERT ON {ROOT.table} FROM {CONSUMER}")
            owner.execute(f"REVOKE UPDATE (stored) ON ingest_ledger FROM {CONSUMER}")
        privileges.warn_in_background(partial(psycopg.connect, build_url(login)), rights=expected)
        wait_until(lambda: "lacks rights" in caplog.text, "nothing is logged")
    assert f"{login!r} of this process lacks rights: INSERT on {ROOT.table}, UPDATE on " in (
        caplog.text
    )
    assert "ingest_ledger.stored. Run `annals grants --apply`" in caplog.text


def test_background_thread_logs_warning_about_rights_of_database_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    privileges.warn_in_background(partial(open_connection, "test-check"))
    wait_until(lambda: "annals grants" in caplog.text, "nothing is logged")
