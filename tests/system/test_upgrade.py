"""The current code upgrades and reads the database of every earlier release."""

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
from tests.upgrade.release import KeptRelease, ReleaseCommandError

pytestmark = pytest.mark.system


@contextmanager
def create_database(name: str, script: str) -> Iterator[str]:
    """Create a database with an SQL script, yield its URL, and drop it afterwards."""
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as plain:
        plain.execute(f"DROP DATABASE IF EXISTS {name}")
        plain.execute(f"CREATE DATABASE {name}")
        own_url = urlsplit(url)._replace(path=f"/{name}").geturl()
        try:
            with psycopg.connect(own_url, autocommit=True) as created:
                created.execute(script)
            yield own_url
        finally:
            plain.execute(f"DROP DATABASE {name} WITH (FORCE)")


# Fields of answers that depend on the day of the request.
OF_THE_DAY = {"retentionStart"}


def list_lost_answers(new: Any, old: Any, path: str = "") -> list[str]:
    """Return what an answer lacks or changes in comparison with an answer of an earlier release.

    New fields are allowed.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        missing = [f"{path}/{name} is gone" for name in old.keys() - new.keys()]
        common = (old.keys() & new.keys()) - OF_THE_DAY
        changed = (list_lost_answers(new[name], old[name], f"{path}/{name}") for name in common)
        return missing + [difference for differences in changed for difference in differences]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            difference
            for number, (new_item, old_item) in enumerate(zip(new, old, strict=True))
            for difference in list_lost_answers(new_item, old_item, f"{path}/{number}")
        ]
    return [] if new == old else [f"{path} was {old!r:.100}, is {new!r:.100}"]


@pytest.mark.parametrize("name", release.list_kept_releases())
def test_answers_of_each_earlier_release_are_the_same_after_the_upgrade(
    name: str, tmp_path: Path
) -> None:
    kept_answers = json.loads(release.read_release_file(name, "json"))
    no_broker = {"KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    with create_database("upgraded", release.read_release_file(name, "sql")) as url:
        current_release = KeptRelease(ROOT, url, tmp_path, no_broker)
        if "No planned" not in current_release.run_command("migrate", "--plan"):
            with pytest.raises(
                ReleaseCommandError, match="The database lacks migrations of this release"
            ):
                current_release.run_command("consume", "--until-idle", "1")
        current_release.run_command("migrate", "--verbosity", "0")
        current_release.env["ASKED_AT"] = release.get_end_of_day(name)
        answers = current_release.fetch_answers(*kept_answers["answers"])
        assert list_lost_answers(answers, kept_answers["answers"]) == []
        assert current_release.read_ledger() == kept_answers["ledger"]


def has_history() -> bool:
    command = ["git", "rev-parse", "--is-shallow-repository"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return finished.stdout.strip() == "false"


@pytest.mark.skipif(not has_history(), reason="needs the history of the repository")
def test_default_commit_of_upgrade_command_has_version_and_migrations_of_last_release(
    tmp_path: Path,
) -> None:
    """`python -m tests.upgrade` starts the code of the commit `earlier.DEFAULT`.

    The migrations in this code are compared with the database dump of the last release.
    """
    code = earlier.unpack_release(earlier.DEFAULT, tmp_path / "code")
    applied = re.findall(
        r"\(\d+, '(\w+)', '(\w+)', '", release.read_release_file(release.get_last_release(), "sql")
    )
    assert earlier.list_migrations(code) == {
        migration for migration in applied if migration[0] in earlier.APPS
    }
    assert f'"{release.get_last_release()}"' in (code / "pyproject.toml").read_text()


def test_repository_has_a_dump_of_the_last_release() -> None:
    """`python -m tests.upgrade.keep NAME REFERENCE` makes a dump."""
    assert release.get_last_release() in release.list_kept_releases()


@pytest.mark.skipif(not has_history(), reason="needs the history of the repository")
def test_maintain_packs_no_day_while_an_earlier_release_runs() -> None:
    """The test upgrades in the wrong order, then in the right order, and then goes back, with real
    processes of the earlier release."""
    folder = Path(tempfile.mkdtemp(prefix="annals-upgrade-"))
    folder.chmod(0o755)  # PostgreSQL runs as a user of its own
    try:
        root = earlier.unpack_release(earlier.DEFAULT, folder / "earlier")
        with stand.create_stand(folder / "stand", "embedded", root) as upgrade_stand:
            packing.check_all_orders(upgrade_stand)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
