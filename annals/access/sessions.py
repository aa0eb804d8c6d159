"""Stores sessions, ends them, and reads their users."""

import re
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from psycopg.types.numeric import Int4

from annals.access.models import LogoutToken, ProviderSession
from history.store.database import prepared

PROVIDER: Final = "annals_provider"
BEGAN: Final = "annals_began"
LAST_SEEN: Final = "annals_seen"
CONFIRMED: Final = "annals_confirmed"
# The attribute of a request with the provider where the person is still logged in.
OPEN_PROVIDER: Final = "annals_left_behind"
POLL: Final = "X-Annals-Poll"  # the header of requests that a page sends by itself
_SELECT_SESSION: Final = """
    SELECT session_data FROM django_session WHERE session_key = %(key)s AND expire_date > %(now)s
"""
SESSION_KEY_PATTERN: Final = re.compile("[a-z0-9]{32}")


class SessionStore(DatabaseStore):
    """Django's store of sessions. It ignores session keys that Django cannot have generated."""

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
    """Return the user with this id or name, active or not, or None if there is no such user.

    Each request reads its user again with one prepared statement. So a user that was switched off
    cannot go on with a session.
    """
    names = [field.attname for field in User._meta.concrete_fields]
    query = f"SELECT {', '.join(names)} FROM auth_user WHERE {column} = %(key)s"  # noqa: S608
    for row in prepared.fetch_rows(query, {"key": Int4(key) if column == "id" else key}):
        return User.from_db("default", names, row)
    return None


def remember_provider(request: HttpRequest, **_: Any) -> None:
    """Note in the request the provider of the session that has just ended.

    The page after the logout says that the person is still logged in at this provider. Django calls
    this function for the signal user_logged_out.
    """
    setattr(request, OPEN_PROVIDER, request.session.get(PROVIDER))


def require_confirmation(session_key: str) -> None:
    """Make a session anonymous until its provider confirms that the person is still logged in."""
    session = SessionStore(session_key)
    if PROVIDER in session:
        session[CONFIRMED] = 0.0
        session.save()


def redirect_to_login(following: str) -> HttpResponseRedirect:
    """Redirect to the login page, which says that the session ended.

    After the login, the browser goes to `following`.
    """
    query = urlencode({"next": following, "over": 1})
    return HttpResponseRedirect(f"{reverse('admin:login')}?{query}")


# A provider session that is younger than this is not removed, even if Annals has no session for it:
# its login may still be in progress.
LOGIN_PERIOD: Final = timedelta(hours=1)


def remove_ended_sessions(now: datetime) -> int:
    """Remove sessions and logout tokens that have expired.

    Also remove the rows of provider sessions for which Annals has no session any more.

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
