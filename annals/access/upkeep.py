"""Removes what is left of logins that have ended; `partitions maintain` calls it each day."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef, QuerySet

from annals.access.models import LogoutToken, ProviderSession

ROWS_AT_ONCE: Final = 10_000
# A login stores its provider session before its session is complete.
BEGINS: Final = timedelta(hours=1)


def remove_ended(now: datetime) -> int:
    """Remove expired sessions, provider sessions without a session, and used logout tokens that
    count no more. Returns the number of rows. Each statement is a short transaction of its own."""
    live = Session.objects.filter(session_key=OuterRef("session_key"), expire_date__gte=now)
    return sum(
        _remove(rows)
        for rows in (
            Session.objects.filter(expire_date__lt=now),
            ProviderSession.objects.filter(~Exists(live), began__lt=now - BEGINS),
            LogoutToken.objects.filter(until__lt=now),
        )
    )


def _remove(rows: QuerySet[Any]) -> int:
    removed = 0
    while keys := list(rows.values_list("pk", flat=True)[:ROWS_AT_ONCE]):
        removed += rows.filter(pk__in=keys).delete()[0]
    return removed
