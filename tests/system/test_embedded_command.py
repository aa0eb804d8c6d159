"""`manage.py` with no server named: the embedded ones start, stay, are found and stopped."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from annals import embedded

ROOT = Path(__file__).parents[2]
Manage = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home() -> Iterator[Path]:
    """Not tmp_path: each run of pytest by root closes the directory above it to other users, and
    the PostgreSQL that root starts is another user's."""
    with tempfile.TemporaryDirectory(prefix="annals-embedded-") as folder:
        yield Path(folder)
        embedded.database_server(folder).stop("immediate")
        embedded.broker_server(folder).stop()


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
    assert not embedded.broker_server(home).running()
