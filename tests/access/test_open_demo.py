"""A demo that starts by mistake does not serve other hosts, and leaves no logins behind."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User

from annals.access import roles
from annals.embedded.postgres import EmbeddedPostgres
from annals.web import start
from tests.access.web import ROOT
from tests.processes import create_own_database, server

__all__ = ["server"]

MANAGE = (sys.executable, "manage.py")
PYTHON = (sys.executable, "-c")
GUNICORN = (sys.executable, "-m", "gunicorn", "--config", "python:annals.server")


def make_accidental_demo_environment(folder: Path) -> dict[str, str]:
    """Return an environment without DATABASE_URL, in which Annals starts as a demo by mistake."""
    own_values = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("ANNALS_") and name != "DATABASE_URL"
    }
    return own_values | {"ANNALS_HOME": str(folder / "home")}


@pytest.mark.parametrize(
    "command, more, reason",
    [
        ((*MANAGE, "check"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
        ((*MANAGE, "runserver", "0.0.0.0:0"), {}, "0.0.0.0 can be reached from outside"),
        ((*GUNICORN, "--bind", "0.0.0.0:0", "annals.wsgi"), {}, "0.0.0.0 can be reached"),
        ((*GUNICORN, "annals.wsgi"), {"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
        (
            (*PYTHON, "import annals.wsgi"),
            {"DATABASE_URL": ""},
            "does not say who can reach it",
        ),
    ],
)
def test_demo_started_without_database_url_is_refused_when_other_hosts_can_reach_it(
    command: tuple[str, ...], more: dict[str, str], reason: str, tmp_path: Path
) -> None:
    """Annals starts as a demo if DATABASE_URL is not set, for example by mistake."""
    env = make_accidental_demo_environment(tmp_path) | {"TMPDIR": str(tmp_path)} | more
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert result.returncode != 0
    assert reason in result.stderr
    assert "Set DATABASE_URL for production" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_web_of_demo_does_not_start_when_home_folder_is_unusable(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    finished = subprocess.run(
        [*GUNICORN, "--bind", "127.0.0.1:0", "annals.wsgi"],
        cwd=ROOT,
        env=make_accidental_demo_environment(tmp_path)
        | {"TMPDIR": str(tmp_path), "ANNALS_DEMO": "true"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 1
    assert "annals: ANNALS_HOME cannot be used: " in finished.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_web_does_not_start_when_its_login_owns_the_tables(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    with create_own_database(server) as database:
        env = make_accidental_demo_environment(tmp_path) | {
            "DATABASE_URL": database.url,
            "ANNALS_SECRET_KEY": "k" * 50,
        }
        result = subprocess.run(
            [*GUNICORN, "--bind", "0.0.0.0:0", "annals.wsgi"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert result.returncode != 0
    assert "Give it a login of its own with `annals grants`" in result.stderr


def test_migrate_deactivates_demo_logins_in_production(db: None, settings: Any) -> None:
    """A later start as a demo, by mistake, on the same database does not activate them again."""
    User.objects.create_user("kept", password="not the name")
    actual = User.objects.filter(is_active=True).values_list("username", flat=True)
    assert set(actual) > {"support", "kept"}
    for demo in (False, True):
        settings.ANNALS = msgspec.structs.replace(settings.ANNALS, demo=demo)
        roles.create_groups_and_logins()
        assert list(actual.all()) == ["kept"]
    assert not User.objects.get(username="support").has_usable_password()


@pytest.mark.parametrize(
    "more, reason",
    [
        ({"DATABASE_URL": "postgresql://u@db.bank.example/annals"}, "leads to db.bank.example"),
        ({"DATABASE_URL": "postgresql:///annals?host=192.0.2.2&user=u"}, "leads to 192.0.2.2"),
        ({"DATABASE_URL": "postgresql://u@/annals", "PGHOST": "192.0.2.2"}, "leads to 192.0.2.2"),
        ({"DATABASE_URL": "postgresql://u:p@127.0.0.1:1,10.0.0.7:5432/annals"}, "to 10.0.0.7"),
        ({"ANNALS_HTTPS": "true"}, "ANNALS_HTTPS is set"),
        ({"ANNALS_ALLOWED_HOSTS": "annals.bank.example"}, "has annals.bank.example"),
    ],
)
def test_demo_does_not_start_when_database_or_hosts_look_like_production(
    more: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "ANNALS_DEMO": "true",
        "DATABASE_URL": "postgresql://u@[::1]:1/annals",
        "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
    }
    for name in [item for item in os.environ if item.startswith("ANNALS_")]:
        monkeypatch.delenv(name)
    for name, value in (values | more).items():
        monkeypatch.setenv(name, value)
    for words in ("migrate", "runserver"):
        with pytest.raises(SystemExit, match="ANNALS_DEMO=true creates logins") as caught:
            start.check_settings([words])
        assert reason in str(caught.value)


pytestmark = pytest.mark.system
