"""Ends idle and old sessions, and lets the identity provider confirm the remaining sessions."""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

from annals.access.sessions import (
    BEGAN,
    CONFIRMED,
    LAST_SEEN,
    POLL,
    PROVIDER,
    redirect_to_login,
)

# How often to store that a session is in use. Storing it at each request would cost more than the
# request.
NOTE_EVERY_SECONDS: Final = 60.0


class SessionLimitMiddleware:
    """Middleware that ends idle and old sessions, and renews sessions at identity providers.

    To renew a session, the middleware redirects the browser to the identity provider, which must
    confirm the login. The middleware comes after Django's AuthenticationMiddleware.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if auth.SESSION_KEY in session:
            now = time.time()
            began = session.setdefault(BEGAN, now)
            last_seen = session.get(LAST_SEEN, now)
            if _is_over(began, last_seen, now):
                auth.logout(request)
                if _is_page_request(request):
                    return redirect_to_login(request.get_full_path())
            elif (renewal := self._start_renewal(request, now)) is not None:
                return renewal
            elif LAST_SEEN not in session or (
                now - last_seen > NOTE_EVERY_SECONDS and POLL not in request.headers
            ):
                session[LAST_SEEN] = now
        return self.get_response(request)

    @staticmethod
    def _start_renewal(request: HttpRequest, now: float) -> HttpResponse | None:
        """Return a redirect to the provider that has to confirm the session now, or None.

        Only a request that opens a page is redirected. Other requests are answered as before for
        one more interval. After that, they are treated as anonymous until the provider has
        confirmed the session.
        """
        session = request.session
        provider = session.get(PROVIDER)
        if provider is None:
            return None
        interval = _get_renewal_seconds()
        elapsed = now - session.setdefault(CONFIRMED, now)
        if elapsed <= interval or not _is_page_request(request):
            if elapsed > 2 * interval:
                request.user = AnonymousUser()
            return None
        try:
            address = reverse(f"oidc-login-{provider}")
        except NoReverseMatch:  # the provider was taken out of the file
            auth.logout(request)
            return None
        query = urlencode({"renew": "1", "next": request.get_full_path()})
        return HttpResponseRedirect(f"{address}?{query}")


def _is_over(began: float, last_seen: float, now: float) -> bool:
    limits = settings.ANNALS
    idle = now - last_seen > limits.session_idle_minutes * 60
    return idle or now - began > limits.session_hours * 3600


def _get_renewal_seconds() -> float:
    return float(settings.ANNALS.session_renew_minutes * 60)


def _is_page_request(request: HttpRequest) -> bool:
    """Return whether the request opens a page of the screens. Only these can be redirected."""
    path = request.path_info
    return (
        request.method == "GET"
        and POLL not in request.headers
        and path.startswith(reverse("admin:index"))
        and path not in (reverse("admin:login"), reverse("admin:logout"))
    )
