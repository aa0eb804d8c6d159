"""Runs `annals gaps`: reads the days that changed, then opens and closes gaps."""

import time as clocks
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from django.db import connection, transaction

from history.completeness.gaps import judge
from history.completeness.gaps.scan import find_changed_days, lock_gaps, scan_day
from history.kinds.entities import ENTITIES
from history.models import GapRun
from history.store.days.window import Window
from history.store.versions import CLOCK_TOLERANCE

REMOVED_AT_ONCE = 10_000

# Closes the gaps that retention has reached. _EXPIRE and _DELETE_CLOSED follow an index, so a run
# without work costs two short index scans.
_EXPIRE = """
UPDATE version_gap SET closed_at = now(), outcome = 'expired'
WHERE closed_at IS NULL AND since < %s
"""
_DELETE_CLOSED = """
DELETE FROM version_gap WHERE id = ANY(ARRAY(
    SELECT id FROM version_gap WHERE closed_at < %s ORDER BY closed_at LIMIT %s))
"""
_FORGET_DOCUMENTS = "DELETE FROM gap_document WHERE newest_day < %s"
# A day is forgotten when it leaves the window. If the window moves back, the day is read again.
_FORGET_DAYS = "DELETE FROM gap_day WHERE day < %s"
# Makes all documents with missing versions pending: `judge_documents` decides their gaps again.
_MAKE_PENDING = """
INSERT INTO gap_pending (entity, id)
SELECT entity, id FROM gap_document WHERE lowest > 0 OR NOT versions @> range_merge(versions)
ON CONFLICT DO NOTHING
"""
_QUARANTINED = """
SELECT count(*) FROM (
    SELECT DISTINCT q.entity, q.entity_id, q.version FROM ingest_quarantine q
    JOIN version_gap g ON g.closed_at IS NULL AND g.entity = q.entity
        AND g.document = q.entity_id AND q.version BETWEEN g.first AND g.last
    WHERE q.entity_id <> '' AND q.status NOT IN ('resolved', 'discarded')
) AS missing
"""


@dataclass(frozen=True, slots=True)
class GapsOutcome:
    """The figures of one run of `annals gaps`."""

    days: int  # how many days were read
    documents: int  # for how many documents the gaps were decided again
    expired: int  # how many gaps were closed because they left the window
    seconds: float


def find_gaps(
    window: Window, now: datetime, report: Callable[[], None] = lambda: None
) -> GapsOutcome:
    """Read the days that got rows since the last run, and open and close gaps accordingly.

    The memory needed does not depend on the number of rows. A run may be killed at any moment, and
    two runs may run at once: each day, and each batch of documents, has a transaction of its own.

    Args:
        report: Called after each day that was read.
    """
    began = clocks.monotonic()
    days = documents = 0
    last_run = get_latest_run()
    if last_run is not None and last_run.removed_before > window.oldest:
        # The window has moved back: gaps that were closed as expired are inside it again.
        with connection.cursor() as cursor:
            cursor.execute(_MAKE_PENDING)
    for day in find_changed_days(window):
        days += scan_day(day)
        report()
    edge = datetime.combine(window.oldest, time(), UTC) + CLOCK_TOLERANCE
    for entity in judge.select_pending_kinds(ENTITIES):
        while judged := judge.judge_documents(entity, edge):
            documents += judged
    expired = _close_expired(window, edge, now, last_run)
    seconds = clocks.monotonic() - began
    _note_run(window, now, seconds, days)
    return GapsOutcome(days, documents, expired, seconds)


def get_latest_run() -> GapRun | None:
    """Return the latest complete run, or None before the first one."""
    return GapRun.objects.first()


def _close_expired(window: Window, edge: datetime, now: datetime, last_run: GapRun | None) -> int:
    """Close the gaps that retention has reached, and return how many were closed.

    Also delete what earlier runs stored about days before the window, and the gaps that were closed
    longer ago than the window is long.

    Args:
        edge: Versions before this moment may have been removed by retention.
    """
    window_length = timedelta(days=(window.newest - window.oldest).days)
    with transaction.atomic(), connection.cursor() as cursor:
        lock_gaps(cursor)
        cursor.execute(_EXPIRE, [edge])
        expired = int(cursor.rowcount)
        if last_run is None or last_run.removed_before != window.oldest:
            cursor.execute(_FORGET_DOCUMENTS, [window.oldest])
            cursor.execute(_FORGET_DAYS, [window.oldest])
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            lock_gaps(cursor)
            cursor.execute(_DELETE_CLOSED, [now - window_length, REMOVED_AT_ONCE])
            if cursor.rowcount < REMOVED_AT_ONCE:
                return expired


def _note_run(window: Window, now: datetime, seconds: float, read: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_QUARANTINED)
        (quarantined,) = cursor.fetchone() or (0,)
    fields = {
        "started_at": now,
        "seconds": seconds,
        "days": read,
        "quarantined": quarantined,
        "removed_before": window.oldest,
    }
    GapRun.objects.update_or_create(id=1, defaults=fields)
