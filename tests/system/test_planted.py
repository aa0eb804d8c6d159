"""A hostile user of the machine prepares files that the embedded servers would read or write.

Servers that root starts must not follow symbolic links of this user. So the tests need root. CI
runs as root.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from annals.configuration import env
from annals.embedded.postgres import PostgresSettings

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65_534
FAST_SETTINGS: PostgresSettings = {"fsync": "off", "shared_buffers": "16MB", "max_connections": 20}
PRECIOUS = "of root\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that all users may enter."""
    with tempfile.TemporaryDirectory(prefix="annals-planted-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def precious(folder: Path) -> Path:
    file = folder / "precious"
    file.write_text(PRECIOUS)
    file.chmod(0o600)
    return file


def run_annals(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Annals in this folder."""
    names = ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name not in names
    }
    command = [sys.executable, ROOT / "annals" / "__main__.py", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment | variables, capture_output=True, text=True
    )


def is_untouched(file: Path) -> bool:
    stat = file.stat()
    return file.read_text() == PRECIOUS and (stat.st_uid, stat.st_mode & 0o777) == (0, 0o600)


@pytest.mark.parametrize("words", ["embedded start", "embedded status", "embedded stop", "ledger"])
def test_home_folder_that_belongs_to_another_user_is_refused(
    folder: Path, precious: Path, words: str
) -> None:
    """Root would write through a link in the folder, and give the file to the owner of the
    folder."""
    home = folder / ".annals"
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("18\n")
    (data / "postgresql.conf.new").symlink_to(precious)
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    finished = run_annals(folder, *words.split())
    assert finished.returncode == 1
    assert finished.stderr.startswith(
        "annals: ANNALS_HOME cannot be used: .annals belongs to the user"
    )
    assert len(finished.stderr.splitlines()) == 1
    assert is_untouched(precious)
    assert not (home / "postgres" / "lock").exists()


def test_home_folder_that_others_can_change_is_refused(folder: Path) -> None:
    home = folder / "home"
    (home / "postgres").mkdir(parents=True)
    (home / "postgres").chmod(0o777)
    with pytest.raises(env.SettingError, match="every user of this machine may write"):
        env.refuse_untrusted_home(home)
