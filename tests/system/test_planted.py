"""Another user of the machine prepares what the embedded servers read or write. Needs root, as CI
is: root is who must not be led."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from annals import env, own_folder
from annals.embedded.broker import Broker
from annals.embedded.postgres import Postgres, Settings
from tests import need
from tests.apache.broker import Apache

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534
FAST: Settings = {"fsync": "off", "shared_buffers": "16MB", "max_connections": 20}
PRECIOUS = "of root\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may pass."""
    with tempfile.TemporaryDirectory(prefix="annals-planted-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def precious(folder: Path) -> Path:
    file = folder / "precious"
    file.write_text(PRECIOUS)
    file.chmod(0o600)
    return file


def annals(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The command in this folder, which has the .annals of somebody."""
    names = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name not in names
    }
    command = [sys.executable, ROOT / "annals" / "__main__.py", *words]
    return subprocess.run(command, cwd=folder, env=kept | more, capture_output=True, text=True)


def is_untouched(file: Path) -> bool:
    found = file.stat()
    return file.read_text() == PRECIOUS and (found.st_uid, found.st_mode & 0o777) == (0, 0o600)


@pytest.mark.parametrize("words", ["embedded start", "embedded status", "embedded stop", "ledger"])
def test_a_folder_of_another_user_is_refused(folder: Path, precious: Path, words: str) -> None:
    """Root would write through the link, and give the file to the owner of the folder."""
    home = folder / ".annals"
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("18\n")
    (data / "postgresql.conf.new").symlink_to(precious)
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    done = annals(folder, *words.split())
    assert done.returncode == 1
    assert done.stderr.startswith("annals: ANNALS_HOME cannot be used: .annals belongs to the user")
    assert len(done.stderr.splitlines()) == 1
    assert is_untouched(precious)
    assert not (home / "postgres" / "lock").exists()


def test_a_key_of_another_user_is_not_taken(folder: Path) -> None:
    home = folder / ".annals"
    home.mkdir()
    (home / "secret_key").write_text("k" * 50)
    os.chown(home / "secret_key", NOBODY, NOBODY)
    nowhere = {"DATABASE_URL": "postgresql://127.0.0.1:1/x", "KAFKA_BOOTSTRAP_SERVERS": "h:1"}
    done = annals(folder, "ledger", **nowhere)
    assert done.returncode == 1
    assert "secret_key belongs to the user" in done.stderr
    done = annals(folder, "ledger", **nowhere, ANNALS_SECRET_KEY="k" * 50)
    assert "no PostgreSQL listens" in done.stderr  # with a key of its own it asks for none


@pytest.mark.parametrize("what", ["a link", "a folder in it for all"])
def test_what_others_can_change_is_refused(folder: Path, what: str) -> None:
    home = folder / "home"
    if what == "a link":
        (folder / "elsewhere").mkdir()
        home.symlink_to(folder / "elsewhere")
        os.chown(home, NOBODY, NOBODY, follow_symlinks=False)
    else:
        (home / "postgres").mkdir(parents=True)
        (home / "postgres").chmod(0o777)
    with pytest.raises(env.SettingError, match="ANNALS_HOME cannot be used"):
        env.refuse_others_home(home)


def test_ones_own_folder_and_that_of_root_are_taken(folder: Path) -> None:
    assert own_folder.fault(folder / "none") is None
    (folder / "home" / "postgres").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "home")
    (folder / "home").chmod(0o777)  # as a volume of Kubernetes (emptyDir), which root owns
    assert own_folder.fault(folder / "link") is None


@pytest.mark.parametrize("name", ["postgresql.conf.new", "postmaster.pid", "postmaster.pid.new"])
@pytest.mark.parametrize("hard", [False, True])
def test_who_runs_postgresql_does_not_lead_root(
    folder: Path, precious: Path, name: str, hard: bool
) -> None:
    server = Postgres(folder / "postgres", FAST)
    server.start()
    server.stop("fast")
    file = server.data / name
    file.unlink(missing_ok=True)
    if hard:
        file.hardlink_to(precious)
    else:
        file.symlink_to(precious)
    try:
        server.start()
    except (OSError, RuntimeError):
        assert name == "postmaster.pid"
    finally:
        server.stop("immediate")
    assert is_untouched(precious)


def test_postgresql_gets_none_of_our_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs as another user, who can read them."""
    monkeypatch.setenv("ANNALS_KAFKA_SASL_PASSWORD", "not for others")
    server = Postgres(folder / "postgres", FAST)
    server.start()
    try:
        assert "not for others" not in psutil.Process(server.pid() or 0).environ().values()
    finally:
        server.stop("immediate")


def test_the_broker_takes_no_settings_from_folders_above_it(folder: Path) -> None:
    """Another project may have a file .env there."""
    (folder / ".env").write_text("STORAGE_ENGINE=nowhere://\nRUST_LOG=trace\nTLS_CERT=/nowhere\n")
    broker = Broker(folder / "home" / "broker")
    broker.start()
    try:
        assert psutil.Process(broker.pid() or 0).cwd() == "/"
    finally:
        broker.kill()


@pytest.mark.kafka
def test_no_command_line_has_the_password_of_kafka(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need.java()
    need.maven()
    real = subprocess.check_output(["which", "java"], text=True).strip()
    (folder / "bin").mkdir()
    (folder / "bin" / "java").write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/said\nexec {real} "$@"\n'
    )
    (folder / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    node = Apache(folder / "kafka", secured=True, quick=True)
    node.start()
    try:
        assert len((folder / "said").read_text().splitlines()) == 2
        assert (node.home / "password").read_text() not in (folder / "said").read_text()
        assert not (node.home / "format.arguments").exists()
    finally:
        node.kill()
