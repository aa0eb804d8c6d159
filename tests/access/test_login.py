"""Logins with two real providers at once, at a production web process."""

import html
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from annals.embedded.postgres import EmbeddedPostgres
from tests.access.real_provider import ProviderUser, RealProvider
from tests.access.web import ProductionWeb, age_sessions, is_logged_in
from tests.consuming import wait_until
from tests.processes import create_own_database

ROLES = {"annals-support": "support", "annals-admins": "admin", "annals-ops": "ops"}

pytestmark = pytest.mark.system


class TwoProviderSite:
    """A web server of Annals, and two identity providers at which its users log in."""

    def __init__(self, web: ProductionWeb, bank: RealProvider, keycloak: RealProvider) -> None:
        self.web, self.bank, self.keycloak = web, bank, keycloak


@pytest.fixture(scope="module")
def running_site(server: EmbeddedPostgres) -> Iterator[TwoProviderSite]:
    """Start a web server of Annals and two identity providers once for this module."""
    with tempfile.TemporaryDirectory(prefix="annals-login-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(create_own_database(server))
        web = ProductionWeb(
            database, folder, ANNALS_SESSION_RENEW_MINUTES="1", ANNALS_JOURNAL_LOG="true"
        )
        bank = stack.enter_context(RealProvider("bank", folder, web.url))
        keycloak = stack.enter_context(RealProvider("keycloak", folder, web.url))
        web.start([bank.make_declaration(ROLES), keycloak.make_declaration(ROLES)])
        stack.callback(web.stop)
        yield TwoProviderSite(web, bank, keycloak)


@pytest.fixture
def site(running_site: TwoProviderSite) -> TwoProviderSite:
    for provider in (running_site.bank, running_site.keycloak):
        provider.write_account(
            "1", preferred_username="m.petrov", name="Петров Михаил", groups=["annals-support"]
        )
        provider.write_account("2", preferred_username="boss", groups=["annals-admins"])
        provider.write_account("3", preferred_username="stranger", groups=["other"])
    running_site.web.remove_users()
    return running_site


def test_equal_account_names_at_two_providers_become_two_logins(site: TwoProviderSite) -> None:
    offered = requests.get(f"{site.web.url}/admin/login/?next=/admin/", timeout=120).text
    for provider in (site.bank, site.keycloak):
        assert f"Provider {provider.name}" in offered
        assert f"/oidc/{provider.name}/login/?next=%2Fadmin%2F" in offered
        person = ProviderUser()
        page = person.log_in(site.web.url, provider, "1")
        assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
        assert "Петров Михаил" in page.text
    assert site.web.list_users() == {
        "m.petrov@bank": (False, ["support"]),
        "m.petrov@keycloak": (False, ["support"]),
    }
    [row] = site.web.database.query("SELECT login, full_name, kind FROM history_person")
    assert tuple(row.values()) == ("m.petrov", "Петров Михаил", "person")


def test_roles_follow_claims(site: TwoProviderSite) -> None:
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "2")
    assert site.web.list_users() == {"boss@bank": (False, ["admin"])}
    site.bank.write_account("2", preferred_username="boss", groups=["annals-ops"])
    ProviderUser().log_in(site.web.url, site.bank, "2")
    assert site.web.list_users() == {"boss@bank": (False, ["ops"])}
    site.bank.write_account("2", preferred_username="boss", groups=[])
    page = ProviderUser().log_in(site.web.url, site.bank, "2")
    assert page.status_code == 403
    assert site.web.list_users() == {"boss@bank": (False, [])}
    assert not is_logged_in(person, site.web)
    assert [(row["login"], row["query"]) for row in site.web.list_entries()] == [
        ("boss@bank", "roles: none -> admin"),
        ("boss@bank", "roles: admin -> ops"),
        ("boss@bank", "roles: ops -> none"),
    ]


def test_role_missing_in_new_claims_is_removed_even_when_journal_fails(
    site: TwoProviderSite,
) -> None:
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "2")
    site.bank.write_account("2", preferred_username="boss", groups=["annals-ops"])
    site.web.database.execute("ALTER TABLE access_journal RENAME TO away")
    try:
        ProviderUser().log_in(site.web.url, site.bank, "2")
    finally:
        site.web.database.execute("ALTER TABLE away RENAME TO access_journal")
    assert site.web.list_users() == {"boss@bank": (False, [])}  # a new login needs a journal entry
    assert not is_logged_in(person, site.web)


