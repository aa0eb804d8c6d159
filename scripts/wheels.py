"""Builds the wheels of the repository, the same bytes each time: see scripts/build.

The date of everything in them is that of the last commit, or SOURCE_DATE_EPOCH. The files are
copied first, without what only this machine has: modes, caches, the rest of an earlier build.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# By wheel: what is in the folder that it is built from.
SOURCES = {
    "annals": ("pyproject.toml", "README.md", "LICENSE", "annals", "history", "ingest"),
    "annals-outbox": ("outbox",),
}
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "build", "*.egg-info", ".*")
# -P: no module is taken from the folder in which somebody stands.
PIP = ("-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir")


def epoch(root: Path) -> str:
    """Seconds since 1970 of the last commit. Exits with a message if there is none."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit("There is no repository to take the date from: set SOURCE_DATE_EPOCH (seconds).")
    return done.stdout.strip()


def copy(root: Path, names: tuple[str, ...], to: Path) -> Path:
    """The folder to build from, with the same modes everywhere."""
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, to / name, ignore=LEFT_OUT)
        else:
            shutil.copyfile(root / name, to / name)
    for path in to.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return to / names[0] if len(names) == 1 else to


def build(wheel: str, folder: Path, root: Path = ROOT) -> Path:
    """Build a wheel of SOURCES into the folder; its file."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch(root), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory(prefix="annals-wheel-") as place:
        source = copy(root, SOURCES[wheel], Path(place))
        made = Path(place) / "made"
        command = [sys.executable, *PIP, "--wheel-dir", made, source]
        subprocess.run(command, check=True, env=environment, umask=0o022)
        [file] = made.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(file, folder))


def main(folder: Path) -> None:
    for wheel in SOURCES:
        print(build(wheel, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
