"""Programs print a database error without the row that caused it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from psycopg.conninfo import make_conninfo

from ingest.store.session import open_connection
from tests.consuming import ROOT

pytestmark = pytest.mark.django_db(transaction=True)

PLACE = ("host", "port", "user", "password")
SECRET = "Прыгунов-4711"


@contextmanager
def add_constraint(table: str, check: str) -> Iterator[None]:
    with open_connection("test") as plain:
        plain.execute(f"ALTER TABLE {table} ADD CONSTRAINT theirs CHECK ({check}) NOT VALID")
        try:
            yield
        finally:
            plain.execute(f"ALTER TABLE {table} DROP CONSTRAINT theirs")


def test_failed_maintain_step_reports_sqlstate_without_values_of_the_row() -> None:
    with add_constraint("maintain_run", "seconds < 0"), pytest.raises(CommandError) as end:
        call_command("partitions", "maintain", stdout=StringIO(), stderr=StringIO())
    assert end.value.returncode == 2
    assert str(end.value).endswith(": CheckViolation: SQLSTATE 23514")


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_error_that_ends_a_command_does_not_quote_the_row(tmp_path: Path, level: str) -> None:
    people = tmp_path / "people.csv"
    people.write_text(f"login,full_name,kind\na,{SECRET},person\n")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    url = make_conninfo(
        plain["DATABASE_URL"],
        dbname=connection.settings_dict["NAME"],
        **{name: str(connection.settings_dict[name.upper()]) for name in PLACE},
    )
    with add_constraint("history_person", "full_name = 'nobody'"):
        finished = subprocess.run(
            [sys.executable, "manage.py", "people", "import", str(people)],
            env={
                **plain,
                "DATABASE_URL": url,
                "ANNALS_SECRET_KEY": "k" * 40,
                "PYTHONUTF8": "1",
                "ANNALS_LOG_LEVEL": level,
            },
            cwd=ROOT,
            capture_output=True,
            timeout=300,
        )
    text = (finished.stdout + finished.stderr).decode()
    assert finished.returncode == 1
    assert text.rstrip().endswith("CheckViolation: SQLSTATE 23514.")
    assert ("in load" in text) is (level == "DEBUG")  # a line of the traceback
    assert level == "DEBUG" or len(text.splitlines()) == 1
    assert SECRET not in text
    assert "DETAIL" not in text
