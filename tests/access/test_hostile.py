"""Hostile tokens in whole requests: at the API, and at the end of a login.

The answer refuses the token, and has nothing of the token or of the history in it. test_tokens.py
tries all hostile tokens.
"""

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
from annals.access.oidc.discovery import get_discoveries
from annals.access.oidc.providers import Provider
from tests.access.hostile import BEARER, HOSTILE, IDENTITY, ONE_OF_EACH
from tests.access.issuer import (
    CLIENT,
    OTHER_RSA,
    PROGRAM,
    SCOPE,
    LocalIssuer,
    declare_provider,
    make_jwk,
)
from tests.access.test_masking_properties import set_marks
from tests.db.store import Store

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "/api/v1/history/product-instance/A1"
REFUSED = re.compile(r'Bearer realm="annals", error="invalid_token", error_description="[^"\\]+\."')
RATE = "rate-of-the-client"

pytestmark = pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_api_refuses_hostile_bearer_token(
    name: str, client: Client, issuer: LocalIssuer, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.add("A1", 0, {"rate": RATE}, 0)
    token = (HOSTILE | BEARER)[name][0](issuer)
    with caplog.at_level(logging.DEBUG):
        answer = client.get(ADDRESS, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
    assert REFUSED.fullmatch(answer.headers["WWW-Authenticate"])
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.json()["error"]["code"] == "not_authenticated"
    text = answer.content.decode() + str(answer.headers) + caplog.text
    assert not [part for part in list_secret_parts(token) if part in text]
    assert RATE not in text


@pytest.mark.parametrize("name", [*(part for part in ONE_OF_EACH if part in HOSTILE), *IDENTITY])
def test_login_with_hostile_id_token_is_refused(
    name: str, client: Client, issuer: LocalIssuer, db: None, caplog: pytest.LogCaptureFixture
) -> None:
    callback = begin_login(client, issuer)
    make = HOSTILE[name][0] if name in HOSTILE else IDENTITY[name]
    issuer.id_token = make(issuer)
    with caplog.at_level(logging.INFO):
        page = client.get(callback)
    assert page.status_code == 403
    assert page.headers["Cache-Control"].endswith("no-store")
    assert not User.objects.filter(identity__isnull=False).exists()
    assert client.get("/admin/").status_code == 302
    text = page.content.decode() + caplog.text
    assert not [part for part in list_secret_parts(issuer.id_token) if part in text]
    assert client.get(callback).status_code == 403  # a login state can be used once


def test_login_can_be_completed_only_in_browser_that_began_it(
    client: Client, issuer: LocalIssuer, db: None
) -> None:
    """An unfinished login stores no session. Its cookie cannot be forged, and works only once."""
    callback, other_client = begin_login(client, issuer), Client()
    issuer.id_token = issuer.make_token()
    assert other_client.get(callback).status_code == 403
    cookie = client.cookies["annals_login"].value
    other_client.cookies["annals_login"] = cookie[:-1] + ("A" if cookie[-1] != "A" else "B")
    assert "has expired" in other_client.get(callback).content.decode()
    assert not Session.objects.exists()
    assert [client.get(callback).status_code for _ in range(2)] == [302, 403]


def test_bearer_token_is_ignored_outside_the_authorization_header(
    client: Client, issuer: LocalIssuer, store: Store
) -> None:
    """Annals does not read a token from the query, a cookie, another header, or another scheme."""
    store.add("A1", 0, {"rate": RATE}, 0)
    token = issuer.make_token()
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


def test_request_with_two_authorization_headers_is_refused(
    client: Client, issuer: LocalIssuer, store: Store
) -> None:
    """The web server joins the two headers with a comma. Annals uses neither of them."""
    store.add("A1", 0, {"rate": RATE}, 0)
    good = issuer.make_token()
    for header in (f"Bearer {good},Bearer {good}", f"Bearer {good}, Basic eDp5"):
        answer = client.get(ADDRESS, headers={"Authorization": header})
        assert answer.status_code == 401
        assert REFUSED.fullmatch(answer.headers["WWW-Authenticate"])


def test_token_is_refused_when_signed_with_key_of_another_issuer(
    client: Client, issuer: LocalIssuer, settings: Any, store: Store
) -> None:
    """Annals accepts tokens of two issuers. The key of the first issuer cannot sign a token of the
    second issuer."""
    with LocalIssuer() as other_issuer:
        (bank,) = settings.OIDC_PROVIDERS
        second = Provider(name="second", title="Second", issuer=other_issuer.url, client_id=CLIENT)
        settings.OIDC_PROVIDERS = (bank, second)
        get_discoveries.cache_clear()
        other_issuer.keys = [make_jwk(OTHER_RSA, "rsa")]
        answer = client.get(
            ADDRESS, headers={"Authorization": f"Bearer {issuer.make_token(iss=other_issuer.url)}"}
        )
    assert answer.status_code == 401
    assert "signature is wrong" in answer.headers["WWW-Authenticate"]


def test_login_cookie_has_host_prefix_behind_https(
    client: Client, issuer: LocalIssuer, settings: Any, db: None
) -> None:
    """A browser accepts a cookie of this name only from Annals' own host, not from its whole
    domain."""
    settings.COOKIE_PREFIX = "__Host-"
    settings.SESSION_COOKIE_SECURE = True
    callback = begin_login(client, issuer)
    issuer.id_token = issuer.make_token()
    [cookie] = client.cookies.values()
    assert cookie.key == "__Host-annals_login"
    assert (cookie["path"], cookie["secure"], cookie["httponly"]) == ("/", True, True)
    assert not cookie["domain"]
    assert client.get(callback, secure=True).status_code == 302


def test_production_gives_cookies_the_host_prefix_and_has_no_demo_logins(
    tmp_path: Path,
) -> None:
    code = (
        "import django; django.setup()\n"
        "from django.test import Client\n"
        "print(Client().get('/admin/login/', secure=True, HTTP_HOST='localhost').cookies)\n"
        "from django.conf import settings; print(settings.SESSION_COOKIE_NAME)\n"
        "print(settings.AUTHENTICATION_BACKENDS)\n"
    )
    result = subprocess.run(
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
    assert result.returncode == 0, result.stderr
    cookie, session, backends = result.stdout.splitlines()
    assert cookie.startswith("Set-Cookie: __Host-csrftoken=")
    assert {"Path=/", "Secure"} <= set(cookie.split("; "))
    assert session == "__Host-sessionid"
    assert "ProviderBackend" in backends
    assert "DemoLogins" not in backends


def begin_login(client: Client, issuer: LocalIssuer) -> str:
    """Begin a login, and return the address to which the provider sends the browser back.

    The tokens of the issuer get the nonce of this login.
    """
    redirect = client.get("/oidc/bank/login/?next=/admin/")
    query = parse_qs(urlsplit(redirect.headers["Location"]).query)
    assert query["code_challenge_method"] == ["S256"]
    issuer.extra = {"nonce": query["nonce"][0], "groups": ["staff"]}
    return f"/oidc/bank/callback/?code=x&state={query['state'][0]}"


def list_secret_parts(token: str) -> list[str]:
    """Return the parts of a token that must not be in an answer or a log."""
    return [part for part in token.split(".") if len(part) > 10]


@pytest.fixture
def store_with_application(store: Store) -> Store:
    store.add("A1", 0, {"rate": "1"}, 0)
    return store


def send_with_token(client: Client, token: str, address: str = ADDRESS) -> Any:
    return client.get(address, headers={"Authorization": f"Bearer {token}"})


def test_api_accepts_valid_bearer_token(
    client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
    for address in (ADDRESS, "/api/v1/search?q=A1", "/api/v1/completeness"):
        assert send_with_token(client, issuer.make_token(), address).status_code == 200


def test_program_is_identified_by_the_claim_that_its_provider_declares(
    client: Client, issuer: LocalIssuer, store_with_application: Store, settings: Any
) -> None:
    token = issuer.make_token(client_id=None)
    assert send_with_token(client, token).status_code == 401
    declare_provider(settings, issuer, client_claim="sub", programs=("service-account-audit",))
    assert send_with_token(client, token).status_code == 200


def test_request_log_has_login_of_program_that_sends_a_bearer_token(
    client: Client,
    issuer: LocalIssuer,
    store_with_application: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "annals.web.request_log"):
        send_with_token(client, issuer.make_token())
    assert [record.user for record in caplog.records if hasattr(record, "user")] == ["audit-system"]


def test_program_reads_sensitive_fields_only_when_its_token_has_the_declared_scope(
    client: Client, issuer: LocalIssuer, store_with_application: Store, settings: Any
) -> None:
    set_marks("/rate")
    try:
        whole = issuer.make_token(scope=f"{SCOPE} whole-documents")
        assert b'"rate":"masked:' in send_with_token(client, issuer.make_token()).content
        assert b'"rate":"masked:' in send_with_token(client, whole).content
        declare_provider(settings, issuer, sensitive_scope="whole-documents")
        assert b'"rate": "1"' in send_with_token(client, whole).content
        assert b'"rate":"masked:' in send_with_token(client, issuer.make_token()).content
    finally:
        set_marks()


def test_token_without_scope_gets_403(
    client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
    assert 'Bearer realm="annals"' in client.get(ADDRESS).headers["WWW-Authenticate"]
    answer = send_with_token(client, issuer.make_token(scope="openid"))
    assert answer.status_code == 403
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="annals", error="insufficient_scope", scope="{SCOPE}"'
    )


def test_api_answers_503_when_issuer_is_down(
    client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
    issuer.down = True
    answer = send_with_token(client, issuer.make_token())
    assert answer.status_code == 503
    assert json.loads(answer.content)["error"]["code"] == "unavailable"
    assert answer.headers["Retry-After"] == "5"


def test_bearer_token_is_not_accepted_on_screens(
    client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
    answer = send_with_token(client, issuer.make_token(), "/admin/history/product-instance/A1/")
    assert answer.status_code == 302


def test_token_is_refused_when_its_client_is_not_a_declared_program(
    client: Client,
    issuer: LocalIssuer,
    store_with_application: Store,
    settings: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The token of a person names in the claim `azp` the program to which the person logged in."""
    for client_id in (CLIENT, "crm-spa"):
        answer = send_with_token(
            client, issuer.make_token(client_id=None, azp=client_id, sub="alice")
        )
        assert answer.status_code == 401
        assert "is not among the programs" in answer.headers["WWW-Authenticate"]
    assert "client 'crm-spa' is not in `programs` of the provider 'bank'" in caplog.text
    assert not JournalEntry.objects.exists()
    assert send_with_token(client, issuer.make_token()).status_code == 200
    entry = JournalEntry.objects.get()
    assert entry.identity == f"{issuer.url}#{PROGRAM} sub=service-account-audit"
    declare_provider(settings, issuer, programs=())
    assert send_with_token(client, issuer.make_token()).status_code == 401


SEARCH = "/api/v1/search?q=A1"


def capture_queries(client: Client, address: str, **headers: str) -> list[str]:
    """Return the SQL that a request runs, except for the journal entry."""
    with CaptureQueriesContext(connection) as seen:
        client.get(address, headers=headers)
    statements = [query["sql"] for query in seen.captured_queries]
    return [sql for sql in statements if "access_journal" not in sql and "SAVEPOINT" not in sql]


def test_refused_api_request_runs_no_database_query(
    client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
    """Cheap checks come before expensive ones."""
    client.get(ADDRESS)  # the first request of a process also reads the list of migrations
    assert capture_queries(client, ADDRESS) == []
    assert (
        capture_queries(client, ADDRESS, Authorization=f"Bearer {issuer.make_token(exp=1)}") == []
    )
    assert (
        capture_queries(
            client, ADDRESS, Authorization=f"Bearer {issuer.make_token(scope='openid')}"
        )
        == []
    )


@pytest.mark.parametrize("address", [ADDRESS, SEARCH, "/api/v1/completeness"])
def test_options_request_is_answered_only_when_login_may_read(
    address: str, client: Client, issuer: LocalIssuer, store_with_application: Store
) -> None:
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
