"""The code of an earlier release, taken from the repository."""

import subprocess
from pathlib import Path

from history.common.schema import MigrationName
from tests.consuming import ROOT

# The last release, 0.1.0: the commit before the first change that CHANGELOG.md has under the next
# one. tests/system/test_upgrade.py compares it with what is kept of the release.
DEFAULT = "31539dd"
APPS = {"history": "history", "ingest": "ingest", "access": "annals/access"}


class EarlierReleaseNotFoundError(Exception):
    """The repository does not have it. The message says so."""


def unpack_release(reference: str, folder: Path) -> Path:
    """Write the files of a commit or tag into the folder. Raises NoEarlierRelease."""
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "--format=tar", reference], cwd=ROOT, capture_output=True
    )
    if archive.returncode != 0:
        raise EarlierReleaseNotFoundError(
            f"the repository has no {reference}: {archive.stderr.decode().strip()}. Name the "
            "release "
            "before with --earlier, in a clone with its history."
        )
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
    return folder


def list_migrations(root: Path) -> set[MigrationName]:
    """App and name of each migration of our apps in a project."""
    return {
        (app, file.stem)
        for app, folder in APPS.items()
        for file in (root / folder / "migrations").glob("0*.py")
    }
