"""A token of the client of /api/docs/ is a person's: their roles, their masks, their name."""

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from annals.access import sessions
from annals.access.models import Identity, JournalEntry, ProviderSession
from annals.access.oidc.description import scheme
from annals.access.oidc.discovery import discoveries
from annals.access.oidc.tokens import LOGOUT_EVENT
from annals.access.sessions import SessionStore
from tests.access.issuer import SCOPE, Issuer, declare
from tests.access.test_hostile import ADDRESS, ask
from tests.access.test_masking_properties import mark
from tests.db.store import Store

PERSON = "7"


@pytest.fixture
def issuer(issuer: Issuer, settings: Any, store: Store) -> Iterator[Issuer]:
    store.add("A1", 0, {"rate": "1"}, 0)
    mark("/rate")
    declare(settings, issuer, docs_client_id="docs", sensitive_scope="all")
    yield issuer
    mark()


def person(issuer: Issuer, login: str) -> str:
    """A token for /api/docs/ of the person with this login, who is logged in on the screens."""
    user = User.objects.get(username=login)
    Identity.objects.create(issuer=issuer.url, subject=PERSON, user=user, login=login)
    open_screens()
    return issuer.token(sub=PERSON, client_id="docs", scope=f"{SCOPE} all")


def open_screens(**changed: object) -> SessionStore:
    """A session on the screens, which the provider confirmed just now."""
    identity = Identity.objects.get(subject=PERSON)
    session, now = SessionStore(), time.time()
    session[SESSION_KEY] = str(identity.user_id)
    session[sessions.PROVIDER] = "bank"
    for name in (sessions.BEGAN, sessions.SEEN, sessions.CONFIRMED):
        session[name] = now
    session.update(changed)
    session.save()
    ProviderSession.objects.create(
        session_key=session.session_key, identity=identity, began=timezone.now()
    )
    return session


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


MINUTES = 60


@pytest.mark.parametrize(
    "name, age",
    [
        (sessions.BEGAN, configured.ANNALS.session_hours * 60),
        (sessions.SEEN, configured.ANNALS.session_idle_minutes),
        (sessions.CONFIRMED, configured.ANNALS.session_renew_minutes),
    ],
)
def test_a_token_counts_as_long_as_the_session_on_the_screens(
    name: str, age: int, client: Client, issuer: Issuer
) -> None:
    """A role that the provider took away would be kept with tokens alone: they carry no groups."""
    token = person(issuer, "support")
    ProviderSession.objects.all().delete()
    assert ask(client, token).status_code == 401
    session = open_screens(**{name: time.time() - (age - 1) * MINUTES})
    assert ask(client, token).status_code == 200
    session[name] = time.time() - (age + 1) * MINUTES
    session.save()
    assert ask(client, token).status_code == 401
    open_screens()
    assert ask(client, token).status_code == 200


def test_a_session_of_somebody_else_or_of_nobody_does_not_help(
    client: Client, issuer: Issuer
) -> None:
    token = person(issuer, "support")
    ProviderSession.objects.all().delete()
    open_screens(**{SESSION_KEY: str(User.objects.get(username="auditor").pk)})
    assert ask(client, token).status_code == 401
    open_screens(**{sessions.PROVIDER: "other"})
    assert ask(client, token).status_code == 401
    open_screens().delete()
    assert ask(client, token).status_code == 401
    session = open_screens()
    assert ask(client, token).status_code == 200
    sessions.ask_again(session.session_key or "")
    assert ask(client, token).status_code == 401


def test_the_provider_ends_tokens_with_the_sessions(client: Client, issuer: Issuer) -> None:
    token = person(issuer, "support")
    assert ask(client, token).status_code == 200
    said = issuer.token(sub=PERSON, jti=uuid.uuid4().hex, events={LOGOUT_EVENT: {}})
    assert client.post("/oidc/bank/logout/", {"logout_token": said}).status_code == 200
    assert ask(client, token).status_code == 401


def test_whom_the_screens_refuse_the_api_refuses(
    client: Client, issuer: Issuer, settings: Any
) -> None:
    token = person(issuer, "support")
    User.objects.filter(username="support").update(is_superuser=True)
    assert ask(client, token).status_code == 401
    User.objects.filter(username="support").update(is_superuser=False)
    assert ask(client, token).status_code == 200
    declare(settings, issuer, docs_client_id="docs", login=False)
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


@pytest.mark.parametrize("name", ["cid", "appid", "context.client"])
def test_the_client_of_a_token_may_be_in_another_claim(
    name: str, client: Client, issuer: Issuer, settings: Any
) -> None:
    """A token that names no client where Annals looks for it is nobody's: it was a program's, and
    a person's token has its client in another claim at some providers."""
    client_of = {"context": {"client": "docs"}} if "." in name else {name: "docs"}
    token = issuer.token(sub=PERSON, client_id=None, scope=f"{SCOPE} all", **client_of)
    answer = ask(client, token)
    assert answer.status_code == 401
    assert "names no client" in answer.headers["WWW-Authenticate"]
    declare(settings, issuer, docs_client_id="docs", sensitive_scope="all", client_claim=name)
    assert ask(client, token).status_code == 401  # has no login on the screens
    person(issuer, "support")
    answer = ask(client, token)
    assert answer.status_code == 200
    assert b'"rate":"masked:' in answer.content
    assert ask(client, issuer.token(client_id="docs")).status_code == 401


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
    declare(settings, issuer)
    (found,) = discoveries().values()
    assert set(scheme(found)["flows"]) == {"clientCredentials"}
    assert may_ask(client) == ["'self'"]
