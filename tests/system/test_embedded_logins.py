"""The owner of the tables and the logins that it makes: in the embedded server, and as compose
does."""

import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import errors

from annals.embedded import logins, postgres
from annals.embedded.postgres import Postgres
from tests.consuming import command
from tests.processes import own_server

DOCKER = Path(__file__).parents[2] / "docker"

pytestmark = pytest.mark.system


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server for one test."""
    with own_server({"fsync": "off", "shared_buffers": "64MB"}) as made:
        yield made


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as plain:
        return plain.execute(query.encode()).fetchall()


def owner_of_tables(server: Postgres) -> set[str]:
    return {name for (name,) in ask(server.url(), "SELECT tableowner FROM pg_tables"
            " WHERE schemaname = 'public'")}  # fmt: skip


def test_the_owner_is_no_superuser(server: Postgres) -> None:
    owner = server.url(login=logins.OWNER)
    assert ask(owner, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
    assert server.url() != owner
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE of_the_superuser (day date)")
    with psycopg.connect(owner) as plain, pytest.raises(errors.InsufficientPrivilege):
        plain.execute("INSERT INTO of_the_superuser VALUES (now())")
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("DROP TABLE of_the_superuser")


def test_compose_makes_its_logins(server: Postgres, tmp_path: Path) -> None:
    passwords = {name: secrets.token_hex(16) for name in ("owner", "web", "consumer")}
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE earlier (a integer)")
        plain.execute(f"ALTER ROLE {logins.OWNER} CONNECTION LIMIT -1 NOCREATEROLE NOCREATEDB")
    for _ in range(2):  # whatever is there already
        subprocess.run(
            [postgres.programs() / "psql", server.url(), "-f", DOCKER / "postgres/owner.sql"],
            env=postgres.environment(OWNER_PASSWORD=passwords["owner"]),
            check=True,
            capture_output=True,
        )
    assert owner_of_tables(server) == {logins.OWNER}

    def url(role: str) -> str:
        return f"postgresql://{role}_login:{passwords[role]}@127.0.0.1:{server.port()}/annals"

    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    for service, role in (("migrate", "owner"), ("web", "web"), ("consume", "consumer")):
        named = compose[service]["environment"]["DATABASE_URL"]
        assert named.startswith(f"postgresql://{role}_login:${{{role.upper()}_PASSWORD:")
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
    env |= {"DATABASE_URL": url("owner"), "ANNALS_HOME": str(server.home)}
    env["ANNALS_RETENTION_DAYS"] = "1"  # few days to make
    for secret in compose["migrate"]["secrets"]:
        (tmp_path / secret).write_text(passwords[secret.removesuffix("_password")])
    steps = re.findall(r"annals ([^&\"]+)", compose["migrate"]["command"])
    assert [step.split()[0] for step in steps] == ["migrate", "grants", "partitions"]
    for step in steps:
        done = command(env, *step.replace("/run/secrets", str(tmp_path)).split())
        assert done.returncode == 0, done.stderr
    for role, timeout in (("owner", "1d"), ("web", "1min"), ("consumer", "5min")):
        assert ask(url(role), "SHOW statement_timeout") == [(timeout,)]
    assert ask(url("web"), "SELECT count(*) FROM product_instance_aud") == [(0,)]
    assert dict(ask(server.url(), "SELECT rolname, rolconnlimit FROM pg_roles"
                    " WHERE rolname LIKE '%_login'")) == {
        "owner_login": 7, "web_login": 72, "consumer_login": 18
    }  # fmt: skip

    # A login that only an administrator may change: what is left to do is said, once.
    with psycopg.connect(server.url(), autocommit=True) as plain:
        plain.execute("CREATE ROLE theirs LOGIN IN ROLE annals_web")
    done = command(env, "grants", "--apply")
    assert done.returncode == 1
    left = [line for line in done.stderr.splitlines() if line.startswith("ALTER ROLE")]
    assert len(left) == 4
    with psycopg.connect(server.url(), autocommit=True) as plain:
        for line in left:
            plain.execute(line.encode())
    assert command(env, "grants", "--apply").returncode == 0
