"""Logs people in with mozilla-django-oidc, extended for several providers.

The backend has settings for each provider, limits the time of calls, verifies the ID token itself,
and finds the user by issuer and subject.

The provider decides about roles: the next login removes a role that the claims no longer have, and
permissions that were given manually. No claim makes a superuser.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from annals.access.journal.write import JournalError, record_role_change
from annals.access.models import Identity, format_user_identity
from annals.access.oidc import tokens
from annals.access.oidc.discovery import (
    ProviderDiscovery,
    ProviderDownError,
    ProviderRefusesError,
    get_discoveries,
)
from annals.access.oidc.providers import Provider, get_claim
from annals.access.sessions import fetch_user
from history.store.catalogue.people import remember_login

log = logging.getLogger(__name__)

LONGEST_LOGIN: Final = 100


class NoRoleError(Exception):
    """Raised when the provider knows the person, but its claims give no role in Annals."""


def map_groups_to_roles(provider: Provider, claims: Mapping[str, Any]) -> frozenset[str]:
    """Return the roles that the groups in the claims give."""
    claimed = get_claim(claims, provider.groups_claim)
    groups = [claimed] if isinstance(claimed, str) else claimed if isinstance(claimed, list) else []
    mapped_groups = (
        group for group in groups if isinstance(group, str) and group in provider.roles
    )
    return frozenset(provider.roles[group] for group in mapped_groups)


def create_or_update_user(provider: Provider, claims: Mapping[str, Any]) -> User:
    """Create or update the login of a person, and return it.

    Args:
        claims: The verified claims of the provider about the person.

    Raises:
        NoRoleError: The claims give the person no role, or `auth_user.is_superuser` is true for the
            person. If a login has no role any more, its earlier roles are removed before the error
            is raised.
    """
    user = _create_or_update_user(provider, claims)
    if user is None or not user.is_staff:
        raise NoRoleError
    return user


@transaction.atomic
def _create_or_update_user(provider: Provider, claims: Mapping[str, Any]) -> User | None:
    """Create or update the login of the person in these claims.

    A person who lost all roles keeps a login that is not staff.

    Returns:
        The login, or None if the person may not log in: a new person without a role, or a person
        for whom `auth_user.is_superuser` is true.
    """
    login = _clean_text(get_claim(claims, provider.login_claim)) or _clean_text(claims["sub"])
    name = _clean_text(get_claim(claims, provider.name_claim))
    roles = map_groups_to_roles(provider, claims)
    identity = (
        Identity.objects.select_related("user")
        .select_for_update(of=("self",))
        .filter(issuer=provider.issuer, subject=claims["sub"])
        .first()
    )
    if identity is None and not roles:
        return None
    if identity is not None and identity.user.is_superuser:
        # A person of a provider must not be a superuser, and the web may not change the column.
        log.error("login %r refused: this user is a superuser in auth_user", identity.login)
        return None
    user = User() if identity is None else identity.user
    before = set() if identity is None else set(user.groups.values_list("name", flat=True))
    user.username = _choose_free_name(f"{login}@{provider.name}", user)
    user.last_name, user.first_name = name[:150], ""
    if identity is None:
        user.set_unusable_password()
        user.save()
    if before != roles:
        try:
            with transaction.atomic():
                record_role_change(user, before, roles)
        except JournalError as error:
            if identity is None:
                raise
            # Roles are removed in any case, but added only with an entry in the journal.
            log.warning(
                "the login %r lost roles, but did not get its new roles: %s", identity.login, error
            )
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
        log.warning("the login %r was renamed to %r", identity.login, user.username)
        identity.login = user.username
        identity.save(update_fields=["login"])
    if name and _is_first_with_login(identity, login):
        remember_login(login, name, format_user_identity(user.pk))
    return user


def _is_first_with_login(identity: Identity, login: str) -> bool:
    """Return whether this identity was the first one with the login, among all providers.

    Two providers can give the same login to different people. Only the name of the first person is
    stored in the table of people.
    """
    earlier = Identity.objects.filter(pk__lt=identity.pk, login__startswith=f"{login}@")
    return not any(
        earlier_login.rpartition("@")[0] == login
        for earlier_login in earlier.values_list("login", flat=True)
    )


def _clean_text(value: object) -> str:
    """Return a claim as one line of text. Returns "" for a claim that is not a text."""
    if not isinstance(value, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in value).split())[:LONGEST_LOGIN]


def _choose_free_name(name: str, user: User) -> str:
    """Return the name. If another user has this name, append a number to it."""
    number, free_name = 1, name
    while User.objects.filter(username=free_name).exclude(pk=user.pk or 0).exists():
        number += 1
        free_name = f"{name}-{number}"
    return free_name


SETTINGS: Final[Mapping[str, object]] = {
    "OIDC_USE_NONCE": True,
    "OIDC_USE_PKCE": True,
    "OIDC_PKCE_CODE_VERIFIER_SIZE": 64,
    "OIDC_PKCE_CODE_CHALLENGE_METHOD": "S256",
    "OIDC_RP_SIGN_ALGO": "RS256",
    "OIDC_OP_JWKS_ENDPOINT": "by discovery",
}


def get_library_setting(name: str, *default: object) -> Any:
    """Return a setting for mozilla-django-oidc from SETTINGS.

    If it is not there, return the given default, or "" without a default.
    """
    return SETTINGS.get(name, default[0] if default else "")


class ProviderBackend(OIDCAuthenticationBackend):  # type: ignore[misc] # untyped library
    """The authentication backend of people whom a provider has sent back to Annals.

    `request.annals_provider` is the name of the provider.
    """

    _callback = ""

    def get_settings(self, name: str, *default: object) -> Any:
        return (
            self._callback
            if name.endswith("_CALLBACK_URL")
            else get_library_setting(name, *default)
        )

    def authenticate(self, request: HttpRequest | None, **kwargs: Any) -> User | None:
        """Return the user who logs in, or None if this is not a login at a provider.

        Raises:
            tokens.TokenError: The provider's token is refused.
            ProviderDownError: The provider does not answer.
            NoRoleError: The person has no role in Annals.
        """
        name = getattr(request, "annals_provider", None)
        if name is None or "nonce" not in kwargs:
            return None
        self._discovery = find_login_provider(name)
        provider = self._discovery.provider
        self.OIDC_RP_CLIENT_ID = provider.client_id
        self.OIDC_RP_CLIENT_SECRET = provider.read_secret()
        self._callback = f"oidc-callback-{name}"
        user: User | None = super().authenticate(request, **kwargs)
        return user

    def get_user(self, user_id: Any) -> User | None:
        """Return the user of a session that began at a provider."""
        return fetch_user(user_id)

    def get_token(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Exchange the code of the login for tokens."""
        form = {key: value for key, value in payload.items() if value is not None}
        try:
            return self._discovery.fetch_json(
                "POST", self._discovery.get_endpoint("token_endpoint"), data=form
            )
        except ProviderRefusesError:
            raise tokens.TokenError("The provider does not accept the code.") from None

    def verify_token(self, token: str, **kwargs: Any) -> Mapping[str, Any]:
        """Return the claims of the ID token."""
        if not isinstance(token, str):
            raise tokens.TokenError("The provider gave no ID token.")
        return tokens.verify_id_token(token, self._discovery, kwargs.get("nonce") or "")

    def get_or_create_user(self, access_token: str, id_token: str, payload: Any) -> User:  # noqa: ARG002
        """Create or update the user that the ID token's claims in `payload` describe.

        Claims that the ID token does not have are read from the userinfo endpoint.
        """
        claims = {**self._fetch_userinfo(access_token, payload["sub"]), **payload}
        self.request.annals_provider_session = str(claims.get("sid") or "")
        return create_or_update_user(self._discovery.provider, claims)

    def _fetch_userinfo(self, access_token: str, subject: str) -> dict[str, Any]:
        try:
            address = self._discovery.get_endpoint("userinfo_endpoint")
        except ProviderDownError:
            return {}  # without this endpoint the ID token has all claims
        userinfo = self._discovery.fetch_json(
            "GET", address, headers={"Authorization": f"Bearer {access_token}"}
        )
        if userinfo.get("sub") != subject:
            raise tokens.TokenError("The provider's userinfo is about somebody else.")
        return userinfo


def find_login_provider(name: str) -> ProviderDiscovery:
    """Return the provider of this name if people may log in with it.

    Raises:
        LookupError: ANNALS_OIDC_FILE does not have such a provider.
    """
    for discovery in get_discoveries().values():
        if discovery.provider.name == name and discovery.provider.login:
            return discovery
    raise LookupError(name)
