"""mozilla-django-oidc's backend for several providers, with our own checks.

We use its flow and its PKCE. We replace the look-up of settings (one provider each), the calls to
the provider (bounded), the check of the ID token (issuer, audience, azp, times, nonce) and the
search for the user (issuer and subject in place of the e-mail).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.contrib.auth.models import User
from django.http import HttpRequest
from mozilla_django_oidc.auth import OIDCAuthenticationBackend

from annals.access.oidc import tokens
from annals.access.oidc.calls import ProviderDownError, ProviderRefusesError
from annals.access.oidc.claims import user_of
from annals.access.oidc.discovery import Discovery, discoveries
from history.logins import login

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
        """Raises tokens.TokenError, ProviderDownError and claims.NoRoleError: the callback shows
        a page for each."""
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
            return self._discovery.post(self._discovery.endpoint("token_endpoint"), form)
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
        found = self._discovery.get(address, {"Authorization": f"Bearer {access_token}"})
        if found.get("sub") != subject:
            raise tokens.TokenError("The provider's userinfo is about somebody else.")
        return found


def by_name(name: str) -> Discovery:
    """The provider of this name, for login. Raises LookupError."""
    for discovery in discoveries().values():
        if discovery.provider.name == name and discovery.provider.login:
            return discovery
    raise LookupError(name)
