"""Sessions: they end when they are idle for too long, and after some hours in any case."""

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
from history.store.database import prepared

PROVIDER: Final = "annals_provider"
BEGAN: Final = "annals_began"
LAST_SEEN: Final = "annals_seen"
CONFIRMED: Final = "annals_confirmed"
LEFT_BEHIND: Final = "annals_left_behind"
POLL: Final = "X-Annals-Poll"  # the header of requests that a page sends by itself
# How often to note that a session is in use. To note each request would cost more than it.
NOTE_EVERY_SECONDS: Final = 60.0
_SELECT_SESSION: Final = """
    SELECT session_data FROM django_session WHERE session_key = %(key)s AND expire_date > %(now)s
"""
SESSION_KEY_PATTERN: Final = re.compile("[a-z0-9]{32}")


class SessionStore(DatabaseStore):
    """Django's store of sessions. It ignores keys that it cannot have made."""

    def save(self, must_create: bool = False) -> None:
        """Save the session, unless it ended during the request."""
        try:
            super().save(must_create)
        except UpdateError:
            if must_create:
                raise

    def load(self) -> dict[str, Any]:
        """Load the session with one prepared statement."""
        for (data,) in prepared.fetch_rows(
            _SELECT_SESSION, {"key": self.session_key, "now": timezone.now()}
        ):
            session_data: dict[str, Any] = self.decode(data)
            return session_data
        self._session_key = None
        return {}

    def _validate_session_key(self, key: str | None) -> bool:
        return key is not None and SESSION_KEY_PATTERN.fullmatch(key) is not None


def fetch_user(key: Any, column: Literal["id", "username"] = "id") -> User | None:
    """Return the user with this id or name, active or not, or None.

    Each request reads the user again with one prepared statement, so that switching it off takes
    effect at once.
    """
    names = [field.attname for field in User._meta.concrete_fields]
    query = f"SELECT {', '.join(names)} FROM auth_user WHERE {column} = %(key)s"  # noqa: S608
    for row in prepared.fetch_rows(query, {"key": Int4(key) if column == "id" else key}):
        return User.from_db("default", names, row)
    return None


class SessionLimitMiddleware:
    """Middleware that ends sessions which are idle or old. It follows authentication."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if auth.SESSION_KEY in session:
            now = time.time()
            began = session.setdefault(BEGAN, now)
            seen = session.get(LAST_SEEN, now)
            if _is_over(began, seen, now):
                auth.logout(request)
                if _is_page_request(request):
                    return redirect_to_login(request.get_full_path())
            elif (renewal := self._start_renewal(request, now)) is not None:
                return renewal
            elif LAST_SEEN not in session or (
                now - seen > NOTE_EVERY_SECONDS and POLL not in request.headers
            ):
                session[LAST_SEEN] = now
        return self.get_response(request)

    @staticmethod
    def _start_renewal(request: HttpRequest, now: float) -> HttpResponse | None:
        """Return a redirect to the provider if it has to confirm the session and a page is opened.

        Other requests go on for one more interval. After that they are anonymous until the provider
        has confirmed the session.
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


def remember_provider(request: HttpRequest, **_: Any) -> None:
    """Remember the provider for the page after the logout. A receiver of user_logged_out."""
    setattr(request, LEFT_BEHIND, request.session.get(PROVIDER))


def require_confirmation(session_key: str) -> None:
    """Make a session anonymous until its provider confirms it."""
    session = SessionStore(session_key)
    if PROVIDER in session:
        session[CONFIRMED] = 0.0
        session.save()


def _is_over(began: float, seen: float, now: float) -> bool:
    limits = settings.ANNALS
    idle = now - seen > limits.session_idle_minutes * 60
    return idle or now - began > limits.session_hours * 3600


def _get_renewal_seconds() -> float:
    return float(settings.ANNALS.session_renew_minutes * 60)


def redirect_to_login(following: str) -> HttpResponseRedirect:
    """Redirect to the login page, which says that the session ended and leads to `following`."""
    query = urlencode({"next": following, "over": 1})
    return HttpResponseRedirect(f"{reverse('admin:login')}?{query}")


def _is_page_request(request: HttpRequest) -> bool:
    """Return whether a person opens a page of the screens. Only a page can be redirected."""
    path = request.path_info
    return (
        request.method == "GET"
        and POLL not in request.headers
        and path.startswith(reverse("admin:index"))
        and path not in (reverse("admin:login"), reverse("admin:logout"))
    )


# A login may take this long. It stores its provider session before its session.
LOGIN_PERIOD: Final = timedelta(hours=1)


def remove_ended_sessions(now: datetime) -> int:
    """Remove expired sessions and logout tokens, and provider sessions without a session.

    Returns:
        The number of removed rows.
    """
    live = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gte=now)
    return sum(
        rows.delete()[0]
        for rows in (
            Session.objects.filter(expire_date__lt=now),
            ProviderSession.objects.filter(~Exists(live), began__lt=now - LOGIN_PERIOD),
            LogoutToken.objects.filter(until__lt=now),
        )
    )
