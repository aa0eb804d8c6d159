"""Programs at the API: `Authorization: Bearer` with a JWT of a provider of ANNALS_OIDC_FILE."""

import logging
from typing import Final

from django.conf import settings
from django.utils.translation import gettext
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.request import Request

from annals.access.oidc import tokens
from annals.access.oidc.discovery import ProviderDownError, discoveries
from annals.access.roles import Service
from history.api.errors import UnavailableError

log = logging.getLogger(__name__)

REALM: Final = 'Bearer realm="annals"'
_ERROR: Final = "annals_bearer_error"


class BearerToken(BaseAuthentication):
    """401 with the reason for a token that is refused, 403 where it lacks the scope, 503 where its
    issuer cannot be asked for its keys. The issuer is not asked on every request."""

    def authenticate(self, request: Request) -> tuple[Service, None] | None:
        given = request.headers.get("Authorization", "")
        scheme, _space, token = given.partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return tokens.bearer(token.strip(" "), discoveries()), None
        except tokens.TokenError as error:
            log.warning("Bearer token refused: %s", error)
            setattr(request._request, _ERROR, str(error))
            raise AuthenticationFailed(gettext(str(error))) from None
        except tokens.ScopeError as error:
            log.warning("Bearer token refused: %s", error)
            raise _insufficient(str(error)) from None
        except ProviderDownError as error:
            log.warning("Bearer tokens cannot be checked: %s", error)
            raise UnavailableError(gettext("the issuer of the token cannot be reached")) from None

    def authenticate_header(self, request: Request) -> str:
        """The challenge of a 401: what was wrong with the token, or what would be accepted."""
        why = getattr(request._request, _ERROR, None)
        if why is not None:
            return f'{REALM}, error="invalid_token", error_description="{why}"'
        ways = [
            *([REALM] if settings.OIDC_PROVIDERS else []),
            *(['Basic realm="annals"'] if settings.ANNALS.demo else []),
        ]
        return ", ".join(ways) or 'Session realm="annals"'


def _insufficient(why: str) -> PermissionDenied:
    error = PermissionDenied(why)
    scopes = " ".join(sorted({provider.scope for provider in settings.OIDC_PROVIDERS}))
    error.auth_header = (  # type: ignore[attr-defined] # history.api.errors sends it
        f'{REALM}, error="insufficient_scope", scope="{scopes}"'
    )
    return error
