"""A command that ends at once does not import what only pages, logins and archives need."""

import subprocess
import sys

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