def test_journal_entries_are_also_written_to_standard_output(site: TwoProviderSite) -> None:
    """The owner of the tables can change the journal, but not what was written to standard
    output."""
    before = len(site.web.output.read_text().splitlines())
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "1")
    person.get(f"{site.web.url}/admin/history/product-instance/A1/?a=%0A")
    lines = [json.loads(line) for line in site.web.output.read_text().splitlines()[before:]]
    rows = site.web.list_entries()
    assert [row["query"] for row in rows][1:] == ["/admin/history/product-instance/A1/"]
    assert [{name: line[name] for name in rows[0]} for line in lines] == rows


def test_person_marked_as_superuser_in_database_is_refused(site: TwoProviderSite) -> None:
    """A web process cannot remove the superuser flag, and no claim can set the superuser flag."""
    ProviderUser().log_in(site.web.url, site.bank, "1")
    site.web.database.execute("UPDATE auth_user SET is_superuser = true")
    page = ProviderUser().log_in(site.web.url, site.bank, "1")
    assert page.status_code == 403
    assert "is a superuser in auth_user" in site.web.log.read_text()


def test_login_is_refused_when_person_has_no_role(site: TwoProviderSite) -> None:
    person = ProviderUser()
    page = person.log_in(site.web.url, site.bank, "3")
    assert page.status_code == 403
    assert "the administrator" in page.text
    assert site.web.list_users() == {}
    assert not is_logged_in(person, site.web)


def test_session_ends_when_person_logs_out_at_provider(site: TwoProviderSite) -> None:
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "1")
    other_person = ProviderUser()
    other_person.log_in(site.web.url, site.keycloak, "1")
    assert is_logged_in(person, site.web)
    page = person.get(f"{site.bank.url}/session/end")
    secret = page.text.split('name="xsrf" value="')[1].split('"')[0]
    person.http.post(
        f"{site.bank.url}/session/end/confirm", data={"xsrf": secret, "logout": "yes"}, timeout=20
    )
    wait_until(lambda: not is_logged_in(person, site.web), site.web.read_log, 120)
    assert is_logged_in(other_person, site.web)


def test_authorization_code_of_one_provider_is_refused_at_another(site: TwoProviderSite) -> None:
    person = ProviderUser()
    redirect = person.http.get(
        f"{site.web.url}/oidc/bank/login/?next=/admin/", allow_redirects=False, timeout=10
    )
    state = redirect.headers["Location"].split("state=")[1].split("&")[0]
    page = person.get(f"{site.web.url}/oidc/keycloak/callback/?code=x&state={state}")
    assert page.status_code == 403
    assert not is_logged_in(person, site.web)


def test_each_concurrent_login_of_a_browser_returns_to_its_requested_page(
    site: TwoProviderSite,
) -> None:
    person = ProviderUser()
    first = person.get(f"{site.web.url}/oidc/bank/login/?next=/admin/completeness/")
    person.log_in(site.web.url, site.keycloak, "1")
    page = person.continue_login(first, site.bank, "1")
    assert page.url == f"{site.web.url}/admin/completeness/"


def test_page_after_logout_offers_to_end_the_session_at_the_provider(site: TwoProviderSite) -> None:
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "1")
    page = person.log_out(site.web.url)
    assert not is_logged_in(person, site.web)
    assert "Provider bank" in page.text
    assert f'href="{site.bank.url}/session/end?client_id=annals"' in page.text
    ended = person.get(f"{site.bank.url}/session/end?client_id=annals")
    secret = ended.text.split('name="xsrf" value="')[1].split('"')[0]
    person.http.post(
        f"{site.bank.url}/session/end/confirm", data={"xsrf": secret, "logout": "yes"}, timeout=20
    )
    again = person.get(f"{site.web.url}/oidc/bank/login/?next=/admin/")
    assert again.url.startswith(site.bank.url)  # the provider asks for the password again


def test_browser_can_begin_many_logins(site: TwoProviderSite) -> None:
    person = ProviderUser()
    for number in range(12):
        person.http.get(
            f"{site.web.url}/oidc/bank/login/?next=/admin/history/?q={'x' * 400 * number}",
            allow_redirects=False,
            timeout=120,
        )
        (cookie,) = [cookie for cookie in person.http.cookies if cookie.name == "annals_login"]
        assert len(f"{cookie.name}{cookie.value}") < 4000
        assert (cookie.path, cookie.has_nonstandard_attr("HttpOnly")) == ("/oidc/", True)
    assert person.log_in(site.web.url, site.bank, "1").url == f"{site.web.url}/admin/"
    assert "annals_login" in person.http.cookies  # cookies of the logins that other tabs have begun


