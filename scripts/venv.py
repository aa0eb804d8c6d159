"""Creates .venv at the root and installs one pinned requirements file, if it has changed.

Runs before anything is installed, so it uses only the standard library.
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
# -I: no module is taken from the folder in which somebody stands; root may stand in /tmp.
ISOLATED = "-I"
PIP = (ISOLATED, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check")
# pip refuses a package without a hash, or a file that does not have it.
HASHED = ("--require-hashes", "-r")


def fingerprint(name: str) -> str:
    """A digest of everything that determines the content of the environment."""
    digest = hashlib.sha256(str(PYTHON).encode())
    for file in (name, *INCLUDES.get(name, [])):
        digest.update((ROOT / file).read_bytes())
    return digest.hexdigest()


def stamp(name: str) -> Path:
    """The file with the fingerprint of what is installed. It is inside .venv."""
    return VENV / f"{name}.sha256"


def installed(name: str) -> bool:
    return stamp(name).is_file() and stamp(name).read_text() == fingerprint(name)


def runs() -> bool:
    """Whether .venv has a new enough Python that starts. It may not after a system upgrade."""
    code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    command = [PYTHON, ISOLATED, "-c", code]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except OSError:
        return False


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def make() -> None:
    """Create .venv. Exits with a message if this Python cannot create one."""
    say(f"Creating {VENV.name} with Python {sys.version.split()[0]}")
    done = subprocess.run(
        [sys.executable, ISOLATED, "-m", "venv", "--clear", VENV],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        version = "{}.{}".format(*sys.version_info)
        say(done.stdout.strip() or done.stderr.strip())
        sys.exit(
            f"Python {version} cannot create a virtual environment. "
            f"Debian, Ubuntu: apt install python3-venv (or python{version}-venv)"
        )


def main(name: str) -> None:
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # if two scripts run at once, one of them waits
        if runs() and installed(name):
            return
        if not runs():
            make()
        say(f"Installing {name}")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        done = subprocess.run([PYTHON, *PIP, *HASHED, ROOT / name], check=False, env=environment)
        if done.returncode:
            sys.exit(f"Installing {name} failed; see the output of pip above. Nothing was started.")
        for each in (name, *INCLUDES.get(name, [])):
            stamp(each).write_text(fingerprint(each))


if __name__ == "__main__":
    main(*sys.argv[1:])
