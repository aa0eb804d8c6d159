"""Runs the lines of docker/Dockerfile without a container engine: `python -m tests.image`.

Each stage gets a clean Debian root (debootstrap, with Debian's Python 3.11), in which COPY and RUN
are done as written. Then gunicorn checks its configuration there, as the user of the image, who
can write nowhere but in /tmp and home. Needs root, debootstrap and PyPI.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
DOCKERFILE = PROJECT / "docker" / "Dockerfile"
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin") or "chroot"
PATH = "/usr/local/bin:/usr/bin:/bin"
PACKAGES = "python3,python3-venv,ca-certificates"
# Proxies and certificates of this machine, for pip; --find-links of a machine are not in the root.
HOST = {n: v for n, v in os.environ.items() if n.lower().endswith("_proxy")}
TRY = (
    "echo user $(id -u) && ! touch /opt/annals/x 2>/dev/null && "
    "gunicorn --config python:annals.server --check-config annals.wsgi && "
    "annals consume --help >/dev/null && python manage.py --version && echo the image works"
)


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile: word and rest, continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    return [
        (word, rest.strip()) for word, _, rest in (x.partition(" ") for x in joined.split("\n"))
    ]


def root(folder: Path, name: str) -> Path:
    """A clean root, copied from one that debootstrap makes once."""
    clean, made = folder / "clean", folder / name
    if not (clean / "usr/bin/python3").exists():
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", clean],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        (clean / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run(["cp", "--archive", clean, made], check=True)
    for file in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copyfile(file, made / file.lstrip("/"))
    return made


def inside(place: Path, script: str, env: dict[str, str], user: str, folder: str = "/") -> None:
    """Run a shell line in a root. Raises CalledProcessError."""
    command = [CHROOT, f"--userspec={user}:{user}", place, "/bin/sh", "-c"]
    line = f"cd {folder} && {script}"
    subprocess.run(
        [*command, line],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin"} | HOST | env,
        check=True,
    )


def copy(words: list[str], place: Path, stages: dict[str, Path]) -> None:
    """COPY, also --from a stage before."""
    source = PROJECT
    if words[0].startswith("--from="):
        source = stages[words.pop(0).removeprefix("--from=")]
    *names, target = words
    for name in names:
        found, to = source / name.lstrip("/"), place / target.lstrip("/")
        to = to / found.name if target.endswith("/") else to
        to.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "--archive", "--no-target-directory", found, to], check=True)


def build(folder: Path) -> tuple[Path, dict[str, str], str, str]:
    """Do all lines; the last root, with its environment, user and folder."""
    stages: dict[str, Path] = {}
    place, env, user, here = folder, {}, "0", "/"
    for word, rest in instructions(DOCKERFILE.read_text()):
        print(f"{word} {rest[:100]}", flush=True)
        if word == "FROM":
            name = rest.split(" AS ")[-1] if " AS " in rest else "last"
            place, env, user, here = root(folder, name), {}, "0", "/"
            stages[name] = place
        elif word == "COPY":
            copy(shlex.split(rest), place, stages)
        elif word == "ENV":
            given = dict(each.split("=", 1) for each in shlex.split(rest))
            env |= {n: v.replace("$PATH", PATH) for n, v in given.items()}
        elif word == "WORKDIR":
            here = rest
        elif word == "USER":
            user = rest
        elif word == "RUN":
            inside(place, f"set -e; {rest}", env, user, here)
    return place, env, user, here


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "annals-image"),
        help="keeps the roots for the next time (default: %(default)s)")  # fmt: skip
    folder = parser.parse_args().folder
    if os.geteuid() != 0 or shutil.which("debootstrap", path="/usr/sbin:/usr/bin") is None:
        print("Needs root and debootstrap (Debian: debootstrap).")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    place, env, user, here = build(folder)
    size = subprocess.run(["du", "-sm", place / "opt"], check=True, capture_output=True, text=True)
    print(f"/opt of the image: {size.stdout.split()[0]} MB")
    needed = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "ANNALS_SECRET_KEY": "k" * 50}
    inside(place, TRY, env | needed, user, here)
    return 0


if __name__ == "__main__":
    sys.exit(main())
