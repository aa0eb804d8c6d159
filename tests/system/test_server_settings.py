"""`annals check --database default` says what a server's settings should be, and why; it has
nothing to say of a good server, of compose's and of the demo's."""

import os
import re
import secrets
from collections.abc import Iterator

import psycopg
import pytest
import yaml
from django.db import connection

from annals.access import grants
from annals.embedded.postgres import Postgres
from annals.observe.server_checks import Fault, Settings, faults, read
from tests.consuming import ROOT, command
from tests.processes import own_server

BAD: dict[str, str | int] = {
    "synchronous_commit": "off",
    "max_locks_per_transaction": 64,
    "max_connections": 30,
    "log_statement": "ddl",
    "log_min_duration_statement": 1000,
}
# What initdb of PostgreSQL 18 writes, where Annals would change it.
FRESH = {
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
def bad_server() -> Iterator[Postgres]:
    with own_server(BAD) as made:
        yield made


def check(server: Postgres, **env: str) -> tuple[int, str]:
    """The exit code of the command, and what it prints, outside the demo."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    given = {"DATABASE_URL": server.url(), "ANNALS_SECRET_KEY": secrets.token_hex(32), **env}
    words = ["check", "--database", "default", "--fail-level", "WARNING"]
    done = command({**clean, "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1", **given}, *words)
    return done.returncode, done.stdout + done.stderr


def test_a_bad_server_is_told_what_to_change_and_the_demo_is_not(
    bad_server: Postgres,
) -> None:
    with psycopg.connect(bad_server.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE auth_user ()")  # its owner is who owns the tables
        plain.execute("CREATE ROLE annals_web")
        plain.execute("CREATE ROLE web_login LOGIN IN ROLE annals_web CONNECTION LIMIT 72")
    code, said = check(bad_server)
    assert code == 1
    found = {int(number) for number in re.findall(r"annals\.W(\d+)", said)}
    assert found == {5, 9, 13, 14}
    assert "max_locks_per_transaction is 64" in said
    assert "the logins of Annals may have 72" in said
    assert "log_min_duration_statement = 1000, log_statement = ddl" in said
    assert said.count("HINT") == len(found)
    assert check(bad_server, ANNALS_DEMO="true")[0] == 0


def compose() -> Settings:
    """The server of docker/compose.yaml: what the database of the tests has, with its changes."""
    given = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"]["postgres"]
    return {**read(connection), **dict(re.findall(r"-c (\w+)=(\S*)", given["command"]))}


@pytest.mark.django_db
def test_the_server_of_compose_is_good() -> None:
    assert list(faults(compose(), COMPOSE_LOGINS)) == []


@pytest.mark.parametrize(
    "name", ["docker/postgres/owner.sql", "docs/first-hour.md", "docs/operations.md"]
)
def test_the_owner_is_created_with_the_limit_that_is_counted(name: str) -> None:
    [limit] = re.findall(
        r"owner_login LOGIN CREATEROLE CONNECTION LIMIT (\d+)", (ROOT / name).read_text()
    )
    assert int(limit) == grants.LIMITS[grants.OWNER].connections


@pytest.mark.django_db
def test_the_settings_of_the_first_hour_are_good() -> None:
    page = (ROOT / "docs/first-hour.md").read_text()
    changes = dict(re.findall(r"^ALTER SYSTEM SET (\w+) = '?(\w+)'?;$", page, re.MULTILINE))
    fresh = {**read(connection), **FRESH}
    assert {fault.number for fault in faults(fresh, COMPOSE_LOGINS)} >= {9, 14}
    assert list(faults({**fresh, **changes}, COMPOSE_LOGINS)) == []


@pytest.mark.django_db
def test_connections_and_logs_are_looked_at_too() -> None:
    server = compose()

    def only(changed: Settings, connections: int = COMPOSE_LOGINS) -> Fault:
        (fault,) = faults(changed, connections)
        return fault

    assert "Set 141 or more" in only(server, 138).hint
    library = {**server, "session_preload_libraries": "auto_explain"}
    assert only(library).number == 14
    hidden = {k: v for k, v in server.items() if not k.endswith("_libraries")}
    assert list(faults(hidden, COMPOSE_LOGINS)) == []
