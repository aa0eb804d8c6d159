"""scripts/setup installs the packages, and repeats this only when the requirements changed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of scripts/setup with empty requirements files, in a path with a space."""
    root = tmp_path_factory.mktemp("a checkout")
    (root / "scripts").mkdir()
    for name in ("setup", "venv.py"):
        shutil.copy(SCRIPTS / name, root / "scripts")
    for name in ("requirements.txt", "requirements-dev.txt"):
        (root / name).write_text("# nothing\n")
    return root


def run_setup(
    root: Path, *arguments: str, path: str | None = None, cwd: Path = Path("/")
) -> tuple[int, str]:
    finished = subprocess.run(
        [root / "scripts" / "setup", *arguments],
        cwd=cwd,
        env={**os.environ, **({"PATH": path} if path else {})},
        capture_output=True,
        text=True,
    )
    assert finished.stdout == ""
    return finished.returncode, finished.stderr


def test_setup_installs_packages_again_only_when_requirements_changed(root: Path) -> None:
    code, output = run_setup(root)
    assert code == 0
    assert "Creating .venv" in output
    assert "Installing requirements.txt" in output
    assert run_setup(root) == (0, "")
    assert run_setup(root, "requirements-dev.txt") == (0, "Installing requirements-dev.txt\n")
    assert run_setup(root) == (0, "")
    (root / "requirements.txt").write_text("# nothing else\n")
    assert run_setup(root, "requirements-dev.txt") == (0, "Installing requirements-dev.txt\n")


def test_annals_script_runs_from_any_folder(tmp_path: Path) -> None:
    """This holds even for a folder that has a package with the same name as one of Annals."""
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "__init__.py").write_text("raise SystemExit('not ours')\n")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")
    }
    finished = subprocess.run(
        [SCRIPTS / "annals", "embedded", "status"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.splitlines()[0].endswith(str(SCRIPTS.parent / ".annals" / "postgres"))
    assert list(tmp_path.iterdir()) == [tmp_path / "history"]
