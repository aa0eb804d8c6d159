"""How long a login lasts: it ends when it is idle too long, and in any case after some hours. In
between, the provider is asked again about its people."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse

PROVIDER: Final = "annals_provider"
BEGAN: Final = "annals_began"
SEEN: Final = "annals_seen"
CONFIRMED: Final = "annals_confirmed"
# Writing the session on each request would cost more than the request.
NOTE_EVERY_SECONDS: Final = 60.0


class SessionLimits:
    """Middleware, after authentication. A session that is over is logged out: the page then asks
    for a log-in."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if auth.SESSION_KEY in session:
            now = time.time()
            began = session.setdefault(BEGAN, now)
            seen = session.get(SEEN, now)
            limits = settings.ANNALS
            if now - began > limits.session_hours * 3600 or now - seen > (
                limits.session_idle_minutes * 60
            ):
                auth.logout(request)
            elif (renewal := self._renewal(request, now)) is not None:
                return renewal
            elif now - seen > NOTE_EVERY_SECONDS or SEEN not in session:
                session[SEEN] = now
        return self.get_response(request)

    @staticmethod
    def _renewal(request: HttpRequest, now: float) -> HttpResponse | None:
        """A redirect to the provider, if it is time to ask it again and a person opens a page.

        Only a page can be redirected. Other requests go on for as long again, for a form that is
        being filled in; after that they count as anonymous until the provider was asked.
        """
        session = request.session
        provider = session.get(PROVIDER)
        if provider is None:
            return None
        interval = settings.ANNALS.session_renew_minutes * 60
        since = now - session.setdefault(CONFIRMED, now)
        page = request.method == "GET" and request.path_info.startswith(reverse("admin:index"))
        if since <= interval or not page:
            if since > 2 * interval:
                request.user = AnonymousUser()
            return None
        try:
            address = reverse(f"oidc-login-{provider}")
        except NoReverseMatch:  # the provider was taken out of the file
            auth.logout(request)
            return None
        back = urlencode({"renew": "1", "next": request.get_full_path()})
        return HttpResponseRedirect(f"{address}?{back}")
