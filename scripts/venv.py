"""Creates .venv at the root of the repository, and installs a requirements file if it changed.

This script runs before anything is installed, so it uses only the standard library.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
INCLUDES = {"requirements-dev.txt": ["requirements.txt"]}
# -I: do not import modules from the current folder, which can be /tmp for root.
ISOLATED = "-I"
PIP = (ISOLATED, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
# pip then refuses a requirement without a hash, and a package whose hash differs.
REQUIRE_HASHES = ("--require-hashes", "-r")


def compute_fingerprint(name: str) -> str:
    """Return a digest that changes if the content of .venv has to change."""
    digest = hashlib.sha256(str(PYTHON).encode())
    for file in (name, *INCLUDES.get(name, [])):
        digest.update((ROOT / file).read_bytes())
    return digest.hexdigest()


def get_stamp_file(name: str) -> Path:
    """Return the file inside .venv that has the fingerprint of the installed packages."""
    return VENV / f"{name}.sha256"


def is_installed(name: str) -> bool:
    return get_stamp_file(name).is_file() and get_stamp_file(
        name
    ).read_text() == compute_fingerprint(name)


def is_venv_usable() -> bool:
    """Return whether .venv has a Python that starts and is new enough.

    After an upgrade of the system it may not start.
    """
    code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    command = [PYTHON, ISOLATED, "-c", code]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def print_message(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def create_venv() -> None:
    """Create .venv. Exit with a message if this Python cannot create one."""
    print_message(f"Creating {VENV.name} with Python {sys.version.split()[0]}")
    finished = subprocess.run(
        [sys.executable, ISOLATED, "-m", "venv", "--clear", VENV],
        check=False,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        version = "{}.{}".format(*sys.version_info)
        print_message(finished.stdout.strip() or finished.stderr.strip())
        sys.exit(
            f"Python {version} cannot create a virtual environment. "
            f"Debian, Ubuntu: apt install python3-venv (or python{version}-venv)"
        )


def main(name: str) -> None:
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # if two scripts run at once, one of them waits
        if is_venv_usable() and is_installed(name):
            return
        if not is_venv_usable():
            create_venv()
        print_message(f"Installing {name}")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        finished = subprocess.run(
            [PYTHON, *PIP, *REQUIRE_HASHES, ROOT / name], check=False, env=environment
        )
        if finished.returncode:
            sys.exit(f"Installing {name} failed; see the output of pip above. Nothing was started.")
        for requirements in (name, *INCLUDES.get(name, [])):
            get_stamp_file(requirements).write_text(compute_fingerprint(requirements))


if __name__ == "__main__":
    main(*sys.argv[1:])
