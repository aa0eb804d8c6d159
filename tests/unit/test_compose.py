"""docker/compose.yaml gives each process the secrets that it needs, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SERVICES = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
OURS = {name for name, each in SERVICES.items() if each.get("image") == "annals"}


@pytest.mark.parametrize(
    "secret, of",
    [("ANNALS_SECRET_KEY", {"web", "maintain"}), ("ANNALS_METRICS_TOKEN", {"web"})],
)
def test_only_who_needs_a_secret_has_it(secret: str, of: set[str]) -> None:
    assert {name for name in OURS if secret in SERVICES[name]["environment"]} == of


# It sends messages, and has no database.
@pytest.mark.parametrize("name", sorted(OURS - {"simulate"}))
def test_no_process_has_the_login_of_another(name: str) -> None:
    login = {"web": "web_login", "consume": "consumer_login"}.get(name, "owner_login")
    assert SERVICES[name]["environment"]["DATABASE_URL"].startswith(f"postgresql://{login}:")


def test_the_simulator_has_no_database() -> None:
    assert "DATABASE_URL" not in SERVICES["simulate"]["environment"]


def test_a_process_without_a_key_starts(tmp_path: Path) -> None:
    given = dict(SERVICES["consume"]["environment"])
    assert given.pop("ANNALS_HOME") == "/tmp/annals"  # noqa: S108 - a tmpfs of the container
    given |= {"DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none", "ANNALS_RETENTION_DAYS": "90"}
    own = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    home = tmp_path / "annals"
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=own | given | {"ANNALS_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (home / "secret_key").stat().st_mode & 0o777 == 0o600
