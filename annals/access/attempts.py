"""Counts attempts to log in with a password before any hashing, and delays those that follow
failures.

The counts are in the database, so that all web processes share them and a restart forgets none.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest
from django.utils import timezone

from annals import metrics
from annals.access.address import client, network, within
from annals.access.journal.words import BREAK_GLASS

log = logging.getLogger(__name__)

# Failures without a wait. After them the wait doubles each time. pair: of one name from one
# address, for people who mistype. name: of one name from all addresses that are not operators', so
# that nobody delays a login from the operators' networks by guessing elsewhere.
FREE: Final = {"pair": 5, "address": 20, "name": 100}
FIRST_WAIT_SECONDS: Final = 2.0
LONGEST_WAIT_SECONDS: Final = 900.0
# A count without failures for this long starts again from zero.
FORGET: Final = timedelta(hours=1)

_COUNTS: Final = """
    SELECT key, failures, last FROM access_attempts WHERE key = ANY(%s) AND last > %s ORDER BY key
"""
_LOCKED: Final = f"{_COUNTS} FOR UPDATE"


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


def wait_of(request: HttpRequest | None, name: str) -> int:
    """The seconds that an attempt would have to wait now. Counts nothing."""
    keys, now = _keys(request, name), timezone.now()
    return _wait_seconds(keys, _counts(keys, now), now)


def begin(request: HttpRequest | None, name: str) -> int:
    """Count an attempt as a failure, unless it has to wait. Returns the seconds to wait; 0: the
    password can be checked now.

    The rows of the counts are locked while they are read and increased, so that any number of
    attempts at once is no more than one after the other.
    """
    keys = _keys(request, name)
    now = timezone.now()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO access_attempts (key, failures, last)"
            " SELECT key, 0, %s FROM unnest(%s::varchar[]) AS key ORDER BY key"
            " ON CONFLICT DO NOTHING",
            [now, list(keys)],
        )
        counts = _counts(keys, now, lock=True)
        wait = _wait_seconds(keys, counts, timezone.now())
        if not wait:
            cursor.execute(
                "UPDATE access_attempts SET last = %s, failures ="
                " CASE WHEN last < %s THEN 1 ELSE least(failures, 1000) + 1 END"
                " WHERE key = ANY(%s)",
                [timezone.now(), now - FORGET, list(keys)],
            )
    return wait


def succeeded(request: HttpRequest | None, name: str) -> None:
    """The password was right: the attempt was no failure. The count of this name from this address
    starts again. The other two only go down by one: they may count somebody else's guesses."""
    with connection.cursor() as cursor:
        # One statement for each row: none of them waits while it holds another one.
        for key, kind in _keys(request, name).items():
            if kind == "pair":
                cursor.execute("DELETE FROM access_attempts WHERE key = %s", [key])
            else:
                cursor.execute(
                    "UPDATE access_attempts SET failures = greatest(failures - 1, 0)"
                    " WHERE key = %s",
                    [key],
                )


def on_failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """A receiver of user_login_failed: leaves a line at each failed login."""
    name = credentials.get("username")
    if isinstance(name, str):
        why = "wait" if getattr(request, "annals_wait", 0) else "wrong"
        metrics.LOGIN_FAILURES.labels(why).inc()
        log.warning("login failed for %r from %s: %s", name[:150], address_of(request), why)


def on_success(request: HttpRequest | None, user: Any, **_: Any) -> None:
    """A receiver of user_logged_in: leaves a line at each successful login."""
    log.info("login of %r from %s", user.get_username(), address_of(request))
    if request is not None and getattr(request, BREAK_GLASS, False):
        request.session[BREAK_GLASS] = True  # the journal says so at each look


def _keys(request: HttpRequest | None, name: str) -> dict[str, str]:
    """The counts of an attempt, by their keys, and of which kind each is."""
    address = address_of(request)
    one = network(address)
    keys = {_key("pair", f"{name}\0{one}"): "pair", _key("address", one): "address"}
    if not within(address, settings.OPERATOR_NETWORKS):
        keys[_key("name", name)] = "name"
    return keys


def _key(kind: str, value: str) -> str:
    return hashlib.sha256(f"{kind}\0{value.casefold()}".encode("utf-8", "replace")).hexdigest()


def _counts(
    keys: Iterable[str], now: datetime, *, lock: bool = False
) -> list[tuple[str, int, datetime]]:
    """Key, failures and time of the last one. lock: until the end of the transaction, in one order,
    so that two attempts never wait for each other."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCKED if lock else _COUNTS, [list(keys), now - FORGET])
        return [(key, failures, last) for key, failures, last in cursor.fetchall()]


def _wait_seconds(
    keys: dict[str, str], counts: list[tuple[str, int, datetime]], now: datetime
) -> int:
    # An attempt that was counted while this one began may be later than `now`.
    waits = [
        _wait(keys[key], failures) - max(0.0, (now - last).total_seconds())
        for key, failures, last in counts
    ]
    return max(0, math.ceil(max(waits, default=0.0)))


def _wait(kind: str, failures: int) -> float:
    over = failures - FREE[kind]
    if over < 0:
        return 0.0
    return min(FIRST_WAIT_SECONDS * 2.0 ** min(over, 30), LONGEST_WAIT_SECONDS)
