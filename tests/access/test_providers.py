"""ANNALS_OIDC_FILE: what it may say, and the message for a wrong one."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils import timezone

from annals.access.models import Identity, LogoutToken, ProviderSession
from annals.access.oidc import providers
from annals.access.oidc.backend import NoRoleError, user_of
from annals.access.oidc.login import ended
from annals.access.oidc.providers import Provider
from annals.access.oidc.tokens import LOGOUT_EVENT
from history.models import Person
from tests.access.issuer import Issuer

GOOD = {
    "name": "bank",
    "title": "Bank",
    "issuer": "https://login.bank.example/realms/staff",
    "client_id": "annals",
    "roles": {"annals-support": "support"},
}


def write(path: Path, *given: dict[str, object]) -> Path:
    file = path / "providers.json"
    file.write_text(json.dumps({"provider": given}))
    return file


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml = tmp_path / "providers.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in GOOD.items() if name != "roles"]
    toml.write_text(
        "\n".join(["[[provider]]", *lines, "[provider.roles]", 'annals-support = "support"'])
    )
    [found] = providers.read(toml)
    assert (found,) == providers.read(write(tmp_path, GOOD))
    assert (found.scope, found.api_audiences) == (providers.SCOPE, ("annals",))


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"name": "Bank 1"}, "lower case letters"),
        ({"issuer": "http://login.bank.example"}, "must be an https://"),
        ({"issuer": "login.bank.example"}, "must be an https://"),
        ({"issuer": "https://x:y@login.bank.example"}, "must be an https://"),
        ({"issuer": "https://login.bank.example/?a=1"}, "must be an https://"),
        ({"issuer": "https://["}, "must be an https://"),
        ({"roles": {"boss": "root"}}, "roles gives root; the roles are"),
        ({"client_secret_file": "/nowhere/at/all"}, "client_secret_file is not a file"),
        ({"clientid": "x"}, "unknown field `clientid`"),
        ({"title": None}, "Expected a text, got null"),
        ({"scope": "read", "sensitive_scope": "read"}, "sensitive_scope must differ from scope"),
        ({"programs": ["x", "annals"]}, "programs has the client_id of Annals itself"),
    ],
    ids=str,
)
def test_a_wrong_provider_is_named(changed: dict[str, object], why: str, tmp_path: Path) -> None:
    with pytest.raises(providers.ProvidersError, match=why):
        providers.read(write(tmp_path, GOOD | changed))


def test_two_of_one_name_or_issuer(tmp_path: Path) -> None:
    other = GOOD | {"name": "other"}
    with pytest.raises(providers.ProvidersError, match="two providers have the issuer"):
        providers.read(write(tmp_path, GOOD, other))
    with pytest.raises(providers.ProvidersError, match="two providers have the name"):
        providers.read(write(tmp_path, GOOD, GOOD | {"issuer": "https://other.example"}))


def provider(name: str) -> Provider:
    return Provider(
        name=name,
        title=name,
        issuer=f"https://{name}.example",
        client_id="annals",
        roles={"clerks": "support", "auditors": "auditor"},
    )


BANK, KEYCLOAK = provider("bank"), provider("keycloak")


def claims(subject: str, name: str, *groups: str, login: str = "m.petrov") -> dict[str, Any]:
    return {"sub": subject, "preferred_username": login, "name": name, "groups": list(groups)}


def shown_name(login: str = "m.petrov") -> str:
    return Person.objects.get(login=login).full_name


def test_a_login_that_only_looks_alike_keeps_its_name(db: None) -> None:
    user_of(BANK, claims("1", "Петров", "clerks", login="m@petrov"))
    user_of(KEYCLOAK, claims("2", "Мария", "clerks", login="m"))
    assert (shown_name("m@petrov"), shown_name("m")) == ("Петров", "Мария")


def test_a_login_that_is_renamed_leaves_a_line(db: None, caplog: pytest.LogCaptureFixture) -> None:
    first = user_of(BANK, claims("1", "Петров", "clerks"))
    again = user_of(BANK, claims("1", "Петров", "clerks", login="boss"))
    assert first.pk == again.pk
    assert "login 'm.petrov@bank' is called 'boss@bank' from now on" in caplog.text


def test_a_permission_that_was_given_manually_goes_with_the_claim(db: None) -> None:
    user = user_of(BANK, claims("1", "Петров", "clerks", "auditors"))
    user.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    again = user_of(BANK, claims("1", "Петров", "clerks"))
    assert [group.name for group in again.groups.all()] == ["support"]
    assert not again.user_permissions.exists()
    again.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    with pytest.raises(NoRoleError):
        user_of(BANK, claims("1", "Петров"))
    assert not again.groups.exists()
    assert not again.user_permissions.exists()


def log_out(token: str) -> int:
    request = RequestFactory().post("/oidc/bank/logout/", {"logout_token": token})
    answer = ended(request, provider="bank")
    assert isinstance(answer, HttpResponse)
    return answer.status_code


def begin_session(issuer: Issuer, key: str) -> None:
    user = user_of(BANK, claims("1", "Петров", "clerks"))
    identity = Identity.objects.get(user=user)
    identity.issuer = issuer.url
    identity.save()
    SessionStore(key).save(must_create=True)
    ProviderSession.objects.create(
        session_key=key, identity=identity, provider_session="s1", began=timezone.now()
    )


def logout_token(issuer: Issuer, **changed: object) -> str:
    given: dict[str, object] = {"sub": "1", "jti": "token-1", "events": {LOGOUT_EVENT: {}}}
    return issuer.token(header={"typ": "logout+jwt"}, **(given | changed))


def test_a_logout_token_works_once(issuer: Issuer, db: None) -> None:
    begin_session(issuer, "first-session")
    token = logout_token(issuer)
    assert log_out(token) == 200
    assert not SessionStore().exists("first-session")
    Identity.objects.all().delete()
    begin_session(issuer, "later-session")
    assert log_out(token) == 400
    assert SessionStore().exists("later-session")
    assert log_out(logout_token(issuer, jti="token-2")) == 200
    assert not SessionStore().exists("later-session")


def test_a_used_token_is_remembered_until_it_expires(issuer: Issuer, db: None) -> None:
    expires = int(time.time()) + 900
    assert log_out(logout_token(issuer, exp=expires)) == 200
    (used,) = LogoutToken.objects.all()
    assert used.until > datetime.fromtimestamp(expires + 30, UTC)
    assert "token-1" not in used.digest


@pytest.mark.parametrize("token", ["", "x", "a.b.c"])
def test_what_is_no_token_ends_nothing(token: str, issuer: Issuer, db: None) -> None:
    begin_session(issuer, "some-session")
    assert log_out(token) == 400
    assert SessionStore().exists("some-session")


@pytest.mark.parametrize("id", [7, "", "x" * 300, ["token-1"], "a\nb"])
def test_a_token_whose_id_cannot_be_remembered(id: object, issuer: Issuer, db: None) -> None:
    assert log_out(logout_token(issuer, jti=id)) == 400


def test_a_token_that_never_expires_is_remembered_for_its_age(issuer: Issuer, db: None) -> None:
    assert log_out(logout_token(issuer, exp=10**17)) == 200
    (used,) = LogoutToken.objects.all()
    assert (used.until - timezone.now()).total_seconds() < 86_400 + 60
