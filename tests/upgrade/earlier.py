"""The code of an earlier release, taken from the repository."""

import subprocess
from pathlib import Path

from history.common.schema import MigrationName
from tests.consuming import ROOT

# The commit of the last release, 0.1.0. CHANGELOG.md lists later changes under the next release.
# tests/system/test_upgrade.py compares its migrations with the dump of the release.
DEFAULT = "31539dd"
APPS = {"history": "history", "ingest": "ingest", "access": "annals/access"}


class EarlierReleaseNotFoundError(Exception):
    """Raised when the repository does not have the commit or tag."""


def unpack_release(reference: str, folder: Path) -> Path:
    """Write the files of a commit or tag into a folder.

    Raises:
        EarlierReleaseNotFoundError: The repository does not have it.
    """
    folder.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", "--format=tar", reference], cwd=ROOT, capture_output=True
    )
    if archive.returncode != 0:
        raise EarlierReleaseNotFoundError(
            f"the repository has no {reference}: {archive.stderr.decode().strip()}. Name "
            "another release with --earlier, and use a clone with the whole history."
        )
    subprocess.run(["tar", "--extract", "--directory", folder], input=archive.stdout, check=True)
    return folder


def list_migrations(root: Path) -> set[MigrationName]:
    """Return app and name of each migration of Annals in the project at `root`."""
    return {
        (app, file.stem)
        for app, folder in APPS.items()
        for file in (root / folder / "migrations").glob("0*.py")
    }
