"""People and programs of a real Keycloak log in at a production web process."""

import json
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

from annals.access.roles import ROLES as ALL_ROLES
from annals.embedded.postgres import EmbeddedPostgres
from history.common import private_files
from tests.access.keycloak import PASSWORD, Keycloak
from tests.access.real_provider import SECRET, ProviderUser
from tests.access.web import ProductionWeb, is_logged_in
from tests.consuming import wait_until
from tests.processes import create_own_database

ROLES = {"/annals/support": "support", "/annals/admins": "admin"}

pytestmark = pytest.mark.system


DOCKER = Path(__file__).resolve().parents[2] / "docker" / "keycloak"


class ComposeRealm:
    """The Keycloak realm of docker/compose.yaml, created in the test's Keycloak.

    The addresses in the realm are replaced by addresses of the test.
    """

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
        keycloak.call_admin_api("POST", "", json=json.loads(text))

    def make_declaration(self, folder: Path) -> dict[str, object]:
        """Return the provider's entry of docker/keycloak/providers.toml for the test's Keycloak.

        The name, the address of the issuer and the file of the secret are replaced.
        """
        [provider] = tomllib.loads((DOCKER / "providers.toml").read_text())["provider"]
        issuer = provider["issuer"].replace("http://localhost:8180", self.url)
        secret = private_files.write_private_file(folder / "compose.secret", SECRET)
        return {**provider, "name": self.name, "issuer": issuer, "client_secret_file": str(secret)}

    def fill_in_form(self, page: str, login: str) -> dict[str, str]:
        """Return the fields of Keycloak's login form. The password of a demo login is its name."""
        del page
        return {"username": login, "password": login}


class KeycloakSite:
    """A web server of Annals, and the Keycloak at which its users log in."""

    def __init__(self, web: ProductionWeb, keycloak: Keycloak, realm: ComposeRealm) -> None:
        self.web, self.keycloak, self.realm = web, keycloak, realm

    def log_in(self, login: str = "m.petrov") -> ProviderUser:
        """Log a person in through Keycloak's form, and return the person."""
        person = ProviderUser()
        person.log_in(self.web.url, self.keycloak, login)
        return person

    def search_with_token(self, token: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"{self.web.url}/api/v1/search?q=A1", headers=headers, timeout=120)


@pytest.fixture(scope="module")
def running_site(server: EmbeddedPostgres) -> Iterator[KeycloakSite]:
    """Start Keycloak and a web server of Annals once for all tests of this module."""
    with tempfile.TemporaryDirectory(prefix="annals-keycloak-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(create_own_database(server))
        web = ProductionWeb(database, folder)
        keycloak = stack.enter_context(Keycloak("keycloak", folder, web.url))
        realm = ComposeRealm(keycloak, web.url)
        web.start([keycloak.make_declaration(ROLES), realm.make_declaration(folder)])
        stack.callback(web.stop)
        web.run_command("partitions", "maintain")  # creates today's partition of the journal
        yield KeycloakSite(web, keycloak, realm)


@pytest.fixture
def site(running_site: KeycloakSite) -> KeycloakSite:
    running_site.keycloak.set_groups("m.petrov", "support")
    running_site.keycloak.set_groups("boss", "admins")
    running_site.web.remove_users()
    return running_site


def test_person_from_keycloak_gets_full_name_and_the_role_of_their_group(
    site: KeycloakSite,
) -> None:
    person = site.log_in()
    assert (person.page.status_code, person.page.url) == (200, f"{site.web.url}/admin/")
    assert "Михаил Петров" in person.page.text
    site.log_in("boss")
    assert site.web.list_users() == {
        "m.petrov@keycloak": (False, ["support"]),
        "boss@keycloak": (False, ["admin"]),
    }
    people = site.web.database.query("SELECT login, full_name FROM history_person ORDER BY login")
    assert [tuple(row.values()) for row in people] == [
        ("boss", "Анна Орлова"),
        ("m.petrov", "Михаил Петров"),
    ]


def test_each_login_of_compose_demo_gets_the_role_it_is_named_after(site: KeycloakSite) -> None:
    for role in ALL_ROLES:
        person = ProviderUser()
        person.log_in(site.web.url, site.realm, role)
        assert is_logged_in(person, site.web), f"{role}: {person.page.url}"
    assert site.web.list_users() == {f"{role}@compose": (False, [role]) for role in ALL_ROLES}


def test_all_sessions_of_person_end_when_keycloak_administrator_logs_them_out(
    site: KeycloakSite,
) -> None:
    """Keycloak names one session to Annals. Annals then asks Keycloak about the person's other
    sessions."""
    end_all = f"/staff/users/{site.keycloak.find_user_id('m.petrov')}/logout"
    site.keycloak.call_admin_api("POST", end_all)  # sessions of earlier tests
    sessions, other_session = [site.log_in(), site.log_in(), site.log_in()], site.log_in("boss")
    site.keycloak.call_admin_api("POST", end_all)
    wait_until(
        lambda: not any(is_logged_in(session, site.web) for session in sessions),
        site.web.read_log,
        10,
    )
    assert is_logged_in(other_session, site.web)
    pages = [row.get(f"{site.web.url}/admin/completeness/") for row in sessions]
    for page in pages:
        assert "/admin/login/" in page.url
        assert "next=%2Fadmin%2Fcompleteness%2F" in page.text
    # Annals deletes the session that Keycloak named, so it has no reason left to show.
    assert sum("Your session has ended" in page.text for page in pages) == 2


def test_session_continues_when_keycloak_ends_another_session_of_same_person(
    site: KeycloakSite,
) -> None:
    people = [site.log_in(), site.log_in()]
    [first, _] = site.web.database.query("SELECT provider_session FROM access_providersession")
    site.keycloak.call_admin_api("DELETE", f"/staff/sessions/{first['provider_session']}")
    wait_until(
        lambda: "ended 1 sessions, 1 others must be confirmed" in site.web.read_log(),
        site.web.read_log,
        10,
    )
    pages = [row.get(f"{site.web.url}/admin/") for row in people]
    assert sorted("/admin/login/" in page.url for page in pages) == [False, True]


def test_journal_names_keycloak_program_by_its_client_id(site: KeycloakSite) -> None:
    token = site.keycloak.request_program_token()
    wait_until(lambda: site.search_with_token(token).status_code == 200, site.web.read_log, 120)
    journal = site.web.database.query(
        "SELECT DISTINCT login, actor FROM access_journal WHERE outcome = 'shown'"
        " AND action = 'search'"
    )
    assert [tuple(row.values()) for row in journal] == [("audit-system", "service")]


def test_api_refuses_keycloak_tokens_that_were_not_issued_for_the_api(site: KeycloakSite) -> None:
    """A token without the scope, and the access, ID and refresh tokens of a person."""
    poor = site.search_with_token(site.keycloak.request_program_token("openid"))
    assert poor.status_code == 401  # Keycloak adds the audience to a token only with this scope
    assert 'error="invalid_token"' in poor.headers["WWW-Authenticate"]
    tokens = site.keycloak.get_token(
        "staff",
        "annals",
        grant_type="password",
        username="m.petrov",
        password=PASSWORD,
        client_secret=SECRET,
        scope="openid",
    )
    for kind in ("access_token", "id_token", "refresh_token"):
        answer = site.search_with_token(tokens[kind])
        assert answer.status_code == 401, kind
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"], kind
