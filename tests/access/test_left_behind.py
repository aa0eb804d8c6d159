"""A production web on the database of a demo: none of the well-known logins gets in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from annals.embedded.postgres import Postgres
from tests.access.web import ROOT, Web
from tests.consuming import Database
from tests.processes import own_database

pytestmark = pytest.mark.system

LOGINS = ("support", "auditor", "ops", "admin", "privacy", "underwriter")
# Never asked: nobody logs in with it here.
PROVIDER = {
    "name": "bank",
    "title": "Bank",
    "issuer": "http://127.0.0.1:1",
    "client_id": "annals",
}


def migrate(database: Database, folder: Path, *, demo: bool) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ANNALS_")}
    env |= {"DATABASE_URL": database.url, "ANNALS_HOME": str(folder / "home")}
    if demo:
        env["ANNALS_DEMO"] = "true"
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def demo(server: Postgres, tmp_path: Path) -> Iterator[Database]:
    with own_database(server) as database:
        database.execute("TRUNCATE auth_user CASCADE")
        migrate(database, tmp_path, demo=True)
        yield database


def active(database: Database) -> set[str]:
    found = database.query("SELECT username FROM auth_user WHERE is_active")
    return {row["username"] for row in found}


def gets_in(web: Web, name: str) -> list[str]:
    """The ways by which a login with its well-known password gets in."""
    http = requests.Session()
    page = http.get(f"{web.url}/admin/login/", timeout=10)
    field = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    form = {"username": name, "password": name, "csrfmiddlewaretoken": field}
    http.post(f"{web.url}/admin/login/?next=/admin/", data=form, timeout=20)
    shown = http.get(f"{web.url}/admin/", timeout=10, allow_redirects=False).status_code
    basic = requests.get(f"{web.url}/api/v1/search?q=x", auth=(name, name), timeout=10).status_code
    assert (shown, basic) in ((302, 401), (200, 401), (302, 200), (200, 200))
    return [way for way, status in (("form", shown), ("Basic", basic)) if status == 200]


def test_a_production_web_on_the_database_of_a_demo(demo: Database, tmp_path: Path) -> None:
    assert active(demo) == set(LOGINS)
    web = Web(demo, tmp_path)
    web.start([PROVIDER])
    try:
        # Before `migrate` the logins are there, and no password works.
        assert {name: gets_in(web, name) for name in LOGINS} == {name: [] for name in LOGINS}
        said = migrate(demo, tmp_path, demo=False)
        assert active(demo) == set()
        assert all(f"login {name} switched off" in said for name in LOGINS)
        assert {name: gets_in(web, name) for name in LOGINS} == {name: [] for name in LOGINS}
        # A demo on it again, by mistake, does not switch them on.
        migrate(demo, tmp_path, demo=True)
        assert active(demo) == set()
    finally:
        web.stop()
