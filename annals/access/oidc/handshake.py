"""What is remembered from the way to a provider until the way back: in a signed cookie, so that a
login that is only begun leaves no row.

The browser holds the nonce and the code verifier of its own login. It could have made them itself;
what counts is that another browser does not have them. A code works once, which the provider
ensures.
"""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.http import HttpRequest, HttpResponse
from django.urls import get_script_prefix

SECONDS: Final = 600
STATES: Final = "oidc_states"
NEXT: Final = "oidc_login_next"
# Logins that one browser can have begun, in several tabs.
AT_ONCE: Final = 4
# Browsers drop a cookie of more than 4096 bytes, its name and attributes included.
LONGEST: Final = 3800


class Handshake(SessionStore):
    """The library keeps this in the session; it takes the session's place while the library is at
    work. states: each has provider, next, nonce, code_verifier and added_on."""

    def get_session_cookie_age(self) -> int:
        """How long the signature is valid, in seconds."""
        return SECONDS

    @property
    def states(self) -> dict[str, dict[str, Any]]:
        """The logins that were begun, by their `state`."""
        found = self.get(STATES)
        return found if isinstance(found, dict) else {}

    def store(self, response: HttpResponse) -> None:
        """Send it with a response; without what is too old or too long to be sent."""
        oldest = sorted(self.states, key=lambda state: self.states[state]["added_on"])
        if not oldest:
            response.delete_cookie(_name(), path=_path())
            return
        for state in oldest[:-AT_ONCE]:
            del self.states[state]
        self.save()
        for state in oldest[-AT_ONCE:]:
            if len(self._text()) <= LONGEST:
                break
            self.states[state]["next"] = None  # it leads to the first page
            self.save()
        response.set_cookie(
            _name(),
            self._text(),
            max_age=SECONDS,
            path=_path(),
            secure=settings.SESSION_COOKIE_SECURE,
            httponly=True,
            samesite="Lax",
        )

    def _text(self) -> str:
        return self.session_key or ""


def of(request: HttpRequest) -> Handshake:
    """That of the browser; an empty one if it has none, or one that is too old or not ours."""
    return Handshake(request.COOKIES.get(_name()))


def _name() -> str:
    return f"{settings.COOKIE_PREFIX}annals_login"


def _path() -> str:
    """A cookie with the prefix has no other path."""
    return "/" if settings.COOKIE_PREFIX else f"{get_script_prefix()}oidc/"
