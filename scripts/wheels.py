"""Builds the wheels of the repository, the same bytes each time: see scripts/build.

Everything in a wheel has the date of the last commit, or SOURCE_DATE_EPOCH. The files are copied
first, without what only this machine has: modes, caches, leftovers of an earlier build.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# For each wheel, the files and folders that it is built from.
SOURCES = {
    "annals": ("pyproject.toml", "README.md", "LICENSE", "annals", "history", "ingest"),
    "annals-outbox": ("outbox",),
}
IGNORE_LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.pyc", "build", "*.egg-info", ".*")
# -P: do not import modules from the current folder.
PIP = ("-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir")


def find_build_epoch(root: Path) -> str:
    """Return the seconds since 1970 of the last commit. Exit with a message if there is none."""
    if setting := os.environ.get("SOURCE_DATE_EPOCH"):
        return setting
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        sys.exit("There is no repository to take the date from: set SOURCE_DATE_EPOCH (seconds).")
    return finished.stdout.strip()


def copy_sources(root: Path, names: tuple[str, ...], target: Path) -> Path:
    """Copy the sources with the same modes everywhere, and return the folder to build from."""
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=IGNORE_LEFTOVERS)
        else:
            shutil.copyfile(root / name, target / name)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target / names[0] if len(names) == 1 else target


def build_wheel(wheel: str, folder: Path, root: Path = ROOT) -> Path:
    """Build a wheel of SOURCES into the folder, and return its file."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": find_build_epoch(root), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory(prefix="annals-wheel-") as temporary:
        source = copy_sources(root, SOURCES[wheel], Path(temporary))
        wheel_folder = Path(temporary) / "made"
        command = [sys.executable, *PIP, "--wheel-dir", wheel_folder, source]
        subprocess.run(command, check=True, env=environment, umask=0o022)
        [file] = wheel_folder.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(file, folder))


def main(folder: Path) -> None:
    for wheel in SOURCES:
        print(build_wheel(wheel, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
