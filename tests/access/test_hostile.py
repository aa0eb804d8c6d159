"""Hostile tokens where they arrive: at the API, and at the end of a login. What the answer says is
right, and nothing of the token or of the history is in it. test_tokens.py tries all of them."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from annals.access.models import JournalEntry
from annals.access.oidc.discovery import discoveries
from annals.access.oidc.providers import Provider
from tests.access.hostile import BEARER, HOSTILE, IDENTITY, ONE_OF_EACH
from tests.access.issuer import CLIENT, OTHER_RSA, PROGRAM, SCOPE, Issuer, declare, jwk
from tests.access.test_masking_properties import mark
from tests.db.store import Store

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "/api/v1/history/product-instance/A1"
REFUSED = re.compile(r'Bearer realm="annals", error="invalid_token", error_description="[^"\\]+\."')
RATE = "rate-of-the-client"

pytestmark = pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_hostile_bearer_token_at_the_api(
    name: str, client: Client, issuer: Issuer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.add("A1", 0, {"rate": RATE}, 0)
    token = (HOSTILE | BEARER)[name][0](issuer)
    with caplog.at_level(logging.DEBUG):
        answer = client.get(ADDRESS, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert REFUSED.fullmatch(answer.headers["WWW-Authenticate"])
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json()["error"]["code"] == "not_authenticated"
    said = answer.content.decode() + str(answer.headers) + caplog.text
    assert not [part for part in telling(token) if part in said]
    assert RATE not in said


@pytest.mark.parametrize("name", [*(each for each in ONE_OF_EACH if each in HOSTILE), *IDENTITY])
def test_a_hostile_id_token_at_the_end_of_a_login(
    name: str, client: Client, issuer: Issuer, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    callback = begun(client, issuer)
    make = HOSTILE[name][0] if name in HOSTILE else IDENTITY[name]
    issuer.id_token = make(issuer)
    with caplog.at_level(logging.INFO):
        page = client.get(callback)
    assert page.status_code == 403
    assert page.headers["Cache-Control"].endswith("no-store")
    assert not User.objects.filter(identity__isnull=False).exists()
    assert client.get("/admin/").status_code == 302
    said = page.content.decode() + caplog.text
    assert not [part for part in telling(issuer.id_token) if part in said]
    assert client.get(callback).status_code == 403  # a state serves once


def test_a_login_belongs_to_the_browser_that_began_it(
    client: Client, issuer: Issuer, db: None
) -> None:
    """It leaves no row before its end, cannot be forged, and serves once."""
    callback, other = begun(client, issuer), Client()
    issuer.id_token = issuer.token()
    assert other.get(callback).status_code == 403
    cookie = client.cookies["annals_login"].value
    other.cookies["annals_login"] = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
    assert "истекло" in other.get(callback).content.decode()
    assert not Session.objects.exists()
    assert [client.get(callback).status_code for _ in range(2)] == [302, 403]


def test_a_bearer_token_elsewhere_than_in_its_header(
    client: Client, issuer: Issuer, store: Store
) -> None:
    """In the query, in a cookie, in the form, with another scheme: it counts for nothing."""
    store.add("A1", 0, {"rate": RATE}, 0)
    token = issuer.token()
    client.cookies["access_token"] = token
    for parameters, header in (
        ({"access_token": token}, {}),
        ({}, {"Authorization": f"Token {token}"}),
        ({}, {"Authorization": token}),
        ({}, {"Authorization": f"Bearer,{token}"}),
        ({}, {"X-Authorization": f"Bearer {token}"}),
    ):
        answer = client.get(ADDRESS, parameters, headers=header)
        assert answer.status_code in (400, 401)
        assert RATE not in answer.content.decode()
        assert token not in answer.content.decode()


def test_two_authorization_headers(client: Client, issuer: Issuer, store: Store) -> None:
    """A server joins them with a comma; neither of the two is taken."""
    store.add("A1", 0, {"rate": RATE}, 0)
    good = issuer.token()
    for header in (f"Bearer {good},Bearer {good}", f"Bearer {good}, Basic eDp5"):
        answer = client.get(ADDRESS, headers={"Authorization": header})
        assert answer.status_code == 401
        assert REFUSED.fullmatch(answer.headers["WWW-Authenticate"])


def test_a_token_of_one_issuer_in_the_name_of_another(
    client: Client, issuer: Issuer, settings: Any, store: Store
) -> None:
    """Both are accepted here. The keys of one sign nothing for the other."""
    with Issuer() as other:
        (bank,) = settings.OIDC_PROVIDERS
        second = Provider(name="second", title="Second", issuer=other.url, client_id=CLIENT)
        settings.OIDC_PROVIDERS = (bank, second)
        discoveries.cache_clear()
        other.keys = [jwk(OTHER_RSA, "rsa")]
        answer = client.get(
            ADDRESS, headers={"Authorization": f"Bearer {issuer.token(iss=other.url)}"}
        )
    assert answer.status_code == 401
    assert "signature is wrong" in answer.headers["WWW-Authenticate"]


def test_behind_https_no_other_host_can_begin_a_login_for_somebody(
    client: Client, issuer: Issuer, settings: Any, db: None
) -> None:
    """The name of the cookie makes browsers refuse it from other hosts of the domain."""
    settings.COOKIE_PREFIX = "__Host-"
    settings.SESSION_COOKIE_SECURE = True
    callback = begun(client, issuer)
    issuer.id_token = issuer.token()
    [cookie] = client.cookies.values()
    assert cookie.key == "__Host-annals_login"
    assert (cookie["path"], cookie["secure"], cookie["httponly"]) == ("/", True, True)
    assert not cookie["domain"]
    assert client.get(callback, secure=True).status_code == 302


def test_in_production_the_cookies_are_of_this_host_and_no_password_counts(tmp_path: Path) -> None:
    code = (
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "print(Client().get('/admin/login/', secure=True, HTTP_HOST='localhost').cookies)\n"
        "from django.conf import settings; print(settings.SESSION_COOKIE_NAME)\n"
        "print(settings.AUTHENTICATION_BACKENDS)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ
        | {
            "DJANGO_SETTINGS_MODULE": "annals.settings",
            "ANNALS_DEMO": "",
            "ANNALS_HTTPS": "true",
            "ANNALS_HOME": str(tmp_path),
            "DATABASE_URL": "postgresql:///x",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    cookie, session, backends = done.stdout.splitlines()
    assert cookie.startswith("Set-Cookie: __Host-csrftoken=")
    assert {"Path=/", "Secure"} <= set(cookie.split("; "))
    assert session == "__Host-sessionid"
    assert "ProviderBackend" in backends
    assert "DemoLogins" not in backends


def begun(client: Client, issuer: Issuer) -> str:
    """The address to which the provider sends a login back; its tokens have the login's nonce."""
    asked = client.get("/oidc/bank/login/?next=/admin/")
    query = parse_qs(urlsplit(asked.headers["Location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    issuer.extra = {"nonce": query["nonce"][0], "groups": ["staff"]}
    return f"/oidc/bank/callback/?code=x&state={query['state'][0]}"


def telling(token: str) -> list[str]:
    """The parts of a token that must be nowhere."""
    return [part for part in token.split(".") if len(part) > 10]


@pytest.fixture
def stored(store: Store) -> Store:
    store.add("A1", 0, {"rate": "1"}, 0)
    return store


def ask(client: Client, token: str, address: str = ADDRESS) -> Any:
    return client.get(address, headers={"Authorization": f"Bearer {token}"})


def test_a_good_token_reads(client: Client, issuer: Issuer, stored: Store) -> None:
    for address in (ADDRESS, "/api/v1/search?q=A1", "/api/v1/completeness"):
        assert ask(client, issuer.token(), address).status_code == 200


def test_a_provider_may_name_its_programs_by_their_subject(
    client: Client, issuer: Issuer, stored: Store, settings: Any
) -> None:
    token = issuer.token(client_id=None)
    assert ask(client, token).status_code == 401
    declare(settings, issuer, client_claim="sub", programs=("service-account-audit",))
    assert ask(client, token).status_code == 200


def test_the_log_names_the_program(
    client: Client, issuer: Issuer, stored: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "annals.observe.requests"):
        ask(client, issuer.token())
    assert [record.user for record in caplog.records if hasattr(record, "user")] == ["audit-system"]


def test_a_program_reads_sensitive_fields_only_with_the_scope_for_them(
    client: Client, issuer: Issuer, stored: Store, settings: Any
) -> None:
    mark("/rate")
    try:
        whole = issuer.token(scope=f"{SCOPE} whole-documents")
        assert b'"rate":"masked:' in ask(client, issuer.token()).content
        assert b'"rate":"masked:' in ask(client, whole).content
        declare(settings, issuer, sensitive_scope="whole-documents")
        assert b'"rate": "1"' in ask(client, whole).content
        assert b'"rate":"masked:' in ask(client, issuer.token()).content
    finally:
        mark()


def test_a_token_without_the_scope(client: Client, issuer: Issuer, stored: Store) -> None:
    assert 'Bearer realm="annals"' in client.get(ADDRESS).headers["WWW-Authenticate"]
    answer = ask(client, issuer.token(scope="openid"))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="annals", error="insufficient_scope", scope="{SCOPE}"'
    )


def test_an_issuer_that_is_down(client: Client, issuer: Issuer, stored: Store) -> None:
    issuer.down = True
    answer = ask(client, issuer.token())
    assert answer.status_code == 503
    assert json.loads(answer.content)["error"]["code"] == "unavailable"
    assert answer.headers["Retry-After"] == "5"


def test_a_bearer_token_opens_no_screen(client: Client, issuer: Issuer, stored: Store) -> None:
    answer = ask(client, issuer.token(), "/admin/history/product-instance/A1/")
    assert answer.status_code == 302


def test_a_token_of_another_client_is_no_program(
    client: Client, issuer: Issuer, stored: Store, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A person's token of another application names that client, and a person as its subject."""
    for theirs in (CLIENT, "crm-spa"):
        answer = ask(client, issuer.token(client_id=None, azp=theirs, sub="alice"))
        assert answer.status_code == 401
        assert "is not among the programs" in answer.headers["WWW-Authenticate"]
    assert "client 'crm-spa' is not in `programs` of the provider 'bank'" in caplog.text
    assert not JournalEntry.objects.exists()
    assert ask(client, issuer.token()).status_code == 200
    found = JournalEntry.objects.get()
    assert found.identity == f"{issuer.url}#{PROGRAM} sub=service-account-audit"
    declare(settings, issuer, programs=())
    assert ask(client, issuer.token()).status_code == 401


SEARCH = "/api/v1/search?q=A1"


def queries(client: Client, address: str, **headers: str) -> list[str]:
    """What the database was asked, but for the row of the journal."""
    with CaptureQueriesContext(connection) as seen:
        client.get(address, headers=headers)
    asked = [each["sql"] for each in seen.captured_queries]
    return [each for each in asked if "access_journal" not in each and "SAVEPOINT" not in each]


def test_nothing_is_read_for_who_is_not_known(
    client: Client, issuer: Issuer, stored: Store
) -> None:
    """Each check comes before the ones that cost more."""
    client.get(ADDRESS)  # the first request of a process looks at the migrations
    assert queries(client, ADDRESS) == []
    assert queries(client, ADDRESS, Authorization=f"Bearer {issuer.token(exp=1)}") == []
    assert queries(client, ADDRESS, Authorization=f"Bearer {issuer.token(scope='openid')}") == []


@pytest.mark.parametrize("address", [ADDRESS, SEARCH, "/api/v1/completeness"])
def test_options_for_who_may(address: str, client: Client, issuer: Issuer, stored: Store) -> None:
    assert client.options(address).status_code == 401
    for login, status in (("auditor", 204), ("ops", 204 if "compl" in address else 403)):
        client.force_login(User.objects.get(username=login))
        answer = client.options(address)
        assert answer.status_code == status
        if status == 204:
            assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"
            assert (answer.content, "Content-Type" in answer.headers) == (b"", False)
    assert Client().options("/api/schema/").status_code == 204
    assert Client().options("/api/docs/").headers["Allow"] == "GET, HEAD, OPTIONS"
    client.force_login(User.objects.get(username="auditor"))
    assert client.options("/api/v1/nothing").status_code == 404
    assert not JournalEntry.objects.filter(outcome="shown").exists()
