"""An upgrade from each release that is kept: its data, and the code of today."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.consuming import ROOT
from tests.upgrade import earlier, packing, release, stand
from tests.upgrade.release import Failed, Release

pytestmark = pytest.mark.system


@contextmanager
def database(name: str, script: str) -> Iterator[str]:
    """A database made by a script; its URL."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {name}")
        plain.execute(f"CREATE DATABASE {name}")
        own = urlsplit(url)._replace(path=f"/{name}").geturl()
        try:
            with psycopg.connect(own, autocommit=True) as made:
                made.execute(script)
            yield own
        finally:
            plain.execute(f"DROP DATABASE {name} WITH (FORCE)")


# Depends on the day on which it is asked.
OF_THE_DAY = {"retentionStart"}


def has(new: Any, old: Any, where: str = "") -> list[str]:
    """The places in which an answer of today lacks or changes what an earlier release answered.
    More is allowed."""
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{where}/{name} is gone" for name in old.keys() - new.keys()]
        both = (old.keys() & new.keys()) - OF_THE_DAY
        changed = (has(new[name], old[name], f"{where}/{name}") for name in both)
        return missing + [each for some in changed for each in some]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            each
            for number, (one, before) in enumerate(zip(new, old, strict=True))
            for each in has(one, before, f"{where}/{number}")
        ]
    return [] if new == old else [f"{where} was {old!r:.100}, is {new!r:.100}"]


@pytest.mark.parametrize("name", release.names())
def test_the_data_of_a_release_is_the_same_after_the_upgrade(name: str, tmp_path: Path) -> None:
    kept = json.loads(release.read(name, "json"))
    nowhere = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    with database("upgraded", release.read(name, "sql")) as url:
        today = Release(ROOT, url, tmp_path, nowhere)
        if "No planned" not in today.manage("migrate", "--plan"):
            with pytest.raises(Failed, match="The database lacks migrations of this release"):
                today.manage("consume", "--until-idle", "1")
        today.manage("migrate", "--verbosity", "0")
        today.env["ASKED_AT"] = release.end_of_day(name)
        answers = today.ask(*kept["answers"])
        assert has(answers, kept["answers"]) == []
        assert today.ledger() == kept["ledger"]


def has_history() -> bool:
    command = ["git", "rev-parse", "--is-shallow-repository"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() == "false"


@pytest.mark.skipif(not has_history(), reason="needs the history of the repository")
def test_the_commit_of_the_release_has_the_migrations_of_what_is_kept(tmp_path: Path) -> None:
    """`python -m tests.upgrade` starts it."""
    code = earlier.unpack(earlier.DEFAULT, tmp_path / "code")
    applied = re.findall(r"\(\d+, '(\w+)', '(\w+)', '", release.read(release.last(), "sql"))
    assert earlier.migrations(code) == {each for each in applied if each[0] in earlier.APPS}
    assert f'"{release.last()}"' in (code / "pyproject.toml").read_text()


def test_every_release_of_the_changelog_is_kept() -> None:
    """`python -m tests.upgrade.keep NAME REFERENCE` keeps one."""
    assert release.last() in release.names()


@pytest.mark.skipif(not has_history(), reason="needs the history of the repository")
def test_no_day_is_packed_before_the_earlier_release_is_gone() -> None:
    """`maintain` of this release in the wrong order and in the right one, and the way back, with
    real processes of the last release."""
    folder = Path(tempfile.mkdtemp(prefix="annals-upgrade-"))
    folder.chmod(0o755)  # PostgreSQL runs as a user of its own
    try:
        root = earlier.unpack(earlier.DEFAULT, folder / "earlier")
        with stand.stand(folder / "stand", "embedded", root) as made:
            packing.scenes(made)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
