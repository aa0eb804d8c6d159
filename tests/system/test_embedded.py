"""The embedded servers: PostgreSQL in directories of their own; `manage.py` with no server named,
so that they start, stay, are found and stopped; the owner of the tables and the logins that it
makes, there and as compose does."""

import os
import re
import secrets
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import errors

from annals import embedded
from annals.embedded import logins, postgres
from annals.embedded.postgres import Postgres, Settings
from annals.embedded.process import EmbeddedError
from history.base import private_files
from tests.consuming import ROOT, command
from tests.processes import own_server

pytestmark = pytest.mark.system

FAST: Settings = {"fsync": "off", "shared_buffers": "16MB", "max_connections": 20}

START = """
import sys
from annals.embedded.postgres import Postgres
server = Postgres(sys.argv[1], {"fsync": "off", "shared_buffers": "16MB"})
print(server.start(), server.pid(), server.url())
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory for servers. Not in tmp_path: each run of pytest by root closes the directory
    above it to other users, and the PostgreSQL that root starts is another user's."""
    with tempfile.TemporaryDirectory(prefix="annals-postgres-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="annals-postgres-") as folder:
        server = Postgres(Path(folder) / "postgres", FAST)
        yield server
        server.stop("immediate")


@pytest.fixture
def server(shared: Postgres) -> Postgres:
    """The server of the module, running, with an empty table."""
    shared.start()
    with psycopg.connect(shared.url()) as connection:
        connection.execute("DROP TABLE IF EXISTS memory")
        connection.execute("CREATE TABLE memory (value integer)")
    return shared


def ask(server: Postgres, query: str) -> tuple[object, ...] | None:
    with psycopg.connect(server.url()) as connection:
        return connection.execute(query.encode()).fetchone()


def test_only_the_password_opens_it(server: Postgres) -> None:
    assert stat.S_IMODE((server.home / "password").stat().st_mode) == 0o600
    wrong = re.sub(r":[^:@]+@", ":guess@", server.url())
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(re.sub(r":[^:@]+@", "@", server.url()), passfile="/dev/null")


def test_a_pid_file_that_names_somebody_elses_process_is_stale(server: Postgres) -> None:
    """After a reboot the number can be anybody's, also of a process of the same user."""
    owner = server.data.stat()
    other = subprocess.Popen(
        ["sleep", "60"],
        user=owner.st_uid if os.geteuid() == 0 else None,
        group=owner.st_gid if os.geteuid() == 0 else None,
    )
    try:
        server.kill()
        file = server.data / "postmaster.pid"
        _, *rest = file.read_text().split("\n")
        file.write_text("\n".join([str(other.pid), *rest]))
        assert server.pid() is None
        assert server.stop() is False
        assert server.start() is True
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_two_processes_starting_it_at_once_share_one(root: Path) -> None:
    home = root / "postgres"
    command = [sys.executable, "-c", START, str(home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [starter.communicate(timeout=300)[0].split() for starter in starters]
    server = Postgres(home, FAST)
    try:
        assert sorted(line[0] for line in said) == ["False", "False", "True"]
        assert {(line[1], line[2]) for line in said} == {(str(server.pid()), server.url())}
        assert ask(server, "SELECT 1") == (1,)
    finally:
        server.stop("immediate")


def test_an_initialisation_cut_short_is_begun_again(root: Path) -> None:
    server = Postgres(root / "postgres", FAST)
    half = root / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    try:
        assert server.start() is True
        assert ask(server, "SELECT 1") == (1,)
    finally:
        server.stop("immediate")


def test_a_start_that_fails_says_why(root: Path) -> None:
    server = Postgres(root / "postgres", {**FAST, "shared_buffers": "much"})
    with pytest.raises(EmbeddedError, match="shared_buffers"):
        server.start()
    assert server.pid() is None


def test_data_of_another_major_version_is_refused_by_name(root: Path) -> None:
    data = root / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match="created by PostgreSQL 12"):
        Postgres(root / "postgres", FAST).start()


Manage = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(root: Path) -> Iterator[Path]:
    yield root
    embedded.database_server(root).stop("immediate")
    embedded.broker_server(root).stop()


@pytest.fixture
def manage(home: Path) -> Manage:
    unset = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["ANNALS_HOME"] = str(home)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )

    return run


def test_status_start_stop(manage: Manage, home: Path) -> None:
    started = manage("embedded", "start").stdout
    postgres, broker = embedded.database_server(home), embedded.broker_server(home)
    assert f"postgres: running, port {postgres.port()}, pid {postgres.pid()}" in started
    assert f"broker: running, port {broker.port()}, pid {broker.pid()}" in started
    assert manage("embedded", "start").stdout == started
    assert manage("embedded", "stop").stdout == "postgres: stopped\nbroker: stopped\n"
    assert not postgres.running()
    assert not broker.running()
    assert manage("embedded", "status").stdout.count("not running") == 2


def test_a_command_starts_what_it_needs_once_and_leaves_it_running(
    manage: Manage, home: Path
) -> None:
    command = ("shell", "--no-imports", "-c", "from django.db import connection as c; c.connect()")
    first = manage(*command)
    server = embedded.database_server(home)
    assert f"started embedded PostgreSQL on port {server.port()}" in first.stderr
    pid = server.pid()
    assert pid is not None
    assert "started" not in manage(*command).stderr
    assert server.pid() == pid
    with pytest.raises(subprocess.CalledProcessError):
        manage("trace", "--topic", "top-storage.export.product-car", "--partition=0", "--offset=0")
    assert not embedded.broker_server(home).running()


DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server for one test."""
    with own_server({"fsync": "off", "shared_buffers": "64MB"}) as made:
        yield made


def asked(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as plain:
        return plain.execute(query.encode()).fetchall()


def owner_of_tables(own: Postgres) -> set[str]:
    return {name for (name,) in asked(own.url(), "SELECT tableowner FROM pg_tables"
            " WHERE schemaname = 'public'")}  # fmt: skip


def test_the_owner_is_no_superuser(own: Postgres) -> None:
    owner = own.url(login=logins.OWNER)
    assert asked(owner, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]
    assert own.url() != owner
    with psycopg.connect(own.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE of_the_superuser (day date)")
    with psycopg.connect(owner) as plain, pytest.raises(errors.InsufficientPrivilege):
        plain.execute("INSERT INTO of_the_superuser VALUES (now())")
    with psycopg.connect(own.url(), autocommit=True) as plain:
        plain.execute("DROP TABLE of_the_superuser")


def test_compose_makes_its_logins(own: Postgres, tmp_path: Path) -> None:
    passwords = {name: secrets.token_hex(16) for name in ("owner", "web", "consumer")}
    with psycopg.connect(own.url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE earlier (a integer)")
        plain.execute(f"ALTER ROLE {logins.OWNER} CONNECTION LIMIT -1 NOCREATEROLE NOCREATEDB")
    for _ in range(2):  # whatever is there already
        subprocess.run(
            [postgres.programs() / "psql", own.url(), "-f", DOCKER / "postgres/owner.sql"],
            env=postgres.environment(OWNER_PASSWORD=passwords["owner"]),
            check=True,
            capture_output=True,
        )
    assert owner_of_tables(own) == {logins.OWNER}

    def url(role: str) -> str:
        return f"postgresql://{role}_login:{passwords[role]}@127.0.0.1:{own.port()}/annals"

    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    for service, role in (("migrate", "owner"), ("web", "web"), ("consume", "consumer")):
        named = compose[service]["environment"]["DATABASE_URL"]
        assert named.startswith(f"postgresql://{role}_login:${{{role.upper()}_PASSWORD:")
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
    env |= {"DATABASE_URL": url("owner"), "ANNALS_HOME": str(own.home)}
    env["ANNALS_RETENTION_DAYS"] = "1"  # few days to make
    for secret in compose["migrate"]["secrets"]:
        assert (secret["uid"], secret["mode"]) == ("10001", 0o400)  # of the image's user
        name = secret["source"]
        private_files.write(tmp_path / name, passwords[name.removesuffix("_password")])
    steps = re.findall(r"annals ([^&\"]+)", compose["migrate"]["command"])
    assert [step.split()[0] for step in steps] == ["migrate", "grants", "partitions"]
    for step in steps:
        done = command(env, *step.replace("/run/secrets", str(tmp_path)).split())
        assert done.returncode == 0, done.stderr
    for role, timeout in (("owner", "1d"), ("web", "1min"), ("consumer", "5min")):
        assert asked(url(role), "SHOW statement_timeout") == [(timeout,)]
    assert asked(url("web"), "SELECT count(*) FROM product_instance_aud") == [(0,)]
    assert dict(asked(own.url(), "SELECT rolname, rolconnlimit FROM pg_roles"
                    " WHERE rolname LIKE '%_login'")) == {
        "owner_login": 7, "web_login": 72, "consumer_login": 18
    }  # fmt: skip

    # A login that only an administrator may change: what is left to do is said, once.
    with psycopg.connect(own.url(), autocommit=True) as plain:
        plain.execute("CREATE ROLE theirs LOGIN IN ROLE annals_web")
    done = command(env, "grants", "--apply")
    assert done.returncode == 1
    left = [line for line in done.stderr.splitlines() if line.startswith("ALTER ROLE")]
    assert len(left) == 4
    with psycopg.connect(own.url(), autocommit=True) as plain:
        for line in left:
            plain.execute(line.encode())
    assert command(env, "grants", "--apply").returncode == 0
