"""`annals check --database default` reports bad settings of the PostgreSQL server.

It accepts the servers of docker/compose.yaml, of docs/first-hour.md and of the demo.
"""

import os
import re
import secrets
from collections.abc import Iterator

import psycopg
import pytest
import yaml
from django.db import connection

from annals.access import grants
from annals.embedded.postgres import EmbeddedPostgres
from annals.operations.server_checks import (
    ServerFault,
    ServerSettings,
    fetch_settings,
    find_faults,
)
from tests.consuming import ROOT, run_command
from tests.processes import start_own_server

BAD_SETTINGS: dict[str, str | int] = {
    "synchronous_commit": "off",
    "max_locks_per_transaction": 64,
    "max_connections": 30,
    "log_statement": "ddl",
    "log_min_duration_statement": 1000,
}
# The defaults of PostgreSQL 18 for settings that Annals wants to have changed.
FRESH_SETTINGS = {
    "max_locks_per_transaction": "64",
    "max_connections": "100",
    "log_min_messages": "warning",
    "log_min_error_statement": "error",
    "log_error_verbosity": "default",
    "log_parameter_max_length": "-1",
}
COMPOSE_LOGINS = sum(limits.connections for limits in grants.LIMITS.values())

pytestmark = pytest.mark.system


@pytest.fixture
def bad_server() -> Iterator[EmbeddedPostgres]:
    with start_own_server(BAD_SETTINGS) as postgres:
        yield postgres


def run_check(server: EmbeddedPostgres, **env: str) -> tuple[int, str]:
    """Run `check` without demo mode, and return its exit code and output."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")
    }
    variables = {
        "DATABASE_URL": server.build_url(),
        "ANNALS_SECRET_KEY": secrets.token_hex(32),
        **env,
    }
    arguments = ["check", "--database", "default", "--fail-level", "WARNING"]
    finished = run_command(
        {**environment, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", **variables}, *arguments
    )
    return finished.returncode, finished.stdout + finished.stderr


def test_check_command_reports_bad_settings_of_postgresql_except_in_the_demo(
    bad_server: EmbeddedPostgres,
) -> None:
    with psycopg.connect(bad_server.build_url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE auth_user ()")  # its owner counts as the owner of the tables
        plain.execute("CREATE ROLE annals_web")
        plain.execute("CREATE ROLE web_login LOGIN IN ROLE annals_web CONNECTION LIMIT 72")
    code, output = run_check(bad_server)
    assert code == 1
    numbers = {int(number) for number in re.findall(r"annals\.W(\d+)", output)}
    assert numbers == {5, 9, 13, 14}
    assert "max_locks_per_transaction is 64" in output
    assert "the database logins of Annals may open 72" in output
    assert "log_min_duration_statement = 1000, log_statement = ddl" in output
    assert output.count("HINT") == len(numbers)
    assert run_check(bad_server, ANNALS_DEMO="true")[0] == 0


def read_compose_settings() -> ServerSettings:
    """Return the settings of the PostgreSQL server that docker/compose.yaml starts.

    Settings that docker/compose.yaml does not set have the values of the tests' server.
    """
    service = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["postgres"]
    return {**fetch_settings(connection), **dict(re.findall(r"-c (\w+)=(\S*)", service["command"]))}


@pytest.mark.django_db
def test_check_accepts_the_server_settings_of_compose() -> None:
    assert list(find_faults(read_compose_settings(), COMPOSE_LOGINS)) == []


@pytest.mark.parametrize(
    "name", ["docker/postgres/owner.sql", "docs/first-hour.md", "docs/operations.md"]
)
def test_documented_connection_limit_of_owner_equals_limit_set_by_the_grants_command(
    name: str,
) -> None:
    [limit] = re.findall(
        r"owner_login LOGIN CREATEROLE CONNECTION LIMIT (\d+)", (ROOT / name).read_text()
    )
    assert int(limit) == grants.LIMITS[grants.OWNER].connections


@pytest.mark.django_db
def test_check_accepts_server_settings_recommended_in_docs_first_hour_md() -> None:
    page = (ROOT / "docs/first-hour.md").read_text()
    changes = dict(re.findall(r"^ALTER SYSTEM SET (\w+) = '?(\w+)'?;$", page, re.MULTILINE))
    fresh = {**fetch_settings(connection), **FRESH_SETTINGS}
    assert {fault.number for fault in find_faults(fresh, COMPOSE_LOGINS)} >= {9, 14}
    assert list(find_faults({**fresh, **changes}, COMPOSE_LOGINS)) == []


@pytest.mark.django_db
def test_check_finds_too_few_connections_and_missing_preloaded_library() -> None:
    server = read_compose_settings()

    def find_only_fault(changed: ServerSettings, connections: int = COMPOSE_LOGINS) -> ServerFault:
        (fault,) = find_faults(changed, connections)
        return fault

    assert "Set it to 141 or more" in find_only_fault(server, 138).hint
    library = {**server, "session_preload_libraries": "auto_explain"}
    assert find_only_fault(library).number == 14
    hidden = {k: v for k, v in server.items() if not k.endswith("_libraries")}
    assert list(find_faults(hidden, COMPOSE_LOGINS)) == []
