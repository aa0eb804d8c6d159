"""Packages of npm that tests use, installed once into the user's cache."""

import shutil
import subprocess
from pathlib import Path

from annals.embedded import process
from tests import need


def installed(here: Path, name: str) -> Path:
    """The folder with the packages of here/package-lock.json. name: of the folder."""
    need.node()
    folder = Path.home() / ".cache" / "annals" / name
    lock = (here / "package-lock.json").read_bytes()
    done = folder / "installed.json"
    folder.mkdir(parents=True, exist_ok=True)
    with process.exclusive(folder / "lock"):
        if done.exists() and done.read_bytes() == lock:
            return folder
        for each in ("package.json", "package-lock.json"):
            shutil.copy(here / each, folder)
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        done.write_bytes(lock)
    return folder
