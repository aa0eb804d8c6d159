"""mozilla-django-oidc's backend for several providers. Replaced are the settings (by provider), the
calls (bounded), the check of the ID token and the search for the user (issuer and subject).

The provider decides: a role that is gone from the claims, or a permission given to the login
manually, is gone at the next login. No claim makes a superuser.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from annals.access.journal.write import JournalError, on_roles
from annals.access.models import Identity, identity_of
from annals.access.oidc import tokens
from annals.access.oidc.discovery import (
    Discovery,
    ProviderDownError,
    ProviderRefusesError,
    discoveries,
)
from annals.access.oidc.providers import Provider, claim
from annals.access.sessions import login
from history.people import remember

log = logging.getLogger(__name__)

LONGEST_LOGIN: Final = 100


class NoRoleError(Exception):
    """The person is known to the provider, and has no role here."""


def roles_of(provider: Provider, claims: Mapping[str, Any]) -> frozenset[str]:
    """The roles that the groups of these claims give."""
    given = claim(claims, provider.groups_claim)
    groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    known = (each for each in groups if isinstance(each, str) and each in provider.roles)
    return frozenset(provider.roles[each] for each in known)


def user_of(provider: Provider, claims: Mapping[str, Any]) -> User:
    """The login of the person that these verified claims are about, made or brought up to date.
    Raises NoRoleError, and then a login that was there has no role any more."""
    user = _brought_up_to_date(provider, claims)
    if user is None or not user.is_staff:
        raise NoRoleError
    return user


@transaction.atomic
def _brought_up_to_date(provider: Provider, claims: Mapping[str, Any]) -> User | None:
    """The login; None if there is none and none may be made."""
    login = _text(claim(claims, provider.login_claim)) or _text(claims["sub"])
    name = _text(claim(claims, provider.name_claim))
    roles = roles_of(provider, claims)
    identity = (
        Identity.objects.select_related("user")
        .select_for_update(of=("self",))
        .filter(issuer=provider.issuer, subject=claims["sub"])
        .first()
    )
    if identity is None and not roles:
        return None
    if identity is not None and identity.user.is_superuser:
        # The web cannot take this away, and a person of a provider must not have it.
        log.error("login of %r refused: it is a superuser in auth_user", identity.login)
        return None
    user = User() if identity is None else identity.user
    before = set() if identity is None else set(user.groups.values_list("name", flat=True))
    user.username = _free(f"{login}@{provider.name}", user)
    user.last_name, user.first_name = name[:150], ""
    if identity is None:
        user.set_unusable_password()
        user.save()
    if before != roles:
        try:
            with transaction.atomic():
                on_roles(user, before, roles)
        except JournalError as error:
            if identity is None:
                raise
            # What was taken away counts at once; nobody gains a role without a row of it.
            log.warning("the roles of %r are only reduced: %s", identity.login, error)
            roles = roles & before
    user.is_staff = bool(roles)
    user.save(update_fields=["username", "last_name", "first_name", "is_staff"])
    user.groups.set(Group.objects.filter(name__in=roles))
    user.user_permissions.clear()
    if identity is None:
        identity = Identity.objects.create(
            issuer=provider.issuer, subject=claims["sub"], user=user, login=user.username
        )
    elif identity.login != user.username:
        log.warning("login %r is called %r from now on", identity.login, user.username)
        identity.login = user.username
        identity.save(update_fields=["login"])
    if name and _is_first(identity, login):
        remember(login, name, identity_of(user.pk))
    return user


def _is_first(identity: Identity, login: str) -> bool:
    """Whether nobody had this login before, here or at another provider."""
    earlier = Identity.objects.filter(pk__lt=identity.pk, login__startswith=f"{login}@")
    return not any(
        each.rpartition("@")[0] == login for each in earlier.values_list("login", flat=True)
    )


def _text(value: object) -> str:
    """A claim as one line of text; empty where it is not text."""
    if not isinstance(value, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:LONGEST_LOGIN]


def _free(name: str, own: User) -> str:
    """The name; with a number if another login has it."""
    number, found = 1, name
    while User.objects.filter(username=found).exclude(pk=own.pk or 0).exists():
        number += 1
        found = f"{name}-{number}"
    return found


SETTINGS: Final[Mapping[str, object]] = {
    "OIDC_USE_NONCE": True,
    "OIDC_USE_PKCE": True,
    "OIDC_PKCE_CODE_VERIFIER_SIZE": 64,
    "OIDC_PKCE_CODE_CHALLENGE_METHOD": "S256",
    "OIDC_RP_SIGN_ALGO": "RS256",
    "OIDC_OP_JWKS_ENDPOINT": "by discovery",
}


def setting(name: str, *default: object) -> Any:
    """The value of a setting of the library: ours, or its own default."""
    return SETTINGS.get(name, default[0] if default else "")


class ProviderBackend(OIDCAuthenticationBackend):  # type: ignore[misc] # untyped library
    """Logs in the person who comes back from the provider `request.annals_provider`."""

    _callback = ""

    def get_settings(self, name: str, *default: object) -> Any:
        return self._callback if name.endswith("_CALLBACK_URL") else setting(name, *default)

    def authenticate(self, request: HttpRequest | None, **kwargs: Any) -> User | None:
        """Raises tokens.TokenError, ProviderDownError and claims.NoRoleError."""
        name = getattr(request, "annals_provider", None)
        if name is None or "nonce" not in kwargs:
            return None
        self._discovery = by_name(name)
        provider = self._discovery.provider
        self.OIDC_RP_CLIENT_ID = provider.client_id
        self.OIDC_RP_CLIENT_SECRET = provider.secret()
        self._callback = f"oidc-callback-{name}"
        user: User | None = super().authenticate(request, **kwargs)
        return user

    def get_user(self, user_id: Any) -> User | None:
        """The user of a session that began at a provider."""
        return login(user_id)

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Trade the code for tokens."""
        form = {key: value for key, value in payload.items() if value is not None}
        try:
            return self._discovery.ask(
                "POST", self._discovery.endpoint("token_endpoint"), data=form
            )
        except ProviderRefusesError:
            raise tokens.TokenError("The provider does not accept the code.") from None

    def verify_token(self, token: str, **kwargs: Any) -> Mapping[str, Any]:
        """The claims of the ID token."""
        if not isinstance(token, str):
            raise tokens.TokenError("The provider gave no ID token.")
        return tokens.identity(token, self._discovery, kwargs.get("nonce") or "")

    def get_or_create_user(self, access_token: str, id_token: str, payload: Any) -> User:  # noqa: ARG002
        """The login of these claims, with those that only the userinfo endpoint tells."""
        claims = {**self._userinfo(access_token, payload["sub"]), **payload}
        self.request.annals_provider_session = str(claims.get("sid") or "")
        return user_of(self._discovery.provider, claims)

    def _userinfo(self, access_token: str, subject: str) -> dict[str, Any]:
        try:
            address = self._discovery.endpoint("userinfo_endpoint")
        except ProviderDownError:
            return {}  # it has none: the ID token says everything
        found = self._discovery.ask(
            "GET", address, headers={"Authorization": f"Bearer {access_token}"}
        )
        if found.get("sub") != subject:
            raise tokens.TokenError("The provider's userinfo is about somebody else.")
        return found


def by_name(name: str) -> Discovery:
    """The provider of this name, for login. Raises LookupError."""
    for discovery in discoveries().values():
        if discovery.provider.name == name and discovery.provider.login:
            return discovery
    raise LookupError(name)
