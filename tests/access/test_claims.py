"""What a provider says of its people: names, roles, and the end of their sessions."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpResponse
from django.test import RequestFactory
from django.utils import timezone

from annals.access.models import Identity, LogoutToken, ProviderSession
from annals.access.oidc.backend import NoRoleError, user_of
from annals.access.oidc.login import ended
from annals.access.oidc.providers import Provider
from annals.access.oidc.tokens import LOGOUT_EVENT
from history.models import Person
from tests.access.issuer import Issuer
from tests.access.test_bearer_api import issuer

__all__ = ["issuer"]


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


def test_another_provider_does_not_rename_a_person(db: None) -> None:
    user_of(BANK, claims("1", "Петров Михаил", "clerks"))
    user_of(KEYCLOAK, claims("9", "Mallory", "clerks"))
    assert shown_name() == "Петров Михаил"
    user_of(BANK, claims("1", "Петров Михаил Юрьевич", "clerks"))
    assert shown_name() == "Петров Михаил Юрьевич"
    user_of(KEYCLOAK, claims("9", "Mallory", "clerks"))
    assert shown_name() == "Петров Михаил Юрьевич"


def test_another_person_of_the_same_provider_does_not_either(db: None) -> None:
    user_of(BANK, claims("1", "Петров Михаил", "clerks"))
    user_of(BANK, claims("2", "Mallory", "clerks"))
    assert shown_name() == "Петров Михаил"


def test_a_login_does_not_rename_whom_the_bank_entered(db: None) -> None:
    Person.objects.create(login="m.petrov", full_name="Петров Михаил", kind="person")
    for name in ("Mallory", "Petrov Mikhail"):
        user_of(BANK, claims("1", name, "clerks"))
        assert shown_name() == "Петров Михаил"


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


@pytest.mark.parametrize("id", [7, "", "x" * 300, ["token-1"], "a\nb"])
def test_a_token_whose_id_cannot_be_remembered(id: object, issuer: Issuer, db: None) -> None:
    assert log_out(logout_token(issuer, jti=id)) == 400


def test_a_token_that_never_expires_is_remembered_for_its_age(issuer: Issuer, db: None) -> None:
    assert log_out(logout_token(issuer, exp=10**17)) == 200
    (used,) = LogoutToken.objects.all()
    assert (used.until - timezone.now()).total_seconds() < 86_400 + 60
