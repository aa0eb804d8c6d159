"""Builds the wheels of the repository reproducibly: each build gives the same bytes.

All files in a wheel have the date of the last commit, or of SOURCE_DATE_EPOCH. Wheels are built
from a copy of the sources, without what differs between machines: file modes, caches and leftovers
of earlier builds. scripts/build calls this.
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
    """Return the date for the files in a wheel, in seconds since 1970.

    This is SOURCE_DATE_EPOCH, or else the date of the last commit. Exits with a message if there
    is neither.
    """
    if setting := os.environ.get("SOURCE_DATE_EPOCH"):
        return setting
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    finished = subprocess.run(command, check=False, capture_output=True, text=True)
    if finished.returncode:
        sys.exit("There is no commit whose date could be used. Set SOURCE_DATE_EPOCH (seconds).")
    return finished.stdout.strip()


def copy_sources(root: Path, names: tuple[str, ...], target: Path) -> Path:
    """Copy the sources to `target` with uniform file modes, and return the folder to build."""
    for name in names:
        if (root / name).is_dir():
            shutil.copytree(root / name, target / name, ignore=IGNORE_LEFTOVERS)
        else:
            shutil.copyfile(root / name, target / name)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target / names[0] if len(names) == 1 else target


def build_wheel(wheel: str, folder: Path, root: Path = ROOT) -> Path:
    """Build one of the wheels in SOURCES, and return the path of the new file.

    Args:
        wheel: The name of the wheel.
        folder: The folder for the new file.
        root: The root of the repository.
    """
    environment = {**os.environ, "SOURCE_DATE_EPOCH": find_build_epoch(root), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory(prefix="annals-wheel-") as temporary:
        source = copy_sources(root, SOURCES[wheel], Path(temporary))
        wheel_folder = Path(temporary) / "wheel"
        command = [sys.executable, *PIP, "--wheel-dir", wheel_folder, source]
        subprocess.run(command, check=True, env=environment, umask=0o022)
        [file] = wheel_folder.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(file, folder))


def main(folder: Path) -> None:
    """Build all wheels into the folder, and print their paths."""
    for wheel in SOURCES:
        print(build_wheel(wheel, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
