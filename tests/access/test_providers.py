"""The declarations in ANNALS_OIDC_FILE and their errors, and logins and logouts at providers."""

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
from annals.access.oidc.backend import NoRoleError, create_or_update_user
from annals.access.oidc.login import end_provider_sessions
from annals.access.oidc.providers import Provider
from annals.access.oidc.tokens import LOGOUT_EVENT
from history.models import Person
from tests.access.issuer import LocalIssuer

GOOD = {
    "name": "bank",
    "title": "Bank",
    "issuer": "https://login.bank.example/realms/staff",
    "client_id": "annals",
    "roles": {"annals-support": "support"},
}


def write_providers(path: Path, *providers: dict[str, object]) -> Path:
    file = path / "providers.json"
    file.write_text(json.dumps({"provider": providers}))
    return file


def test_providers_in_toml_and_json_are_read_alike(tmp_path: Path) -> None:
    toml = tmp_path / "providers.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in GOOD.items() if name != "roles"]
    toml.write_text(
        "\n".join(["[[provider]]", *lines, "[provider.roles]", 'annals-support = "support"'])
    )
    [actual] = providers.read_providers(toml)
    assert (actual,) == providers.read_providers(write_providers(tmp_path, GOOD))
    assert (actual.scope, actual.api_audiences) == (providers.DEFAULT_SCOPE, ("annals",))


@pytest.mark.parametrize(
    "changed, reason",
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
def test_wrong_declaration_of_provider_is_explained(
    changed: dict[str, object], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(providers.ProvidersError, match=reason):
        providers.read_providers(write_providers(tmp_path, GOOD | changed))


def test_providers_need_different_names_and_issuers(tmp_path: Path) -> None:
    second = GOOD | {"name": "other"}
    with pytest.raises(providers.ProvidersError, match="two providers have the issuer"):
        providers.read_providers(write_providers(tmp_path, GOOD, second))
    with pytest.raises(providers.ProvidersError, match="two providers have the name"):
        providers.read_providers(
            write_providers(tmp_path, GOOD, GOOD | {"issuer": "https://other.example"})
        )


def make_provider(name: str) -> Provider:
    return Provider(
        name=name,
        title=name,
        issuer=f"https://{name}.example",
        client_id="annals",
        roles={"clerks": "support", "auditors": "auditor"},
    )


BANK, KEYCLOAK = make_provider("bank"), make_provider("keycloak")


def make_claims(subject: str, name: str, *groups: str, login: str = "m.petrov") -> dict[str, Any]:
    return {"sub": subject, "preferred_username": login, "name": name, "groups": list(groups)}


def get_full_name(login: str = "m.petrov") -> str:
    return Person.objects.get(login=login).full_name


def test_full_names_of_similar_logins_are_kept_apart(db: None) -> None:
    create_or_update_user(BANK, make_claims("1", "Петров", "clerks", login="m@petrov"))
    create_or_update_user(KEYCLOAK, make_claims("2", "Мария", "clerks", login="m"))
    assert (get_full_name("m@petrov"), get_full_name("m")) == ("Петров", "Мария")


def test_renamed_login_is_logged(db: None, caplog: pytest.LogCaptureFixture) -> None:
    first = create_or_update_user(BANK, make_claims("1", "Петров", "clerks"))
    again = create_or_update_user(BANK, make_claims("1", "Петров", "clerks", login="boss"))
    assert first.pk == again.pk
    assert "the login 'm.petrov@bank' was renamed to 'boss@bank'" in caplog.text


def test_logging_in_removes_permissions_that_were_granted_by_hand(db: None) -> None:
    user = create_or_update_user(BANK, make_claims("1", "Петров", "clerks", "auditors"))
    user.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    again = create_or_update_user(BANK, make_claims("1", "Петров", "clerks"))
    assert [group.name for group in again.groups.all()] == ["support"]
    assert not again.user_permissions.exists()
    again.user_permissions.add(Permission.objects.get(codename="view_sensitive"))
    with pytest.raises(NoRoleError):
        create_or_update_user(BANK, make_claims("1", "Петров"))
    assert not again.groups.exists()
    assert not again.user_permissions.exists()


def log_out(token: str) -> int:
    request = RequestFactory().post("/oidc/bank/logout/", {"logout_token": token})
    answer = end_provider_sessions(request, provider="bank")
    assert isinstance(answer, HttpResponse)
    return answer.status_code


def begin_session(issuer: LocalIssuer, key: str) -> None:
    user = create_or_update_user(BANK, make_claims("1", "Петров", "clerks"))
    identity = Identity.objects.get(user=user)
    identity.issuer = issuer.url
    identity.save()
    SessionStore(key).save(must_create=True)
    ProviderSession.objects.create(
        session_key=key, identity=identity, provider_session="s1", began=timezone.now()
    )


def make_logout_token(issuer: LocalIssuer, **changed: object) -> str:
    values: dict[str, object] = {"sub": "1", "jti": "token-1", "events": {LOGOUT_EVENT: {}}}
    return issuer.make_token(header={"typ": "logout+jwt"}, **(values | changed))


def test_logout_token_works_once(issuer: LocalIssuer, db: None) -> None:
    begin_session(issuer, "first-session")
    token = make_logout_token(issuer)
    assert log_out(token) == 200
    assert not SessionStore().exists("first-session")
    Identity.objects.all().delete()
    begin_session(issuer, "later-session")
    assert log_out(token) == 400
    assert SessionStore().exists("later-session")
    assert log_out(make_logout_token(issuer, jti="token-2")) == 200
    assert not SessionStore().exists("later-session")


def test_used_logout_token_is_kept_until_it_expires(issuer: LocalIssuer, db: None) -> None:
    expires = int(time.time()) + 900
    assert log_out(make_logout_token(issuer, exp=expires)) == 200
    (used,) = LogoutToken.objects.all()
    assert used.until > datetime.fromtimestamp(expires + 30, UTC)
    assert "token-1" not in used.digest


@pytest.mark.parametrize("token", ["", "x", "a.b.c"])
def test_invalid_logout_token_ends_no_session(token: str, issuer: LocalIssuer, db: None) -> None:
    begin_session(issuer, "some-session")
    assert log_out(token) == 400
    assert SessionStore().exists("some-session")


@pytest.mark.parametrize("id", [7, "", "x" * 300, ["token-1"], "a\nb"])
def test_logout_token_with_invalid_id_is_refused(id: object, issuer: LocalIssuer, db: None) -> None:
    assert log_out(make_logout_token(issuer, jti=id)) == 400


def test_used_logout_token_is_kept_for_one_day_when_it_expires_far_in_the_future(
    issuer: LocalIssuer, db: None
) -> None:
    assert log_out(make_logout_token(issuer, exp=10**17)) == 200
    (used,) = LogoutToken.objects.all()
    assert 86_400 - 600 < (used.until - timezone.now()).total_seconds() < 86_400 + 60