@pytest.mark.parametrize("target", ["//evil.example", "javascript:alert(1)"])
def test_login_redirects_only_to_addresses_of_annals(target: str, site: TwoProviderSite) -> None:
    person = ProviderUser()
    person.get(f"{site.web.url}/oidc/bank/login/?next={target}")
    page = person.log_in(site.web.url, site.bank, "1")
    assert page.url.startswith(site.web.url)


def test_login_page_names_provider_that_is_down_while_another_provider_works(
    site: TwoProviderSite,
) -> None:
    site.bank.stop()
    began = time.monotonic()
    page = ProviderUser().get(f"{site.web.url}/oidc/bank/login/?next=/admin/")
    assert page.status_code == 503
    assert "Provider bank" in page.text
    assert time.monotonic() - began < 15  # only shows that the call has a time limit
    person = ProviderUser()
    person.log_in(site.web.url, site.keycloak, "1")
    assert is_logged_in(person, site.web)
    site.bank.start()
    person = ProviderUser()
    # The provider has new keys, and Annals fetches them.
    person.log_in(site.web.url, site.bank, "1")
    assert is_logged_in(person, site.web)


def test_break_glass_link_opens_in_web_process_that_has_only_its_database_rights(
    site: TwoProviderSite,
) -> None:
    """The command that makes the link has neither the secret key nor the ANNALS_HOME of the web."""
    elsewhere = {"ANNALS_HOME": str(site.web.folder / "elsewhere"), "ANNALS_SECRET_KEY": ""}
    printed = site.web.run_command("breakglass", "breakglass", **elsewhere)
    assert not (site.web.folder / "elsewhere").exists()
    address = f"{site.web.url}{urlsplit(printed).path}"
    person = ProviderUser()
    field = person.get(address).text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    person.http.post(address, data={"csrfmiddlewaretoken": field}, timeout=120)
    assert is_logged_in(person, site.web)
    assert "BREAK GLASS: 'breakglass' logged in" in site.web.read_log()


def test_session_continues_only_while_provider_confirms_the_person(site: TwoProviderSite) -> None:
    """`age_sessions` makes the provider's last confirmation older."""
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "1")
    age_sessions(site.web, 120)
    # Redirected to the provider and back, without a form.
    page = person.get(f"{site.web.url}/admin/")
    assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
    assert any("/oidc/bank/callback/" in step.url for step in page.history)
    site.bank.write_account("1", preferred_username="m.petrov", groups=[])
    age_sessions(site.web, 120)
    assert person.get(f"{site.web.url}/admin/").status_code == 403
    assert not is_logged_in(person, site.web)


def test_api_refuses_session_until_provider_confirms_it(site: TwoProviderSite) -> None:
    """A person who has lost the role must not reach the API with an old session."""
    person = ProviderUser()
    person.log_in(site.web.url, site.bank, "1")
    search = f"{site.web.url}/api/v1/search?q=A1"
    assert person.get(search).status_code == 200
    age_sessions(site.web, 90)
    assert person.get(search).status_code == 200
    age_sessions(site.web, 60)
    assert person.get(search).status_code == 401
    person.get(f"{site.web.url}/admin/")
    assert person.get(search).status_code == 200


def test_session_ends_when_idle_or_old(site: TwoProviderSite) -> None:
    """The login page says that the session ended. The login returns to the page where the person
    was."""
    for name, seconds in (("annals_seen", 3_601), ("annals_began", 36_001)):
        person = ProviderUser()
        person.log_in(site.web.url, site.bank, "1")
        age_sessions(site.web, seconds, name)
        page = person.get(f"{site.web.url}/admin/completeness/")
        assert urlsplit(page.url).path == "/admin/login/"
        assert "Your session has ended" in page.text
        [login_path] = re.findall(r'href="(/oidc/bank/login/[^"]*)"', page.text)
        back = person.get(f"{site.web.url}{html.unescape(login_path)}")
        assert back.url == f"{site.web.url}/admin/completeness/"


@pytest.mark.parametrize("charset", ["zlib", "idna", "punycode", "undefined", "utf-7"])
def test_request_is_decoded_as_utf_8_whatever_charset_its_header_names(
    site: TwoProviderSite, charset: str
) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    for address in ("/admin/login/?next=%2B2AA-", "/api/v1/search?q=%41", "/healthz?q=%41"):
        url = f"{site.web.url}{address}"
        plain, odd = (requests.get(url, headers=item, timeout=120) for item in ({}, headers))
        assert odd.status_code == plain.status_code < 500
    assert "UnicodeError" not in site.web.read_log()
    assert "LookupError" not in site.web.read_log()
