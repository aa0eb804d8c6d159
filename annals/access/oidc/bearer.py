"""Authenticates programs at the API: `Authorization: Bearer` with a JWT of a provider."""

import logging
from typing import Final

from django.conf import settings
from django.utils.translation import gettext
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from annals.access.oidc import tokens
from annals.access.oidc.discovery import ProviderDownError, get_discoveries
from annals.access.roles import ProgramUser
from history.common.error_answers import UnavailableError

log = logging.getLogger(__name__)

REALM: Final = 'Bearer realm="annals"'
_ERROR_ATTRIBUTE: Final = "annals_bearer_error"


class BearerAuthentication(BaseAuthentication):
    """The authentication of API requests that have a Bearer token.

    The answer is 401 with the reason if the token is refused, 403 if it lacks the scope, and 503
    if the keys of the issuer cannot be fetched. The keys are remembered between requests.
    """

    def authenticate(self, request: Request) -> tuple[ProgramUser, None] | None:
        header = request.headers.get("Authorization", "")
        scheme, _space, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return tokens.verify_bearer_token(token.strip(" "), get_discoveries()), None
        except tokens.TokenError as error:
            log.warning("Bearer token refused: %s", error)
            setattr(request._request, _ERROR_ATTRIBUTE, str(error))
            raise AuthenticationFailed(gettext(str(error))) from None
        except tokens.ScopeError as error:
            log.warning("Bearer token refused: %s", error)
            raise _make_scope_error(str(error)) from None
        except ProviderDownError as error:
            log.warning("Bearer tokens cannot be checked: %s", error)
            raise UnavailableError(gettext("the issuer of the token cannot be reached")) from None

    def authenticate_header(self, request: Request) -> str:
        """Return the challenge of a 401: why the token was refused, or what would be accepted."""
        error = getattr(request._request, _ERROR_ATTRIBUTE, None)
        if error is not None:
            return f'{REALM}, error="invalid_token", error_description="{error}"'
        challenges = [
            *([REALM] if settings.OIDC_PROVIDERS else []),
            *(['Basic realm="annals"'] if settings.ANNALS.demo else []),
        ]
        return ", ".join(challenges) or 'Session realm="annals"'


def _make_scope_error(detail: str) -> PermissionDenied:
    error = PermissionDenied(detail)
    scopes = " ".join(sorted({provider.scope for provider in settings.OIDC_PROVIDERS}))
    error.auth_header = (  # type: ignore[attr-defined] # history.common.error_answers sends it
        f'{REALM}, error="insufficient_scope", scope="{scopes}"'
    )
    return error
