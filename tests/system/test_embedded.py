"""The embedded servers, and the database logins.

If the settings do not name servers, `manage.py` starts PostgreSQL and the broker. Later commands
use the running servers, and `annals embedded stop` stops them. The owner of the tables creates the
database logins, on the embedded PostgreSQL and on the PostgreSQL of docker/compose.yaml.
"""

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
from annals.embedded.postgres import EmbeddedPostgres, PostgresSettings
from annals.embedded.process import EmbeddedError
from history.common import private_files
from tests.consuming import ROOT, run_command
from tests.processes import start_own_server

pytestmark = pytest.mark.system

FAST_SETTINGS: PostgresSettings = {"fsync": "off", "shared_buffers": "16MB", "max_connections": 20}

START_PROGRAM = """
import sys
from annals.embedded.postgres import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1], {"fsync": "off", "shared_buffers": "16MB"})
print(server.start(), server.find_pid(), server.build_url())
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory for servers.

    The directory is not below tmp_path, because pytest run by root closes the directory above
    tmp_path to all users except root, and PostgreSQL that root starts runs as a different user.
    """
    with tempfile.TemporaryDirectory(prefix="annals-postgres-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedPostgres]:
    with tempfile.TemporaryDirectory(prefix="annals-postgres-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", FAST_SETTINGS)
        yield server
        server.stop("immediate")


@pytest.fixture
def server(shared: EmbeddedPostgres) -> EmbeddedPostgres:
    """The running server of this module, with an empty table `memory`."""
    shared.start()
    with psycopg.connect(shared.build_url()) as connection:
        connection.execute("DROP TABLE IF EXISTS memory")
        connection.execute("CREATE TABLE memory (value integer)")
    return shared


def query_one(server: EmbeddedPostgres, query: str) -> tuple[object, ...] | None:
    with psycopg.connect(server.build_url()) as connection:
        return connection.execute(query.encode()).fetchone()


def test_embedded_server_requires_the_password_in_its_home_folder(server: EmbeddedPostgres) -> None:
    assert stat.S_IMODE((server.home / "password").stat().st_mode) == 0o600
    wrong_url = re.sub(r":[^:@]+@", ":guess@", server.build_url())
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong_url)
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(re.sub(r":[^:@]+@", "@", server.build_url()), passfile="/dev/null")


def test_pid_file_is_stale_when_it_names_a_process_that_is_not_the_server(
    server: EmbeddedPostgres,
) -> None:
    """After a reboot any process can have the number in the file, even one of the same user."""
    owner = server.data.stat()
    other_process = subprocess.Popen(
        ["sleep", "60"],
        user=owner.st_uid if os.geteuid() == 0 else None,
        group=owner.st_gid if os.geteuid() == 0 else None,
    )
    try:
        server.kill()
        file = server.data / "postmaster.pid"
        _, *other_lines = file.read_text().split("\n")
        file.write_text("\n".join([str(other_process.pid), *other_lines]))
        assert server.find_pid() is None
        assert server.stop() is False
        assert server.start() is True
        assert other_process.poll() is None
    finally:
        other_process.kill()
        other_process.wait()


