"""Counts failed logins by name and by address, and delays further ones before any hashing.

The counts are in the database, so that all web processes share them and a restart forgets none.
"""

from __future__ import annotations

import hashlib
import logging
import math
from datetime import timedelta
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.signals import user_logged_in, user_login_failed
from django.db import connection
from django.http import HttpRequest
from django.utils import timezone
from prometheus_client import Counter

from annals.access.address import client, network
from annals.access.journal.actions import BREAK_GLASS
from annals.access.models import Attempts

log = logging.getLogger(__name__)

FAILED: Final = Counter("annals_login_failures_total", "Failed logins with a password.", ["why"])
# Failures without a wait, for people who mistype. After them the wait doubles each time.
FREE: Final = {"name": 5, "address": 20}
FIRST_WAIT_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 900.0
# A name or an address without failures for this long starts again from zero.
FORGET: Final = timedelta(hours=1)


def address_of(request: HttpRequest | None) -> str:
    """The address of the client of a request."""
    if request is None:
        return "unknown"
    meta = request.META
    return client(
        meta.get("REMOTE_ADDR", ""),
        meta.get("HTTP_X_FORWARDED_FOR", ""),
        settings.TRUSTED_PROXIES,
    )


def wait_seconds(request: HttpRequest | None, name: str) -> int:
    """Seconds for which no password of this name or from this address is checked; 0: it is
    checked now. One query, by primary key."""
    keys = _keys(request, name)
    now = timezone.now()
    waits = [
        _wait(keys[each.key], each.failures) - (now - each.last).total_seconds()
        for each in Attempts.objects.filter(key__in=keys, last__gt=now - FORGET)
    ]
    return max(0, math.ceil(max(waits, default=0.0)))


def failed(request: HttpRequest | None, name: str, why: str = "wrong") -> None:
    """Count a failure, and leave a line with the name and the address."""
    FAILED.labels(why).inc()
    log.warning("login failed for %r from %s: %s", name[:150], address_of(request), why)
    if why == "wait":
        return  # otherwise a guesser could make the wait grow without end
    now = timezone.now()
    with connection.cursor() as cursor:
        # In one order, so that two failures at once do not wait for each other.
        for key in sorted(_keys(request, name)):
            cursor.execute(
                "INSERT INTO access_attempts AS a (key, failures, last) VALUES (%s, 1, %s)"
                " ON CONFLICT (key) DO UPDATE SET last = excluded.last, failures ="
                " CASE WHEN a.last < %s THEN 1 ELSE least(a.failures, 1000) + 1 END",
                (key, now, now - FORGET),
            )


def watch() -> None:
    """Count the failed logins, and clear the count at a successful one."""
    user_login_failed.connect(_on_failed, dispatch_uid="access.attempts")
    user_logged_in.connect(_on_success, dispatch_uid="access.attempts")


def _on_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    name = credentials.get("username")
    if isinstance(name, str):
        why = "wait" if getattr(request, "annals_wait", 0) else "wrong"
        failed(request, name, why)


def _on_success(request: HttpRequest | None, user: Any, **_: Any) -> None:
    log.info("login of %r from %s", user.get_username(), address_of(request))
    if request is not None and getattr(request, BREAK_GLASS, False):
        request.session[BREAK_GLASS] = True  # the journal says so at each look
    # The name is its owner's again. The address is not: it may be guessing at others.
    Attempts.objects.filter(key=_key("name", user.get_username())).delete()


def _keys(request: HttpRequest | None, name: str) -> dict[str, str]:
    return {
        _key("name", name): "name",
        _key("address", network(address_of(request))): "address",
    }


def _key(kind: str, value: str) -> str:
    return hashlib.sha256(f"{kind}\0{value.casefold()}".encode()).hexdigest()


def _wait(kind: str, failures: int) -> float:
    over = failures - FREE[kind]
    if over < 0:
        return 0.0
    return min(FIRST_WAIT_SECONDS * 2.0 ** min(over, 30), LONGEST_WAIT_SECONDS)
