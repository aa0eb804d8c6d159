"""People and programs of a real Keycloak, at a production web process."""

import json
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from annals.access.roles import ROLES as ALL_ROLES
from annals.embedded import process
from annals.embedded.postgres import Postgres
from tests.access.keycloak import PASSWORD, Keycloak
from tests.access.real_provider import SECRET, Person
from tests.access.web import Web, inside
from tests.consuming import until
from tests.processes import own_database

ROLES = {"/annals/support": "support", "/annals/admins": "admin"}

pytestmark = pytest.mark.system


DOCKER = Path(__file__).resolve().parents[2] / "docker" / "keycloak"


class ComposeRealm:
    """The realm of docker/compose.yaml in a running Keycloak, with the addresses of the test."""

    name = "compose"

    def __init__(self, keycloak: Keycloak, web: str) -> None:
        self.url = keycloak.url
        text = (DOCKER / "annals-realm.json").read_text()
        for before, after in (
            ("${KEYCLOAK_CLIENT_SECRET}", SECRET),
            ("http://localhost:8000", web),
            ("/oidc/keycloak/", f"/oidc/{self.name}/"),
        ):
            assert before in text
            text = text.replace(before, after)
        keycloak.admin("POST", "", json=json.loads(text))

    def declaration(self, folder: Path) -> dict[str, object]:
        """That of compose, with the addresses of the test."""
        [made] = tomllib.loads((DOCKER / "providers.toml").read_text())["provider"]
        issuer = made["issuer"].replace("http://localhost:8180", self.url)
        secret = process.write(folder / "compose.secret", SECRET)
        return {**made, "name": self.name, "issuer": issuer, "client_secret_file": str(secret)}

    def fields(self, page: str, login: str) -> dict[str, str]:
        """What a person of the demo fills in."""
        del page
        return {"username": login, "password": login}


class Site:
    """Annals with Keycloak."""

    def __init__(self, web: Web, keycloak: Keycloak, realm: ComposeRealm) -> None:
        self.web, self.keycloak, self.realm = web, keycloak, realm

    def log_in(self, login: str = "m.petrov") -> Person:
        """A person who went all the way through Keycloak's form."""
        person = Person()
        person.log_in(self.web.url, self.keycloak, login)
        return person

    def ask(self, token: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{self.web.url}/api/v1/search?q=A1", headers=headers, timeout=20)


@pytest.fixture(scope="module")
def running(server: Postgres) -> Iterator[Site]:
    """Keycloak starts once; each test begins without users in Annals."""
    with tempfile.TemporaryDirectory(prefix="annals-keycloak-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(own_database(server))
        web = Web(database, folder)
        keycloak = stack.enter_context(Keycloak("keycloak", folder, web.url))
        realm = ComposeRealm(keycloak, web.url)
        web.start([keycloak.declaration(ROLES), realm.declaration(folder)])
        stack.callback(web.stop)
        web.manage("partitions", "maintain")  # the journal needs its day
        yield Site(web, keycloak, realm)


@pytest.fixture
def site(running: Site) -> Site:
    running.keycloak.put_into("m.petrov", "support")
    running.keycloak.put_into("boss", "admins")
    running.web.forget()
    return running


def test_a_person_of_keycloak_has_a_name_and_the_role_of_the_group(site: Site) -> None:
    person = site.log_in()
    assert (person.page.status_code, person.page.url) == (200, f"{site.web.url}/admin/")
    assert "Михаил Петров" in person.page.text
    site.log_in("boss")
    assert site.web.users() == {
        "m.petrov@keycloak": (False, ["support"]),
        "boss@keycloak": (False, ["admin"]),
    }
    people = site.web.database.query("SELECT login, full_name FROM history_person ORDER BY login")
    assert [tuple(each.values()) for each in people] == [
        ("boss", "Анна Орлова"),
        ("m.petrov", "Михаил Петров"),
    ]


def test_each_login_of_the_compose_demo_has_its_role(site: Site) -> None:
    for role in ALL_ROLES:
        person = Person()
        person.log_in(site.web.url, site.realm, role)
        assert inside(person, site.web), f"{role}: {person.page.url}"
    assert site.web.users() == {f"{role}@compose": (False, [role]) for role in ALL_ROLES}


def test_keycloaks_administrator_ends_all_sessions_of_a_person(site: Site) -> None:
    """Keycloak calls once and names one session: the others here are asked about again."""
    end_all = f"/staff/users/{site.keycloak.user('m.petrov')}/logout"
    site.keycloak.admin("POST", end_all)  # those of the tests before
    sessions, other = [site.log_in(), site.log_in(), site.log_in()], site.log_in("boss")
    site.keycloak.admin("POST", end_all)
    until(lambda: not any(inside(each, site.web) for each in sessions), site.web.said, 10)
    assert inside(other, site.web)
    pages = [each.get(f"{site.web.url}/admin/completeness/") for each in sessions]
    for page in pages:
        assert "/admin/login/" in page.url
        assert "next=%2Fadmin%2Fcompleteness%2F" in page.text
    # Of the session that Keycloak named nothing is left, not even a reason.
    assert sum("Сеанс завершён" in page.text for page in pages) == 2


def test_of_two_sessions_the_one_that_did_not_end_goes_on(site: Site) -> None:
    people = [site.log_in(), site.log_in()]
    [first, _] = site.web.database.query("SELECT provider_session FROM access_providersession")
    site.keycloak.admin("DELETE", f"/staff/sessions/{first['provider_session']}")
    until(lambda: "ended 1 sessions, 1 are to be confirmed" in site.web.said(), site.web.said, 10)
    pages = [each.get(f"{site.web.url}/admin/") for each in people]
    assert sorted("/admin/login/" in page.url for page in pages) == [False, True]


def test_a_program_is_named_by_its_client_id(site: Site) -> None:
    token = site.keycloak.program_token()
    until(lambda: site.ask(token).status_code == 200, site.web.said, 30)
    journal = site.web.database.query(
        "SELECT DISTINCT login, actor FROM access_journal WHERE outcome = 'shown'"
        " AND action = 'search'"
    )
    assert [tuple(each.values()) for each in journal] == [("audit-system", "service")]


def test_tokens_of_keycloak_that_are_for_something_else(site: Site) -> None:
    """No scope; a person's access token, whose audience is `account`; an ID token."""
    poor = site.ask(site.keycloak.program_token("openid"))
    assert poor.status_code == 401  # in Keycloak the scope brings the audience
    assert 'error="invalid_token"' in poor.headers["WWW-Authenticate"]
    given = site.keycloak.token("staff", "annals", grant_type="password", username="m.petrov",
        password=PASSWORD, client_secret=SECRET, scope="openid")  # fmt: skip
    for kind in ("access_token", "id_token", "refresh_token"):
        answer = site.ask(given[kind])
        assert answer.status_code == 401, kind
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"], kind
