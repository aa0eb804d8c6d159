"""A token of the client of /api/docs/ is a person's: their roles, their masks, their name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from msgspec import structs

from annals.access.models import Identity, JournalEntry
from annals.access.oidc.bearer import REFUSED
from annals.access.oidc.description import scheme
from annals.access.oidc.discovery import discoveries
from annals.access.oidc.providers import Provider
from tests.access.issuer import CLIENT, SCOPE, Issuer
from tests.access.masked_answers import mark
from tests.access.test_bearer_api import ADDRESS, ask
from tests.db.store import Store

PERSON = "7"


@pytest.fixture
def issuer(settings: Any, store: Store) -> Iterator[Issuer]:
    store.add("A1", 0, {"rate": "1"}, 0)
    mark("/rate")
    REFUSED.clear()
    with Issuer() as running:
        bank = Provider(
            name="bank",
            title="Bank",
            issuer=running.url,
            client_id=CLIENT,
            docs_client_id="docs",
            sensitive_scope="all",
        )
        settings.OIDC_PROVIDERS = (bank,)
        discoveries.cache_clear()
        yield running
    discoveries.cache_clear()
    mark()


def person(issuer: Issuer, login: str) -> str:
    """A token for /api/docs/ of the person with this login, who has logged in on the screens."""
    user = User.objects.get(username=login)
    Identity.objects.create(issuer=issuer.url, subject=PERSON, user=user, login=login)
    return issuer.token(sub=PERSON, client_id="docs", scope=f"{SCOPE} all")


def test_the_roles_decide_and_the_journal_names_the_person(client: Client, issuer: Issuer) -> None:
    token = person(issuer, "support")
    answer = ask(client, token)
    assert answer.status_code == 200
    assert b'"rate":"masked:' in answer.content  # whatever scopes the token has
    (row,) = JournalEntry.objects.all()
    assert (row.login, row.actor) == ("support", "person")


def test_who_may_not_read_on_the_screens_may_not_here(client: Client, issuer: Issuer) -> None:
    token = person(issuer, "ops")
    assert ask(client, token).status_code == 403
    assert ask(client, token, "/api/v1/completeness").status_code == 200


def test_a_login_that_is_switched_off_is_refused(client: Client, issuer: Issuer) -> None:
    token = person(issuer, "support")
    User.objects.filter(username="support").update(is_active=False)
    assert ask(client, token).status_code == 401
    User.objects.filter(username="support").update(is_active=True, is_staff=False)
    assert ask(client, token).status_code == 401


def test_who_never_logged_in_is_told_to(client: Client, issuer: Issuer) -> None:
    token = issuer.token(sub=PERSON, client_id="docs")
    answer = client.get(
        ADDRESS, headers={"Authorization": f"Bearer {token}", "Accept-Language": "en"}
    )
    assert answer.status_code == 401
    said = json.loads(answer.content)["error"]["message"]
    assert said == "Log in on the screens first: that gives you a role."
    other = issuer.token(sub=PERSON, azp="docs", client_id=None)
    assert ask(client, other).status_code == 401


def test_a_program_is_none(client: Client, issuer: Issuer) -> None:
    person(issuer, "ops")
    assert ask(client, issuer.token(sub=PERSON)).status_code == 200


def may_ask(client: Client) -> list[str]:
    """What the policy of /api/docs/ lets the browser ask."""
    policy = client.get("/api/docs/").headers["Content-Security-Policy"]
    (found,) = (each for each in policy.split("; ") if each.startswith("connect-src "))
    return found.split()[1:]


def test_the_document_says_what_is_known(
    client: Client, issuer: Issuer, settings: Any, db: None
) -> None:
    """Without an answer of the provider, where it would be; without a client of the page, how a
    program gets a token."""
    (found,) = discoveries().values()
    issuer.down = True
    where = f"{issuer.url}/.well-known/openid-configuration"
    assert scheme(found) == {"type": "openIdConnect", "openIdConnectUrl": where}
    assert client.get("/api/schema/").status_code == 200
    assert may_ask(client) == ["'self'"]
    issuer.down = False
    issuer.metadata = {
        "token_endpoint": "https://login.example/token",
        "authorization_endpoint": "https://login.example/auth",
    }
    discoveries.cache_clear()
    (found,) = discoveries().values()
    assert set(scheme(found)["flows"]) == {"clientCredentials", "authorizationCode"}
    assert may_ask(client) == ["'self'", "https://login.example"]
    settings.OIDC_PROVIDERS = (structs.replace(found.provider, docs_client_id=None),)
    discoveries.cache_clear()
    (found,) = discoveries().values()
    assert set(scheme(found)["flows"]) == {"clientCredentials"}
    assert may_ask(client) == ["'self'"]
