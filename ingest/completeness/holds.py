"""Finds the days that must not be dropped yet, because they may still get rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import UTC, date

from django.db import connection

from history.base.table import counted
from history.entities import BY_TOPIC, ENTITIES
from ingest.completeness.figures import entries, retired

_QUARANTINED = """
SELECT topic, coalesce(day, (coalesce(timestamp, first_seen) AT TIME ZONE 'UTC')::date), count(*)
FROM ingest_quarantine
WHERE status IN ('new', 'retrying', 'failed') AND topic = ANY(%s)
GROUP BY 1, 2
"""


def unsettled(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
    """The given days (table and UTC day) that may still get rows, each with a reason to show:
    unresolved messages in quarantine, ledger sums that do not add up, unread messages of that time.

    Messages that the broker deleted before they were read hold no day: waiting does not help.
    """
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
    and all days of a table while one of its topics was never read or its end is not known. Retired
    topics do not count."""
    reasons = unsettled(days)
    unknown = _unknown_topics({table for table, _ in days})
    for place in days:
        if place not in reasons and place[0] in unknown:
            reasons[place] = unknown[place[0]]
    return reasons


def _unknown_topics(tables: Collection[str]) -> dict[str, str]:
    """The tables with topics that may hold unread messages, and which topics these are."""
    found: dict[str, list[str]] = {}
    ledger, finished = entries(), retired()
    for entity in ENTITIES:
        if entity.table not in tables:
            continue
        for topic in entity.topics:
            if topic in finished:
                continue
            mine = [entry for entry in ledger if entry.topic == topic]
            if not mine:
                found.setdefault(entity.table, []).append(f"{topic} was never read")
            for entry in mine:
                if entry.lag is None:
                    where = f"{topic}[{entry.partition}]"
                    found.setdefault(entity.table, []).append(f"the end of {where} is not known")
    return {table: "; ".join(why) for table, why in found.items()}


def _quarantined(tables: Collection[str]) -> Counter[tuple[str, date]]:
    """The number of unresolved messages of each table and day: the day of updatedAt, or the day on
    which the message was sent."""
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
    for entry in entries():
        entity = BY_TOPIC.get(entry.topic)
        if entity is None:
            continue
        where = f"{entry.topic}[{entry.partition}]"
        settled = entry.stored + entry.repeated + entry.expired + entry.quarantined
        passed = entry.read + entry.skipped + entry.lost
        if entry.read != settled or entry.next_offset - entry.first_offset != passed:
            found.append((entity.table, None, f"the ledger of {where} does not add up"))
        if entry.lag and not entry.retired:
            # A migration topic carries old versions in new messages: their time says nothing.
            newest = entry.newest_timestamp if entry.topic == entity.topics[0] else None
            since = newest.astimezone(UTC).date() if newest else None
            found.append(
                (entity.table, since, f"{counted(entry.lag, 'message')} of {where} not read yet")
            )
    return found
