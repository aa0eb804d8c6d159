"""Logging in with two real providers at once, against a production web process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from annals.embedded.postgres import Postgres
from tests.access.real_provider import Person, RealProvider, free_port
from tests.consuming import Database, until
from tests.processes import own_database

ROOT = Path(__file__).resolve().parents[2]
ROLES = {"annals-support": "support", "annals-admins": "admin", "annals-ops": "ops"}

pytestmark = pytest.mark.system


class Web:
    """gunicorn outside the demo, with both providers."""

    def __init__(self, database: Database, folder: Path, **more: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "web.log"
        self.folder = folder
        self.database = database
        self.more = more

    def start(self, providers: list[dict[str, object]]) -> None:
        file = self.folder / "providers.json"
        file.write_text(json.dumps({"provider": providers}))
        env = {n: v for n, v in os.environ.items() if not n.startswith("ANNALS_")}
        self.env = env | {
            "DATABASE_URL": self.database.url,
            "ANNALS_HOME": str(self.folder / "home"),
            "ANNALS_OIDC_FILE": str(file),
            **self.more,
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "--config", "python:annals.server"),
                    *("--bind", f"127.0.0.1:{self.port}", "annals.wsgi"),
                ],
                cwd=ROOT,
                env=self.env,
                stderr=log,
            )
        until(self._alive, self.log.read_text)

    def _alive(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


class Site:
    """Annals and its two providers."""

    def __init__(self, web: Web, bank: RealProvider, keycloak: RealProvider) -> None:
        self.web, self.bank, self.keycloak = web, bank, keycloak

    def users(self) -> dict[str, tuple[bool, list[str]]]:
        """By login: superuser or not, and roles."""
        rows = self.web.database.query(
            "SELECT username, is_superuser, coalesce(array_agg(g.name ORDER BY g.name)"
            " FILTER (WHERE g.name IS NOT NULL), '{}') AS roles FROM auth_user u"
            " LEFT JOIN auth_user_groups m ON m.user_id = u.id"
            " LEFT JOIN auth_group g ON g.id = m.group_id GROUP BY u.id"
        )
        return {row["username"]: (row["is_superuser"], row["roles"]) for row in rows}


@pytest.fixture(scope="module")
def running(server: Postgres) -> Iterator[Site]:
    """One web and two providers for all tests here; each test begins without users."""
    with tempfile.TemporaryDirectory(prefix="annals-login-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(own_database(server))
        web = Web(database, folder, ANNALS_SESSION_RENEW_MINUTES="1")
        bank = stack.enter_context(RealProvider("bank", folder, web.url))
        keycloak = stack.enter_context(RealProvider("keycloak", folder, web.url))
        web.start([bank.declaration(ROLES), keycloak.declaration(ROLES)])
        stack.callback(web.stop)
        yield Site(web, bank, keycloak)


@pytest.fixture
def site(running: Site) -> Site:
    for provider in (running.bank, running.keycloak):
        provider.account(
            "1", preferred_username="m.petrov", name="Петров Михаил", groups=["annals-support"]
        )
        provider.account("2", preferred_username="boss", groups=["annals-admins"])
        provider.account("3", preferred_username="stranger", groups=["other"])
    running.web.database.execute(
        "TRUNCATE auth_user, history_person, django_session, access_attempts CASCADE"
    )
    return running


def inside(person: Person, web: Web) -> bool:
    """Whether the person sees the screens."""
    answer = person.http.get(f"{web.url}/admin/", timeout=20, allow_redirects=False)
    return answer.status_code == 200


def test_both_providers_log_in_the_same_name_as_two_people(site: Site) -> None:
    for provider in (site.bank, site.keycloak):
        person = Person()
        page = person.log_in(site.web.url, provider, "1")
        assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
        assert "Петров Михаил" in page.text
    assert site.users() == {
        "m.petrov@bank": (False, ["support"]),
        "m.petrov@keycloak": (False, ["support"]),
    }
    [named] = site.web.database.query("SELECT login, full_name, kind FROM history_person")
    assert tuple(named.values()) == ("m.petrov", "Петров Михаил", "person")


def test_the_login_page_offers_both(site: Site) -> None:
    text = requests.get(f"{site.web.url}/admin/login/?next=/admin/", timeout=10).text
    for provider in ("bank", "keycloak"):
        assert f"Provider {provider}" in text
        assert f"/oidc/{provider}/login/?next=%2Fadmin%2F" in text


def test_roles_come_and_go_with_the_claim(site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "2")
    assert site.users() == {"boss@bank": (True, ["admin"])}
    site.web.database.execute(
        "INSERT INTO auth_user_user_permissions (user_id, permission_id)"
        " SELECT u.id, p.id FROM auth_user u, auth_permission p LIMIT 3"
    )
    site.bank.account("2", preferred_username="boss", groups=["annals-ops"])
    Person().log_in(site.web.url, site.bank, "2")
    assert site.users() == {"boss@bank": (False, ["ops"])}
    assert site.web.database.count("auth_user_user_permissions") == 0
    site.bank.account("2", preferred_username="boss", groups=[])
    page = Person().log_in(site.web.url, site.bank, "2")
    assert page.status_code == 403
    assert site.users() == {"boss@bank": (False, [])}
    assert not inside(person, site.web)


def test_a_person_without_a_role_leaves_no_login(site: Site) -> None:
    person = Person()
    page = person.log_in(site.web.url, site.bank, "3")
    assert page.status_code == 403
    assert "администратора" in page.text
    assert site.users() == {}
    assert not inside(person, site.web)


def test_the_provider_ends_the_session(site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    other = Person()
    other.log_in(site.web.url, site.keycloak, "1")
    assert inside(person, site.web)
    page = person.get(f"{site.bank.url}/session/end")
    secret = page.text.split('name="xsrf" value="')[1].split('"')[0]
    person.http.post(
        f"{site.bank.url}/session/end/confirm", data={"xsrf": secret, "logout": "yes"}, timeout=20
    )
    until(lambda: not inside(person, site.web), site.web.log.read_text, 10)
    assert inside(other, site.web)


@pytest.mark.parametrize("token", ["", "x", "a.b.c"])
def test_a_logout_that_the_provider_did_not_sign(token: str, site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    answer = requests.post(
        f"{site.web.url}/oidc/bank/logout/", data={"logout_token": token}, timeout=10
    )
    assert answer.status_code == 400
    assert inside(person, site.web)


def test_a_code_of_one_provider_at_the_address_of_the_other(site: Site) -> None:
    person = Person()
    asked = person.http.get(
        f"{site.web.url}/oidc/bank/login/?next=/admin/", allow_redirects=False, timeout=10
    )
    state = asked.headers["Location"].split("state=")[1].split("&")[0]
    page = person.get(f"{site.web.url}/oidc/keycloak/callback/?code=x&state={state}")
    assert page.status_code == 403
    assert not inside(person, site.web)


def test_a_login_that_somebody_else_began(site: Site) -> None:
    asked = requests.get(
        f"{site.web.url}/oidc/bank/login/?next=/admin/", allow_redirects=False, timeout=10
    )
    state = asked.headers["Location"].split("state=")[1].split("&")[0]
    page = Person().get(f"{site.web.url}/oidc/bank/callback/?code=x&state={state}")
    assert page.status_code == 403


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "javascript:alert(1)"]
)
def test_the_way_back_leads_nowhere_else(target: str, site: Site) -> None:
    person = Person()
    person.get(f"{site.web.url}/oidc/bank/login/?next={target}")
    page = person.log_in(site.web.url, site.bank, "1")
    assert page.url.startswith(site.web.url)


def test_a_provider_that_is_down_says_so_and_the_other_works(site: Site) -> None:
    site.bank.stop()
    began = time.monotonic()
    page = Person().get(f"{site.web.url}/oidc/bank/login/?next=/admin/")
    assert page.status_code == 503
    assert "Provider bank" in page.text
    assert time.monotonic() - began < 15  # a limit on the call, not a measurement
    person = Person()
    person.log_in(site.web.url, site.keycloak, "1")
    assert inside(person, site.web)
    site.bank.start()
    person = Person()
    person.log_in(site.web.url, site.bank, "1")  # its keys are new: they are asked for again
    assert inside(person, site.web)


def test_a_program_with_a_real_token(site: Site) -> None:
    address = f"{site.web.url}/api/v1/search?q=A1"
    for provider in (site.bank, site.keycloak):
        headers = {"Authorization": f"Bearer {provider.program_token()}"}
        # A key that the provider made a moment ago is known here after ten seconds.
        until(
            lambda: requests.get(address, headers=headers, timeout=10).status_code == 200,  # noqa: B023
            site.web.log.read_text,
            30,
        )
    headers = {"Authorization": f"Bearer {site.bank.program_token(scope='')}"}
    until(
        lambda: requests.get(address, headers=headers, timeout=10).status_code == 403,
        site.web.log.read_text,
        30,
    )


def test_local_passwords_are_for_the_break_glass_login_only(site: Site) -> None:
    password = site.web.manage("breakglass", "breakglass")
    site.web.manage("shell", "-c", "from django.contrib.auth.models import User;"
        "User.objects.create_superuser('root', password='a long password')")  # fmt: skip

    def try_password(login: str, secret: str) -> Person:
        person = Person()
        page = person.get(f"{site.web.url}/admin/login/")
        field = page.text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        data = {"username": login, "password": secret, "csrfmiddlewaretoken": field}
        person.http.post(f"{site.web.url}/admin/login/?next=/admin/", data=data, timeout=20)
        return person

    assert inside(try_password("breakglass", password), site.web)
    assert not inside(try_password("root", "a long password"), site.web)
    assert not inside(try_password("breakglass", "wrong"), site.web)
    said = site.web.log.read_text()
    assert "BREAK GLASS: 'breakglass' logged in" in said
    assert "login failed for 'root' from 127.0.0.1" in said
    for _ in range(8):
        try_password("breakglass", "wrong")
    assert not inside(try_password("breakglass", password), site.web)
    assert "login failed for 'breakglass' from 127.0.0.1: wait" in site.web.log.read_text()


def test_a_session_is_confirmed_by_the_provider(site: Site) -> None:
    """The time since the provider was asked is set back in the stored session."""
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    age(site, 120)
    page = person.get(f"{site.web.url}/admin/")  # past the provider and back, unseen
    assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
    assert any("/oidc/bank/callback/" in step.url for step in page.history)
    site.bank.account("1", preferred_username="m.petrov", groups=[])
    age(site, 120)
    assert person.get(f"{site.web.url}/admin/").status_code == 403
    assert not inside(person, site.web)


def test_the_api_too_waits_for_the_provider_to_confirm_a_session(site: Site) -> None:
    """A person without a role any more opens no page, and keeps the cookie."""
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    search = f"{site.web.url}/api/v1/search?q=A1"
    assert person.get(search).status_code == 200
    age(site, 90)
    assert person.get(search).status_code == 200
    age(site, 60)
    assert person.get(search).status_code == 401
    person.get(f"{site.web.url}/admin/")
    assert person.get(search).status_code == 200


def test_a_session_ends_when_it_is_idle_or_old(site: Site) -> None:
    for name, seconds in (("annals_seen", 3_601), ("annals_began", 36_001)):
        person = Person()
        person.log_in(site.web.url, site.bank, "1")
        assert inside(person, site.web)
        age(site, seconds, name)
        assert not inside(person, site.web)


def age(site: Site, seconds: int, name: str = "annals_confirmed") -> None:
    """Set a time in every stored session back."""
    code = (
        "from django.contrib.sessions.models import Session\n"
        "from django.contrib.sessions.backends.db import SessionStore\n"
        "for each in Session.objects.all():\n"
        "    store = SessionStore(each.session_key)\n"
        f"    if '{name}' in store:\n"
        f"        store['{name}'] -= {seconds}\n"
        "        store.save()\n"
    )
    site.web.manage("shell", "-c", code)
