"""The fast version: `python -m pytest -m soak tests/soak`. The suite leaves it out."""

import os
import subprocess
import sys

import pytest

from tests import need
from tests.consuming import ROOT

pytestmark = [pytest.mark.soak, pytest.mark.system]


def test_two_minutes() -> None:
    need.java()
    need.maven()
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANNALS_")}
    env.pop("DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "2"],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=1_800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-2_000:]
