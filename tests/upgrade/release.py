"""The files that are kept of each earlier release: NAME.sql.gz and NAME.json.gz.

The first is a dump of a database with simulated data. The second has the answers of the API about
this data by address, and the counts of the ledger.
"""

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "releases"
ASK = Path(__file__).with_name("ask.py")
# The fields of the ledger that do not depend on the day of the request.
COUNTED = ("topic", "partition", "read", "stored", "repeated", "expired", "quarantined")


class ReleaseCommandError(Exception):
    """Raised when a command fails. The message is its output."""


class KeptRelease:
    """A release that tests can run: the folder with its code, and the database that it uses."""

    def __init__(self, root: Path, url: str, home: Path, env: Mapping[str, str]) -> None:
        our_variables = ("ANNALS_", "KAFKA_", "DJANGO_", "PYTHON")
        inherited = {
            name: text for name, text in os.environ.items() if not name.startswith(our_variables)
        }
        # Retention is short, because the kept data gets older than any retention anyway.
        defaults = {"ANNALS_DEMO": "true", "ANNALS_RETENTION_DAYS": "2", **env}
        self.env = {**inherited, **defaults, "DATABASE_URL": url, "ANNALS_HOME": str(home)}
        self.root = root

    def run_command(self, *arguments: str) -> str:
        """Run a command of the release, and return its output.

        Raises:
            ReleaseCommandError: The command failed.
        """
        return self._run_python("manage.py", *arguments)

    def fetch_answers(self, *addresses: str) -> dict[str, Any]:
        """Request addresses, relative to /api/v1/, and return the data of the answer to each.

        Raises:
            ReleaseCommandError: A request failed.
        """
        return dict(zip(addresses, json.loads(self._run_python(str(ASK), *addresses)), strict=True))

    def read_ledger(self) -> list[dict[str, Any]]:
        """Return the counts of the ledger for each topic partition, such as `read` and `stored`."""
        report = json.loads(self.run_command("ledger", "--json", "--offline"))
        return [{name: partition[name] for name in COUNTED} for partition in report["partitions"]]

    def _run_python(self, *arguments: str) -> str:
        finished = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self.env | {"PYTHONPATH": str(self.root)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        if finished.returncode:
            raise ReleaseCommandError(f"{arguments}: {finished.stdout}\n{finished.stderr}")
        return finished.stdout


def write_release_file(name: str, suffix: str, text: str) -> None:
    """Write one of the two files that are kept of a release, compressed without a timestamp.

    Args:
        suffix: `sql` for the dump of the database, `json` for the answers of the API.
    """
    FOLDER.mkdir(exist_ok=True)
    with (
        (FOLDER / f"{name}.{suffix}.gz").open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file,
    ):
        file.write(text.encode())


def read_release_file(name: str, suffix: str) -> str:
    """Return the text of a file that tests/upgrade/keep.py made with an earlier release."""
    return gzip.decompress((FOLDER / f"{name}.{suffix}.gz").read_bytes()).decode()


def _read_releases() -> dict[str, str]:
    """Return the day of each release in CHANGELOG.md by its number, the last release first."""
    return dict(
        re.findall(r"^## (\d\S*) - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    )


def get_last_release() -> str:
    """Return the number of the last release."""
    return next(iter(_read_releases()))


def get_end_of_day(name: str) -> str:
    """Return the end of the UTC day of a release as ISO 8601.

    Requests for the kept data need a clock that is set to this moment, because retention depends on
    the day.
    """
    return f"{_read_releases()[name]}T23:59:00+00:00"


def list_kept_releases() -> list[str]:
    """Return the numbers of the releases whose files are kept."""
    return sorted(file.name.removesuffix(".sql.gz") for file in FOLDER.glob("*.sql.gz"))
