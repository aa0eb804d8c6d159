"""What is kept of a release: its tables with data, and what it answered about them.

The data is simulated, never a bank's. NAME.sql.gz is a dump of the database, NAME.json.gz has the
answers of the API by address, and the figures of the ledger.
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
# What the ledger counts; its other figures depend on the day on which it is asked.
COUNTED = ("topic", "partition", "read", "stored", "repeated", "expired", "quarantined")


class Failed(Exception):
    """A command ended with an error; the text is what it wrote."""


class Release:
    """The code of a release in a folder, on a database. env: settings besides those."""

    def __init__(self, root: Path, url: str, home: Path, env: Mapping[str, str]) -> None:
        ours = ("ANNALS_", "KAFKA_", "DJANGO_", "PYTHON")
        plain = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
        # The data gets older than any retention.
        given = {"ANNALS_DEMO": "true", "ANNALS_RETENTION_DAYS": "2", **env}
        self.env = {**plain, **given, "DATABASE_URL": url, "ANNALS_HOME": str(home)}
        self.root = root

    def manage(self, *words: str) -> str:
        """What a command prints. Raises Failed."""
        return self._run("manage.py", *words)

    def ask(self, *addresses: str) -> dict[str, Any]:
        """The data of the answers, by address below /api/v1/. Raises Failed."""
        return dict(zip(addresses, json.loads(self._run(str(ASK), *addresses)), strict=True))

    def ledger(self) -> list[dict[str, Any]]:
        """The sums of each topic partition."""
        found = json.loads(self.manage("ledger", "--json", "--offline"))
        return [{name: each[name] for name in COUNTED} for each in found["partitions"]]

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self.root, env=self.env | {"PYTHONPATH": str(self.root)}, capture_output=True,
            text=True, timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"{words}: {done.stdout}\n{done.stderr}")
        return done.stdout


def write(name: str, suffix: str, text: str) -> None:
    """Keep a file of a release; the same text gives the same bytes."""
    FOLDER.mkdir(exist_ok=True)
    with (
        (FOLDER / f"{name}.{suffix}.gz").open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file,
    ):
        file.write(text.encode())


def read(name: str, suffix: str) -> str:
    """The text of a kept file."""
    return gzip.decompress((FOLDER / f"{name}.{suffix}.gz").read_bytes()).decode()


def _released() -> dict[str, str]:
    """The day of each release by its number, the last one first, as CHANGELOG.md has them."""
    return dict(
        re.findall(r"^## (\d\S*) - (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    )


def last() -> str:
    """The number of the last release."""
    return next(iter(_released()))


def end_of_day(name: str) -> str:
    """The end of the UTC day of a release, as ISO 8601: what is kept and what is too old for that
    depends on the day of the question."""
    return f"{_released()[name]}T23:59:00+00:00"


def names() -> list[str]:
    """The releases that are kept."""
    return sorted(each.name.removesuffix(".sql.gz") for each in FOLDER.glob("*.sql.gz"))
