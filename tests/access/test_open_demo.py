"""A demo that nobody asked for is not served to others, and leaves no logins behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from annals.access.roles import disable_demo_logins

ROOT = Path(__file__).resolve().parents[2]
MANAGE = (sys.executable, "manage.py")
GUNICORN = (sys.executable, "-m", "gunicorn", "--config", "python:annals.server")


@pytest.mark.parametrize(
    "command, more, why",
    [
        ((*MANAGE, "check"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
        (
            (*MANAGE, "check"),
            {"ANNALS_ALLOWED_HOSTS": "localhost,annals.bank.example"},
            "ANNALS_ALLOWED_HOSTS has annals.bank.example",
        ),
        ((*MANAGE, "runserver", "0.0.0.0:0"), {}, "0.0.0.0 can be reached from outside"),
        ((*GUNICORN, "--bind", "0.0.0.0:0", "annals.wsgi"), {}, "0.0.0.0 can be reached"),
        ((*GUNICORN, "annals.wsgi"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
    ],
)
def test_an_open_demo_is_refused(
    command: tuple[str, ...], more: dict[str, str], why: str, tmp_path: Path
) -> None:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name != "DATABASE_URL"
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=env | {"ANNALS_HOME": str(tmp_path / "home")} | more,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert why in done.stderr
    assert "Set DATABASE_URL for production" in done.stderr
    assert not (tmp_path / "home").exists()


def test_logins_of_a_demo_are_switched_off(db: None) -> None:
    User.objects.create_user("kept", password="not the name")
    found = User.objects.filter(is_active=True).values_list("username", flat=True)
    assert set(found) > {"support", "kept"}
    disable_demo_logins()
    assert list(found.all()) == ["kept"]
    assert not User.objects.get(username="support").has_usable_password()
