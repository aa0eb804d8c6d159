"""The days that must not be dropped yet, because they may still get rows."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC, date, timedelta
from typing import Final

from django.db import connection

from history.common import clock
from history.common.consumer_silence import SILENT
from history.common.text_tables import pluralize
from history.kinds.entities import BY_TOPIC, ENTITIES
from ingest.completeness.ledger_rows import find_absent_topics, find_never_read_topics, load_entries

# Clocks of producers differ by less.
CLOCK_TOLERANCE: Final = timedelta(hours=1)

_QUARANTINED = """
SELECT topic, coalesce(day, (coalesce(timestamp, first_seen) AT TIME ZONE 'UTC')::date), count(*)
FROM ingest_quarantine
WHERE status IN ('new', 'retrying', 'failed') AND topic = ANY(%s)
GROUP BY 1, 2
"""


def find_unsettled_days(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
    """Return those of the days that may still get rows from unsettled messages, with the reason.

    A day is a table and a UTC day.
    """
    if not days:
        return {}
    reasons: dict[tuple[str, date], list[str]] = {}
    for (table, day), count in _count_quarantined({table for table, _ in days}).items():
        if (table, day) in days:
            reasons.setdefault((table, day), []).append(f"{count} unresolved in quarantine")
    for table, since, reason in _find_unaccounted():
        for held_table, day in days:
            if held_table == table and (since is None or day >= since):
                reasons.setdefault((table, day), []).append(reason)
    return {place: "; ".join(texts) for place, texts in reasons.items()}


def find_days_to_hold(days: Collection[tuple[str, date]]) -> dict[tuple[str, date], str]:
    """Return those of the days that may still get rows, with the reason.

    These are the unsettled days. All days of a table are held while one of its topics was never
    read, or while the end of the topic is unknown or was seen neither today (UTC) nor just now:
    earlier messages may wait there. A topic that does not exist holds nothing, and neither does a
    retired one.
    """
    reasons = find_unsettled_days(days)
    unknown = _find_unknown_tables()
    for place in days:
        if place not in reasons and place[0] in unknown:
            reasons[place] = unknown[place[0]]
    return reasons


def _find_unknown_tables() -> dict[str, str]:
    """Return the tables with topics that may hold unread messages, with the reason."""
    reasons_by_table: defaultdict[str, list[str]] = defaultdict(list)
    ledger, now = load_entries(), clock.now()
    for topic in find_never_read_topics(ledger):
        reasons_by_table[BY_TOPIC[topic].table].append(f"{topic} was never read")
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for topic, asked_at in find_absent_topics(ledger).items():
        if asked_at < min(midnight, now - SILENT):
            since = f"{asked_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reason = f"no consumer has asked since {since} whether {topic} exists"
            reasons_by_table[BY_TOPIC[topic].table].append(reason)
    for entry in ledger:
        if entry.topic not in BY_TOPIC or entry.retired:
            continue
        reasons = reasons_by_table[BY_TOPIC[entry.topic].table]
        where, seen = f"{entry.topic}[{entry.partition}]", entry.end_known_at
        if entry.lag is None or (seen is None and entry.current):
            reasons.append(f"the end of {where} is not known")
        elif entry.current and seen is not None and seen < min(midnight, now - SILENT):
            since = f"{seen.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reasons.append(f"no consumer has seen the end of {where} since {since}")
    return {table: "; ".join(texts) for table, texts in reasons_by_table.items() if texts}


def _count_quarantined(tables: Collection[str]) -> Counter[tuple[str, date]]:
    """Return the number of unresolved messages of each table and day."""
    topics = [topic for entity in ENTITIES if entity.table in tables for topic in entity.topics]
    counts: Counter[tuple[str, date]] = Counter()
    with connection.cursor() as cursor:
        cursor.execute(_QUARANTINED, [topics])
        for topic, day, count in cursor.fetchall():
            counts[BY_TOPIC[topic].table, day] += count
    return counts


def _find_unaccounted() -> list[tuple[str, date | None, str]]:
    """Return table, first affected day (None: any) and reason of each faulty topic partition."""
    reasons: list[tuple[str, date | None, str]] = []
    horizon = clock.now() + CLOCK_TOLERANCE
    for entry in load_entries():
        entity = BY_TOPIC.get(entry.topic)
        if entity is None:
            continue
        where = f"{entry.topic}[{entry.partition}]"
        span = entry.next_offset - entry.first_offset
        if entry.read != entry.settled or span != entry.passed:
            reasons.append((entity.table, None, f"the ledger of {where} does not add up"))
        if entry.lag and not entry.retired:
            # A migration topic carries old versions in new messages: their time says nothing. Nor
            # does a time that is still to come.
            newest = entry.newest_timestamp if entry.topic == entity.topics[0] else None
            since = newest.astimezone(UTC).date() if newest and newest < horizon else None
            reasons.append(
                (entity.table, since, f"{pluralize(entry.lag, 'message')} of {where} not read yet")
            )
    return reasons
