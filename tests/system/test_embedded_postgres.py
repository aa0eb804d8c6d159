"""The embedded PostgreSQL: real servers in directories of their own."""

import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from annals.embedded.postgres import Postgres, Settings
from annals.embedded.process import EmbeddedError

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
    said = [starter.communicate(timeout=60)[0].split() for starter in starters]
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
