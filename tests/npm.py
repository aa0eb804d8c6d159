"""Packages of npm that tests use, installed once into the user's cache."""

import shutil
import subprocess
from pathlib import Path

from history.common import private_files
from tests import required_programs


def install_packages(source_folder: Path, name: str) -> Path:
    """Install the npm packages of `source_folder`/package-lock.json, unless this was done before.

    Args:
        name: The name of the folder in the cache, ~/.cache/annals.

    Returns:
        The folder that has node_modules.
    """
    required_programs.need_node()
    folder = Path.home() / ".cache" / "annals" / name
    lock = (source_folder / "package-lock.json").read_bytes()
    stamp = folder / "installed.json"
    folder.mkdir(parents=True, exist_ok=True)
    with private_files.hold_file_lock(folder / "lock"):
        if stamp.exists() and stamp.read_bytes() == lock:
            return folder
        for name_of_file in ("package.json", "package-lock.json"):
            shutil.copy(source_folder / name_of_file, folder)
        subprocess.run(
            ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        stamp.write_bytes(lock)
    return folder
