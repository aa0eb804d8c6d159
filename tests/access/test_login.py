"""Logging in with two real providers at once, against a production web process."""

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

from annals.embedded.postgres import Postgres
from tests.access.real_provider import Person, RealProvider
from tests.access.web import Web, age, inside
from tests.consuming import until
from tests.processes import own_database

ROLES = {"annals-support": "support", "annals-admins": "admin", "annals-ops": "ops"}

pytestmark = pytest.mark.system


class Site:
    """Annals and its two providers."""

    def __init__(self, web: Web, bank: RealProvider, keycloak: RealProvider) -> None:
        self.web, self.bank, self.keycloak = web, bank, keycloak


@pytest.fixture(scope="module")
def running(server: Postgres) -> Iterator[Site]:
    """One web and two providers for all tests here; each test begins without users."""
    with tempfile.TemporaryDirectory(prefix="annals-login-") as name, ExitStack() as stack:
        folder = Path(name)
        database = stack.enter_context(own_database(server))
        web = Web(database, folder, ANNALS_SESSION_RENEW_MINUTES="1", ANNALS_JOURNAL_LOG="true")
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
    running.web.forget()
    return running


def test_both_providers_log_in_the_same_name_as_two_people(site: Site) -> None:
    offered = requests.get(f"{site.web.url}/admin/login/?next=/admin/", timeout=10).text
    for provider in (site.bank, site.keycloak):
        assert f"Provider {provider.name}" in offered
        assert f"/oidc/{provider.name}/login/?next=%2Fadmin%2F" in offered
        person = Person()
        page = person.log_in(site.web.url, provider, "1")
        assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
        assert "Петров Михаил" in page.text
    assert site.web.users() == {
        "m.petrov@bank": (False, ["support"]),
        "m.petrov@keycloak": (False, ["support"]),
    }
    [named] = site.web.database.query("SELECT login, full_name, kind FROM history_person")
    assert tuple(named.values()) == ("m.petrov", "Петров Михаил", "person")


def test_roles_come_and_go_with_the_claim(site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "2")
    assert site.web.users() == {"boss@bank": (False, ["admin"])}
    site.bank.account("2", preferred_username="boss", groups=["annals-ops"])
    Person().log_in(site.web.url, site.bank, "2")
    assert site.web.users() == {"boss@bank": (False, ["ops"])}
    site.bank.account("2", preferred_username="boss", groups=[])
    page = Person().log_in(site.web.url, site.bank, "2")
    assert page.status_code == 403
    assert site.web.users() == {"boss@bank": (False, [])}
    assert not inside(person, site.web)
    assert [(row["login"], row["query"]) for row in site.web.journal()] == [
        ("boss@bank", "roles: none -> admin"),
        ("boss@bank", "roles: admin -> ops"),
        ("boss@bank", "roles: ops -> none"),
    ]


def test_a_role_goes_also_while_the_journal_cannot_be_written(site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "2")
    site.bank.account("2", preferred_username="boss", groups=["annals-ops"])
    site.web.database.execute("ALTER TABLE access_journal RENAME TO away")
    try:
        Person().log_in(site.web.url, site.bank, "2")
    finally:
        site.web.database.execute("ALTER TABLE away RENAME TO access_journal")
    assert site.web.users() == {"boss@bank": (False, [])}  # the new one needs a row
    assert not inside(person, site.web)


def test_rows_of_the_journal_can_go_to_a_siem_as_they_are_written(site: Site) -> None:
    """Where the owner of the tables cannot change them until they are sealed."""
    before = len(site.web.output.read_text().splitlines())
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    person.get(f"{site.web.url}/admin/history/product-instance/A1/?a=%0A")
    lines = [json.loads(line) for line in site.web.output.read_text().splitlines()[before:]]
    rows = site.web.journal()
    assert [row["query"] for row in rows][1:] == ["/admin/history/product-instance/A1/"]
    assert [{name: line[name] for name in rows[0]} for line in lines] == rows


def test_who_was_made_a_superuser_in_the_database_is_refused(site: Site) -> None:
    """The web could not take the mark away, and no claim gives it."""
    Person().log_in(site.web.url, site.bank, "1")
    site.web.database.execute("UPDATE auth_user SET is_superuser = true")
    page = Person().log_in(site.web.url, site.bank, "1")
    assert page.status_code == 403
    assert "is a superuser in auth_user" in site.web.log.read_text()


def test_a_person_without_a_role_leaves_no_login(site: Site) -> None:
    person = Person()
    page = person.log_in(site.web.url, site.bank, "3")
    assert page.status_code == 403
    assert "администратора" in page.text
    assert site.web.users() == {}
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
    until(lambda: not inside(person, site.web), site.web.said, 10)
    assert inside(other, site.web)


def test_a_code_of_one_provider_at_the_address_of_the_other(site: Site) -> None:
    person = Person()
    asked = person.http.get(
        f"{site.web.url}/oidc/bank/login/?next=/admin/", allow_redirects=False, timeout=10
    )
    state = asked.headers["Location"].split("state=")[1].split("&")[0]
    page = person.get(f"{site.web.url}/oidc/keycloak/callback/?code=x&state={state}")
    assert page.status_code == 403
    assert not inside(person, site.web)


