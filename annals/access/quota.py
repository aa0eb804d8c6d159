"""How many different applications a login may open in an hour, all web processes together."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from hashlib import blake2b
from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import User
from django.db import Error, OperationalError, connection, transaction

from annals import metrics
from annals.access.service import Service
from history import looks
from history.error_text import describe
from history.masking.reader import Caller
from history.need_to_know import QuotaError

log = logging.getLogger(__name__)

REASON: Final = "quota"
PEOPLE: Final = 200  # outside the demo, where ANNALS_QUOTA_PEOPLE is unset
SECONDS: Final = 3600
LOCK_TIMEOUT_MS: Final = 1000
# With the digest of the caller, the key of an advisory lock. No other lock has this first number.
LOCK: Final = 0x51074

_PERSON, _PROGRAM = (metrics.QUOTA_REFUSALS.labels(each) for each in ("person", "program"))

_KNOWN: Final = """
    SELECT application FROM access_opened
    WHERE caller = %s AND application = ANY(%s)
        AND at > statement_timestamp() - make_interval(secs => %s)
"""
# All of them are added, or none.
_ADD: Final = """
    WITH recent AS (
        SELECT application, at FROM access_opened
        WHERE caller = %(caller)s
            AND at > statement_timestamp() - make_interval(secs => %(seconds)s)
    ), fresh AS (
        SELECT unnest(%(wanted)s::varchar[]) AS application EXCEPT SELECT application FROM recent
    ), added AS (
        INSERT INTO access_opened (caller, application)
        SELECT %(caller)s, application FROM fresh
        WHERE (SELECT count(*) FROM recent) + (SELECT count(*) FROM fresh) <= %(limit)s
        RETURNING 1
    )
    SELECT (SELECT count(*) FROM fresh) = (SELECT count(*) FROM added),
        extract(epoch FROM (SELECT min(at) FROM recent) - statement_timestamp())::float8
            + %(seconds)s
"""


def limit_of(user: Caller) -> int:
    """Different applications an hour; 0: no limit. One query where ANNALS_QUOTA_ROLES is set."""
    if isinstance(user, Service):
        return settings.ANNALS.quota_programs
    if settings.QUOTAS and isinstance(user, User):
        roles = user.groups.values_list("name", flat=True)
        limits = [settings.QUOTAS[role] for role in roles if role in settings.QUOTAS]
        if limits:
            return 0 if 0 in limits else max(limits)
    given = settings.ANNALS.quota_people
    if given is None:
        return 0 if settings.ANNALS.demo else PEOPLE
    return given


def on_open(user: Caller, applications: Collection[str], **_: Any) -> None:
    """A receiver of history.signals.opens: counts every application that a reader opens. Raises
    QuotaError, or OperationalError where they cannot be counted."""
    limit = limit_of(user)
    if not limit:
        return
    try:
        wait = _wait_seconds(_digest(user), sorted(applications), limit)
    except Error as error:
        # As with the journal, which the database does not accept then either.
        if settings.ANNALS.journal_failure != "answer":
            raise OperationalError("opened applications cannot be counted") from error
        log.error(  # noqa: TRY400 - a trace of a database error would quote its row
            "applications opened cannot be counted: %s",
            describe(error),
        )
        return
    if wait is not None:
        looks.refused(REASON)
        (_PROGRAM if isinstance(user, Service) else _PERSON).inc()
        raise QuotaError(limit, wait)


def _wait_seconds(caller: str, wanted: list[str], limit: int) -> int | None:
    """None if these may be opened; they count from now on. Else the seconds until there is room.

    Requests of one caller add one after the other, so that no number of them at once passes the
    limit. What was opened in the last hour is opened again without a lock.
    """
    with connection.cursor() as cursor:
        cursor.execute(_KNOWN, [caller, wanted, SECONDS])
        known = {application for (application,) in cursor.fetchall()}
    if known.issuperset(wanted):
        return None
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true), pg_advisory_xact_lock(%s, hashtext(%s))",
            [str(LOCK_TIMEOUT_MS), LOCK, caller],
        )
        values: dict[str, Any] = {"caller": caller, "wanted": wanted, "limit": limit}
        values["seconds"] = SECONDS
        cursor.execute(_ADD, values)
        opened, wait = cursor.fetchone() or (False, None)
    return None if opened else max(1, math.ceil(wait or SECONDS))


def _digest(user: Caller) -> str:
    """Who opens: a person and a program of one name are two."""
    kind = "program" if isinstance(user, Service) else "person"
    return blake2b(f"{kind}\0{user.pk}".encode(), digest_size=16).hexdigest()
