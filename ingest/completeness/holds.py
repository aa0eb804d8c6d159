"""Finds the days that must not be dropped yet, because they may still get rows."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC, date, timedelta
from typing import Final

from django.db import connection

from history.base import clock
from history.base.silence import SILENT
from history.base.table import counted
from history.entities import BY_TOPIC, ENTITIES
from ingest.completeness.figures import absent, entries, never_read

# Clocks of producers differ by less.
FUTURE: Final = timedelta(hours=1)

_QUARANTINED = """
SELECT topic, coalesce(day, (coalesce(timestamp, first_seen) AT TIME ZONE 'UTC')::date), count(*)
FROM ingest_quarantine
WHERE status IN ('new', 'retrying', 'failed') AND topic = ANY(%s)
GROUP BY 1, 2
"""


def unsettled(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
    """The given days (table and UTC day) that may still get rows, each with a reason to show."""
    if not days:
        return {}
    reasons: dict[tuple[str, date], list[str]] = {}
    for (table, day), count in _quarantined({table for table, _ in days}).items():
        if (table, day) in days:
            reasons.setdefault((table, day), []).append(f"{count} unresolved in quarantine")
    for table, since, why in _unaccounted():
        for held, day in days:
            if held == table and (since is None or day >= since):
                reasons.setdefault((table, day), []).append(why)
    return {place: "; ".join(why) for place, why in reasons.items()}


def may_get_rows(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
    """The given days that may still get rows, with a reason for people: those that are unsettled,
    and all days of a table while one of its topics was never read, or its end is not known or was
    not seen today (UTC) nor just now: messages of before may wait there. A topic that does not
    exist has its end at its beginning. Retired topics do not count."""
    reasons = unsettled(days)
    unknown = _unknown_topics()
    for place in days:
        if place not in reasons and place[0] in unknown:
            reasons[place] = unknown[place[0]]
    return reasons


def _unknown_topics() -> dict[str, str]:
    """The tables with topics that may hold unread messages, and which topics these are."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    ledger, now = entries(), clock.now()
    for topic in never_read(ledger):
        found[BY_TOPIC[topic].table].append(f"{topic} was never read")
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for topic, asked_at in absent(ledger).items():
        if asked_at < min(midnight, now - SILENT):
            since = f"{asked_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reason = f"no consumer has asked since {since} whether {topic} exists"
            found[BY_TOPIC[topic].table].append(reason)
    for entry in ledger:
        if entry.topic not in BY_TOPIC or entry.retired:
            continue
        reasons = found[BY_TOPIC[entry.topic].table]
        where, seen = f"{entry.topic}[{entry.partition}]", entry.end_known_at
        if entry.lag is None or (seen is None and entry.current):
            reasons.append(f"the end of {where} is not known")
        elif entry.current and seen is not None and seen < min(midnight, now - SILENT):
            since = f"{seen.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reasons.append(f"no consumer has seen the end of {where} since {since}")
    return {table: "; ".join(why) for table, why in found.items() if why}


def _quarantined(tables: Collection[str]) -> Counter[tuple[str, date]]:
    """The number of unresolved messages of each table and day."""
    topics = [topic for entity in ENTITIES if entity.table in tables for topic in entity.topics]
    counts: Counter[tuple[str, date]] = Counter()
    with connection.cursor() as cursor:
        cursor.execute(_QUARANTINED, [topics])
        for topic, day, count in cursor.fetchall():
            counts[BY_TOPIC[topic].table, day] += count
    return counts


def _unaccounted() -> list[tuple[str, date | None, str]]:
    """Table, first affected day (None: any) and reason, for each topic partition with a fault."""
    found: list[tuple[str, date | None, str]] = []
    horizon = clock.now() + FUTURE
    for entry in entries():
        entity = BY_TOPIC.get(entry.topic)
        if entity is None:
            continue
        where = f"{entry.topic}[{entry.partition}]"
        span = entry.next_offset - entry.first_offset
        if entry.read != entry.settled or span != entry.passed:
            found.append((entity.table, None, f"the ledger of {where} does not add up"))
        if entry.lag and not entry.retired:
            # A migration topic carries old versions in new messages: their time says nothing. Nor
            # does a time that is still to come.
            newest = entry.newest_timestamp if entry.topic == entity.topics[0] else None
            since = newest.astimezone(UTC).date() if newest and newest < horizon else None
            found.append(
                (entity.table, since, f"{counted(entry.lag, 'message')} of {where} not read yet")
            )
    return found