def test_two_logins_at_once_lead_each_to_its_own_page(site: Site) -> None:
    person = Person()
    first = person.get(f"{site.web.url}/oidc/bank/login/?next=/admin/completeness/")
    person.log_in(site.web.url, site.keycloak, "1")
    page = person.go_on(first, site.bank, "1")
    assert page.url == f"{site.web.url}/admin/completeness/"


def test_the_page_after_a_logout_says_where_the_person_is_still_logged_in(site: Site) -> None:
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    page = person.log_out(site.web.url)
    assert not inside(person, site.web)
    assert "Provider bank" in page.text
    assert f'href="{site.bank.url}/session/end?client_id=annals"' in page.text
    ended = person.get(f"{site.bank.url}/session/end?client_id=annals")
    secret = ended.text.split('name="xsrf" value="')[1].split('"')[0]
    person.http.post(
        f"{site.bank.url}/session/end/confirm", data={"xsrf": secret, "logout": "yes"}, timeout=20
    )
    again = person.get(f"{site.web.url}/oidc/bank/login/?next=/admin/")
    assert again.url.startswith(site.bank.url)  # it asks for a password again


def test_many_logins_begun_in_one_browser(site: Site) -> None:
    person = Person()
    for number in range(12):
        person.http.get(
            f"{site.web.url}/oidc/bank/login/?next=/admin/history/?q={'x' * 400 * number}",
            allow_redirects=False,
            timeout=10,
        )
        (cookie,) = [each for each in person.http.cookies if each.name == "annals_login"]
        assert len(f"{cookie.name}{cookie.value}") < 4000
        assert (cookie.path, cookie.has_nonstandard_attr("HttpOnly")) == ("/oidc/", True)
    assert person.log_in(site.web.url, site.bank, "1").url == f"{site.web.url}/admin/"
    assert "annals_login" in person.http.cookies  # the logins that other tabs have begun


@pytest.mark.parametrize("target", ["//evil.example", "javascript:alert(1)"])
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


def test_a_break_glass_link_logs_in_with_the_rights_of_the_web(site: Site) -> None:
    """Also a link of a command that has neither the key of the web nor its ANNALS_HOME."""
    elsewhere = {"ANNALS_HOME": str(site.web.folder / "elsewhere"), "ANNALS_SECRET_KEY": ""}
    printed = site.web.manage("breakglass", "breakglass", **elsewhere)
    assert not (site.web.folder / "elsewhere").exists()
    address = f"{site.web.url}{urlsplit(printed).path}"
    person = Person()
    field = person.get(address).text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    person.http.post(address, data={"csrfmiddlewaretoken": field}, timeout=20)
    assert inside(person, site.web)
    assert "BREAK GLASS: 'breakglass' logged in" in site.web.said()


def test_a_session_is_confirmed_by_the_provider(site: Site) -> None:
    """The time since the provider was asked is set back in the stored session."""
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    age(site.web, 120)
    page = person.get(f"{site.web.url}/admin/")  # past the provider and back, unseen
    assert (page.status_code, page.url) == (200, f"{site.web.url}/admin/")
    assert any("/oidc/bank/callback/" in step.url for step in page.history)
    site.bank.account("1", preferred_username="m.petrov", groups=[])
    age(site.web, 120)
    assert person.get(f"{site.web.url}/admin/").status_code == 403
    assert not inside(person, site.web)


def test_the_api_too_waits_for_the_provider_to_confirm_a_session(site: Site) -> None:
    """A person without a role any more opens no page, and keeps the cookie."""
    person = Person()
    person.log_in(site.web.url, site.bank, "1")
    search = f"{site.web.url}/api/v1/search?q=A1"
    assert person.get(search).status_code == 200
    age(site.web, 90)
    assert person.get(search).status_code == 200
    age(site.web, 60)
    assert person.get(search).status_code == 401
    person.get(f"{site.web.url}/admin/")
    assert person.get(search).status_code == 200


def test_a_session_ends_when_it_is_idle_or_old(site: Site) -> None:
    """The page says so, and the login leads back to where the person was."""
    for name, seconds in (("annals_seen", 3_601), ("annals_began", 36_001)):
        person = Person()
        person.log_in(site.web.url, site.bank, "1")
        age(site.web, seconds, name)
        page = person.get(f"{site.web.url}/admin/completeness/")
        assert urlsplit(page.url).path == "/admin/login/"
        assert "Сеанс завершён" in page.text
        [way] = re.findall(r'href="(/oidc/bank/login/[^"]*)"', page.text)
        back = person.get(f"{site.web.url}{html.unescape(way)}")
        assert back.url == f"{site.web.url}/admin/completeness/"


@pytest.mark.parametrize("charset", ["zlib", "idna", "punycode", "undefined", "utf-7"])
def test_texts_of_a_request_are_utf_8_whatever_it_says(site: Site, charset: str) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}
    for address in ("/admin/login/?next=%2B2AA-", "/api/v1/search?q=%41", "/healthz?q=%41"):
        url = f"{site.web.url}{address}"
        plain, odd = (requests.get(url, headers=each, timeout=10) for each in ({}, headers))
        assert odd.status_code == plain.status_code < 500
    assert "UnicodeError" not in site.web.said()
    assert "LookupError" not in site.web.said()
