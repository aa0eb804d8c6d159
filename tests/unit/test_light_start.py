"""A command that ends at once does not import what only pages, logins and archives need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.consuming import ROOT

HEAVY = {
    "cryptography",
    "history.admin.pages",
    "history.api",
    "history.masking",
    "history.timeline",
    "jwt",
    "prometheus_client",
    "pyarrow",
    "requests",
    "rich",
}

SHOW = """
import sys
from pathlib import Path
from django.core.management import execute_from_command_line
try:
    execute_from_command_line(["manage.py", *sys.argv[1:]])
finally:
    print("\\n".join(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["version"], ["check", "--help"], ["migrate", "--help"]])
def test_what_a_command_imports(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *words],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert set(done.stderr.splitlines()) & HEAVY == set()


MANAGE = """
import runpy, sys
try:
    runpy.run_path("manage.py", run_name="__main__")
finally:
    print("\\n".join(sys.modules), file=sys.stderr)
"""
# What Django's start needs, and what the commands need to do something.
STARTED = HEAVY | {"confluent_kafka", "django.db.models", "history.models", "psycopg"}
QUICK = [
    "breakglass",
    "capacity",
    "compare-old",
    "consume",
    "embedded",
    "export",
    "gaps",
    "grants",
    "journal",
    "labels",
    "ledger",
    "partitions",
    "people",
    "quarantine",
    "search",
    "share",
    "simulate",
    "trace",
]


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("command", QUICK)
def test_help_does_not_start_django(command: str) -> None:
    done = run(MANAGE, command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: manage.py {command}")
    assert set(done.stderr.splitlines()) & STARTED == set()


@pytest.mark.parametrize(
    "words",
    [
        ["partitions", "verify", "-h"],
        ["ledger", "--help"],
        ["export", "--help"],
        ["share", "--help"],
        ["simulate", "--help"],
        ["people", "import", "-h"],
    ],
)
def test_help_is_what_django_says(words: list[str]) -> None:
    quick, plain = run(MANAGE, *words), run(SHOW, *words)
    assert quick.stdout == plain.stdout
    assert "usage:" in quick.stdout


@pytest.mark.parametrize("words", [["migrate", "--help"], ["check", "--help"], ["../x", "-h"]])
def test_other_commands_are_djangos(words: list[str]) -> None:
    assert run(MANAGE, *words).stdout == run(SHOW, *words).stdout


def test_check_knows_the_screens_of_every_app(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "__init__.py").touch()
    (shelf / "models.py").write_text(
        "from django.db import models\nclass Book(models.Model):\n  pages = models.IntegerField()\n"
    )
    (shelf / "admin.py").write_text(
        "from django.contrib import admin\nfrom shelf.models import Book\n"
        "@admin.register(Book)\nclass Books(admin.ModelAdmin):\n  list_display = ['colour']\n"
    )
    (tmp_path / "more.py").write_text(
        "from annals.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'shelf']\n"
        "DEFAULT_AUTO_FIELD = 'django.db.models.BigAutoField'\n"
    )
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--tag", "admin", "--settings", "more"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "admin.E108" in done.stdout
