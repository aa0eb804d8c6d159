"""Builds docker/Dockerfile twice with buildah and starts the image: `python -m tests.image`.

Each build is of a fresh clone of the last commit and uses no cache; both images must be the same
byte by byte. Then gunicorn checks its configuration in the image, as its user, who can write
nowhere but in /tmp and home. Where no registry answers, a clean Debian with Debian's Python 3.11
(debootstrap) takes the place of the base image. Needs root, buildah, debootstrap and PyPI.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PROGRAMS = "/usr/sbin:/usr/bin"
PACKAGES = "python3,python3-venv,python-is-python3,ca-certificates"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
TRY = (
    "echo user $(id -u) && ! touch /opt/annals/x 2>/dev/null && "
    "gunicorn --config python:annals.server --check-config annals.wsgi && "
    "annals consume --help >/dev/null && annals --version && echo the image works"
)


class Buildah:
    """buildah with a store of its own in `folder`. Methods raise CalledProcessError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places = (f"--root={folder}/store", f"--runroot={folder}/run")
        # Neither a mount nor a namespace, so it runs inside a container too.
        self.env = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, command: str, *arguments: str) -> str:
        """What the command prints."""
        return subprocess.run(
            ["buildah", *self.places, command, *arguments],
            env=self.env, check=True, stdout=subprocess.PIPE, text=True,
        ).stdout.strip()  # fmt: skip

    def has(self, image: str) -> bool:
        """Whether the store has the image, or a registry gives it."""
        for command in ("inspect --type=image", "pull --quiet"):
            asked = ["buildah", *self.places, *command.split(), image]
            if (
                subprocess.run(asked, env=self.env, check=False, capture_output=True).returncode
                == 0
            ):
                return True
        return False

    def stand_in(self, image: str) -> None:
        """Debian under the name of a Python image that no registry gives."""
        clean = self.folder / "clean"
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", clean],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        # pip in the image trusts what this machine trusts.
        shutil.copyfile(Path("/", CERTIFICATES), clean / CERTIFICATES)
        (clean / "etc/pip.conf").write_text(f"[global]\ncert = /{CERTIFICATES}\n")
        container = self("from", "scratch")
        self("add", "--quiet", container, str(clean), "/")
        self("commit", "--quiet", "--rm", container, f"docker.io/library/{image}")
        shutil.rmtree(clean)

    def build(self, name: str) -> str:
        """The digest of the image of the last commit, built from a clone of its own."""
        clone = self.folder / name
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", PROJECT, clone], check=True)
        made = subprocess.run(
            ["git", "log", "-1", "--format=%ct"],
            cwd=clone,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self(
            "bud", "--quiet", "--no-cache", "--pull-never", f"--timestamp={made}",
            f"--build-arg=SOURCE_DATE_EPOCH={made}", f"--tag={name}",
            f"--file={clone}/docker/Dockerfile", str(clone),
        )  # fmt: skip
        shutil.rmtree(clone)
        return self("inspect", "--type=image", "--format={{.FromImageDigest}}", name)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "annals-image"),
        help="keeps the base image for the next time (default: %(default)s)")  # fmt: skip
    folder = parser.parse_args().folder
    if os.geteuid() != 0 or not all(
        shutil.which(each, path=PROGRAMS) for each in ("buildah", "debootstrap")
    ):
        print("Needs root, buildah and debootstrap (Debian: buildah debootstrap).")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    buildah = Buildah(folder)
    [base] = set(
        re.findall(r"^FROM (\S+)", (PROJECT / "docker/Dockerfile").read_text(), re.MULTILINE)
    )
    if not buildah.has(base):
        print(f"No registry gives {base}: a clean Debian takes its place.", flush=True)
        buildah.stand_in(base)
    digests = []
    for name in ("annals-one", "annals-two"):
        digests.append(buildah.build(name))
        print(f"{name}: {digests[-1]}", flush=True)
    container = buildah("from", "--pull-never", "annals-two")
    print(buildah("run", container, "--", "du", "-sh", "/opt/annals"))
    for each in (
        "DATABASE_URL=postgresql://nobody@127.0.0.1:1/none",
        f"ANNALS_SECRET_KEY={'k' * 50}",
    ):
        buildah("config", f"--env={each}", container)
    print(buildah("run", container, "--", "/bin/sh", "-c", TRY))
    buildah("rm", container)
    if len(set(digests)) != 1:
        print("The two images differ.")
        return 1
    print("Both images are the same, byte by byte.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
