"""How long a login lasts: it ends when it is idle too long, and in any case after some hours."""

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import auth
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from psycopg.types.numeric import Int4

from annals.access.models import LogoutToken, ProviderSession
from history.database import prepared

PROVIDER: Final = "annals_provider"
BEGAN: Final = "annals_began"
SEEN: Final = "annals_seen"
CONFIRMED: Final = "annals_confirmed"
LEFT_BEHIND: Final = "annals_left_behind"
POLL: Final = "X-Annals-Poll"  # the header of what a page asks while nobody does anything
# Writing the session on each request would cost more than the request.
NOTE_EVERY_SECONDS: Final = 60.0
_LOAD: Final = """
    SELECT session_data FROM django_session WHERE session_key = %(key)s AND expire_date > %(now)s
"""
KEY: Final = re.compile("[a-z0-9]{32}")


class SessionStore(DatabaseStore):
    """Django's, which looks for no other keys than it makes."""

    def save(self, must_create: bool = False) -> None:
        """As Django's, but a session that has ended during the request stays ended."""
        try:
            super().save(must_create)
        except UpdateError:
            if must_create:
                raise

    def load(self) -> dict[str, Any]:
        """As Django's, by one prepared statement."""
        for (data,) in prepared.fetch(_LOAD, {"key": self.session_key, "now": timezone.now()}):
            found: dict[str, Any] = self.decode(data)
            return found
        self._session_key = None
        return {}

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and KEY.fullmatch(key) is not None


def login(key: Any, by: Literal["id", "username"] = "id") -> User | None:
    """The user with this id or name, active or not; None if there is none. By one prepared
    statement, anew with every request, so that one that is switched off counts at once."""
    names = [each.attname for each in User._meta.concrete_fields]
    query = f"SELECT {', '.join(names)} FROM auth_user WHERE {by} = %(key)s"  # noqa: S608
    for row in prepared.fetch(query, {"key": Int4(key) if by == "id" else key}):
        return User.from_db("default", names, row)
    return None


class SessionLimits:
    """Middleware, after authentication. Logs a session out that is over; the page says why."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if auth.SESSION_KEY in session:
            now = time.time()
            began = session.setdefault(BEGAN, now)
            seen = session.get(SEEN, now)
            if _is_over(began, seen, now):
                auth.logout(request)
                if _is_page(request):
                    return to_login(request.get_full_path())
            elif (renewal := self._renewal(request, now)) is not None:
                return renewal
            elif SEEN not in session or (
                now - seen > NOTE_EVERY_SECONDS and POLL not in request.headers
            ):
                session[SEEN] = now
        return self.get_response(request)

    @staticmethod
    def _renewal(request: HttpRequest, now: float) -> HttpResponse | None:
        """A redirect to the provider, if it is time and a person opens a page. Other requests go on
        for as long again; after that they are anonymous until the provider was asked."""
        session = request.session
        provider = session.get(PROVIDER)
        if provider is None:
            return None
        interval = _interval()
        since = now - session.setdefault(CONFIRMED, now)
        if since <= interval or not _is_page(request):
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


def on_logout(request: HttpRequest, **_: Any) -> None:
    """A receiver of user_logged_out: remembers the provider for the page after the logout."""
    setattr(request, LEFT_BEHIND, request.session.get(PROVIDER))


def ask_again(session_key: str) -> None:
    """This session counts as anonymous until its provider confirmed it."""
    session = SessionStore(session_key)
    if PROVIDER in session:
        session[CONFIRMED] = 0.0
        session.save()


def _is_over(began: float, seen: float, now: float) -> bool:
    limits = settings.ANNALS
    idle = now - seen > limits.session_idle_minutes * 60
    return idle or now - began > limits.session_hours * 3600


def _interval() -> float:
    return float(settings.ANNALS.session_renew_minutes * 60)


def to_login(following: str) -> HttpResponseRedirect:
    """To the login page, which says that a login has ended, and from there to `following`."""
    query = urlencode({"next": following, "over": 1})
    return HttpResponseRedirect(f"{reverse('admin:login')}?{query}")


def _is_page(request: HttpRequest) -> bool:
    """Whether a person asks for a page of the screens: only then a redirect is seen."""
    path = request.path_info
    return (
        request.method == "GET"
        and POLL not in request.headers
        and path.startswith(reverse("admin:index"))
        and path not in (reverse("admin:login"), reverse("admin:logout"))
    )


# A login stores its provider session before its session is complete.
BEGINS: Final = timedelta(hours=1)


def remove_ended(now: datetime) -> int:
    """Remove expired sessions, provider sessions without a session, and used logout tokens that
    count no more. Returns the number of rows."""
    live = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gte=now)
    return sum(
        rows.delete()[0]
        for rows in (
            Session.objects.filter(expire_date__lt=now),
            ProviderSession.objects.filter(~Exists(live), began__lt=now - BEGINS),
            LogoutToken.objects.filter(until__lt=now),
        )
    )