def test_processes_that_start_the_server_at_the_same_time_get_one_server(root: Path) -> None:
    home = root / "postgres"
    command = [sys.executable, "-c", START_PROGRAM, str(home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [starter.communicate(timeout=300)[0].split() for starter in starters]
    server = EmbeddedPostgres(home, FAST_SETTINGS)
    try:
        assert sorted(line[0] for line in outputs) == ["False", "False", "True"]
        assert {(line[1], line[2]) for line in outputs} == {
            (str(server.find_pid()), server.build_url())
        }
        assert query_one(server, "SELECT 1") == (1,)
    finally:
        server.stop("immediate")


def test_initialisation_of_the_server_is_repeated_when_it_was_interrupted(root: Path) -> None:
    server = EmbeddedPostgres(root / "postgres", FAST_SETTINGS)
    unfinished_data = root / "postgres" / "data.new"
    unfinished_data.mkdir(parents=True)
    (unfinished_data / "PG_VERSION").write_text("18\n")
    try:
        assert server.start() is True
        assert query_one(server, "SELECT 1") == (1,)
    finally:
        server.stop("immediate")


def test_server_that_fails_to_start_says_why(root: Path) -> None:
    server = EmbeddedPostgres(root / "postgres", {**FAST_SETTINGS, "shared_buffers": "much"})
    with pytest.raises(EmbeddedError, match="shared_buffers"):
        server.start()
    assert server.find_pid() is None


def test_data_folder_of_another_major_version_is_refused(root: Path) -> None:
    data = root / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedError, match="created by PostgreSQL 12"):
        EmbeddedPostgres(root / "postgres", FAST_SETTINGS).start()


Manage = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(root: Path) -> Iterator[Path]:
    yield root
    embedded.get_database_server(root).stop("immediate")
    embedded.get_broker_server(root).stop()


@pytest.fixture
def manage(home: Path) -> Manage:
    unset = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment["ANNALS_HOME"] = str(home)

    def run_manage(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "manage.py", *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )

    return run_manage


def test_embedded_command_can_start_and_stop_the_servers_and_show_their_state(
    manage: Manage, home: Path
) -> None:
    started = manage("embedded", "start").stdout
    postgres, broker = embedded.get_database_server(home), embedded.get_broker_server(home)
    assert f"postgres: running, port {postgres.get_port()}, pid {postgres.find_pid()}" in started
    assert f"broker: running, port {broker.get_port()}, pid {broker.find_pid()}" in started
    assert manage("embedded", "start").stdout == started
    assert manage("embedded", "stop").stdout == "postgres: stopped\nbroker: stopped\n"
    assert not postgres.is_running()
    assert not broker.is_running()
    assert manage("embedded", "status").stdout.count("not running") == 2


def test_command_starts_only_the_servers_it_needs_and_leaves_them_running(
    manage: Manage, home: Path
) -> None:
    command = ("shell", "--no-imports", "-c", "from django.db import connection as c; c.connect()")
    first = manage(*command)
    server = embedded.get_database_server(home)
    assert f"started embedded PostgreSQL on port {server.get_port()}" in first.stderr
    pid = server.find_pid()
    assert pid is not None
    assert "started" not in manage(*command).stderr
    assert server.find_pid() == pid
    with pytest.raises(subprocess.CalledProcessError):
        manage("trace", "--topic", "top-storage.export.product-car", "--partition=0", "--offset=0")
    assert not embedded.get_broker_server(home).is_running()


DOCKER = Path(__file__).parents[2] / "docker"


@pytest.fixture
def postgres_server() -> Iterator[EmbeddedPostgres]:
    """A server for one test."""
    with start_own_server({"fsync": "off", "shared_buffers": "64MB"}) as started_server:
        yield started_server


def query_all(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as plain:
        return plain.execute(query.encode()).fetchall()


def list_table_owners(postgres_server: EmbeddedPostgres) -> set[str]:
    query = "SELECT tableowner FROM pg_tables WHERE schemaname = 'public'"
    return {name for (name,) in query_all(postgres_server.build_url(), query)}


def test_owner_of_embedded_tables_is_not_a_superuser(postgres_server: EmbeddedPostgres) -> None:
    owner = postgres_server.build_url(login=logins.OWNER)
    assert query_all(owner, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [
        (False,)
    ]
    assert postgres_server.build_url() != owner
    with psycopg.connect(postgres_server.build_url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE of_the_superuser (day date)")
    with psycopg.connect(owner) as plain, pytest.raises(errors.InsufficientPrivilege):
        plain.execute("INSERT INTO of_the_superuser VALUES (now())")
    with psycopg.connect(postgres_server.build_url(), autocommit=True) as plain:
        plain.execute("DROP TABLE of_the_superuser")


def test_installation_with_docker_compose_creates_all_database_logins(
    postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """docker/postgres/owner.sql creates the login of the owner. `annals grants` creates the logins
    of web processes and consumers."""
    passwords = {name: secrets.token_hex(16) for name in ("owner", "web", "consumer")}
    with psycopg.connect(postgres_server.build_url(), autocommit=True) as plain:
        plain.execute("CREATE TABLE earlier (a integer)")
        plain.execute(f"ALTER ROLE {logins.OWNER} CONNECTION LIMIT -1 NOCREATEROLE NOCREATEDB")
    for _ in range(2):  # it can be repeated
        subprocess.run(
            [
                postgres.find_programs() / "psql",
                postgres_server.build_url(),
                "-f",
                DOCKER / "postgres/owner.sql",
            ],
            env=postgres.make_environment(OWNER_PASSWORD=passwords["owner"]),
            check=True,
            capture_output=True,
        )
    assert list_table_owners(postgres_server) == {logins.OWNER}

    def build_url(role: str) -> str:
        return f"postgresql://{role}_login:{passwords[role]}@127.0.0.1:{postgres_server.get_port()}/annals"

    compose = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    for service, role in (("migrate", "owner"), ("web", "web"), ("consume", "consumer")):
        url_template = compose[service]["environment"]["DATABASE_URL"]
        assert url_template.startswith(f"postgresql://{role}_login:${{{role.upper()}_PASSWORD:")
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
    env |= {"DATABASE_URL": build_url("owner"), "ANNALS_HOME": str(postgres_server.home)}
    env["ANNALS_RETENTION_DAYS"] = "1"  # few, because creating days takes time
    for secret in compose["migrate"]["secrets"]:
        assert (secret["uid"], secret["mode"]) == ("10001", 0o400)  # the user of the image
        name = secret["source"]
        private_files.write_private_file(tmp_path / name, passwords[name.removesuffix("_password")])
    steps = re.findall(r"annals ([^&\"]+)", compose["migrate"]["command"])
    assert [step.split()[0] for step in steps] == ["migrate", "grants", "partitions"]
    for step in steps:
        finished = run_command(env, *step.replace("/run/secrets", str(tmp_path)).split())
        assert finished.returncode == 0, finished.stderr
    for role, timeout in (("owner", "1d"), ("web", "1min"), ("consumer", "5min")):
        assert query_all(build_url(role), "SHOW statement_timeout") == [(timeout,)]
    assert query_all(build_url("web"), "SELECT count(*) FROM product_instance_aud") == [(0,)]
    assert dict(
        query_all(
            postgres_server.build_url(),
            "SELECT rolname, rolconnlimit FROM pg_roles WHERE rolname LIKE '%_login'",
        )
    ) == {"owner_login": 7, "web_login": 72, "consumer_login": 18}

    # Only an administrator may change this login, so the command prints the missing statements.
    with psycopg.connect(postgres_server.build_url(), autocommit=True) as plain:
        plain.execute("CREATE ROLE theirs LOGIN IN ROLE annals_web")
    finished = run_command(env, "grants", "--apply")
    assert finished.returncode == 1
    statements = [line for line in finished.stderr.splitlines() if line.startswith("ALTER ROLE")]
    assert len(statements) == 4
    with psycopg.connect(postgres_server.build_url(), autocommit=True) as plain:
        for line in statements:
            plain.execute(line.encode())
    assert run_command(env, "grants", "--apply").returncode == 0
