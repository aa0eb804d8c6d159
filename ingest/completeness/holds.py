"""The days that must not be dropped yet, because they may still get rows."""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import UTC, date, timedelta
from typing import Final, NamedTuple, TypeAlias

from django.db import connection

from history.common import clock
from history.common.consumer_silence import SILENT
from history.kinds.entities import BY_TOPIC, ENTITIES
from ingest.completeness.ledger_rows import find_absent_topics, find_never_read_topics, load_entries
from ingest.messages.explanations import Code, Explanation, join_english

TableAndDay: TypeAlias = tuple[str, date]

# Clocks of producers differ by less.
CLOCK_TOLERANCE: Final = timedelta(hours=1)

_QUARANTINED = """
SELECT topic, coalesce(day, (coalesce(timestamp, first_seen) AT TIME ZONE 'UTC')::date), count(*)
FROM ingest_quarantine
WHERE status IN ('new', 'retrying', 'failed') AND topic = ANY(%s)
GROUP BY 1, 2
"""


def find_days_to_hold(days: Collection[TableAndDay]) -> dict[TableAndDay, str]:
    """Return those of the days that may still get rows, with the reasons in English.

    See `explain_days_to_hold`.
    """
    reasons = explain_days_to_hold(days)
    return {place: join_english(explanations) for place, explanations in reasons.items()}


def find_unsettled_days(days: Collection[TableAndDay]) -> dict[TableAndDay, str]:
    """Return those of the days that may still get rows from unsettled messages, with the reasons.

    The reasons are in English.
    """
    reasons = _explain_unsettled_days(days)
    return {place: join_english(explanations) for place, explanations in reasons.items()}


def explain_days_to_hold(
    days: Collection[TableAndDay],
) -> dict[TableAndDay, list[Explanation]]:
    """Return those of the days that may still get rows, with the reasons.

    These are the days of unsettled messages. All days of a table are held while one of its topics
    was never read, or while the end of the topic is unknown or was seen neither today (UTC) nor
    just now: earlier messages may wait there. A topic that does not exist holds nothing, and
    neither does a retired one.
    """
    reasons = _explain_unsettled_days(days)
    unknown = _find_unknown_tables()
    for place in days:
        if place not in reasons and place[0] in unknown:
            reasons[place] = unknown[place[0]]
    return reasons


def _explain_unsettled_days(
    days: Collection[TableAndDay],
) -> dict[TableAndDay, list[Explanation]]:
    """Return those of the days that may still get rows from unsettled messages."""
    if not days:
        return {}
    reasons: dict[TableAndDay, list[Explanation]] = {}
    for (table, day), count in _count_quarantined({table for table, _ in days}).items():
        if (table, day) in days:
            reasons.setdefault((table, day), []).append(Explanation(Code.UNRESOLVED, n=count))
    for table, since, reason in _find_unaccounted():
        for held_table, day in days:
            if held_table == table and (since is None or day >= since):
                reasons.setdefault((table, day), []).append(reason)
    return reasons


def _find_unknown_tables() -> dict[str, list[Explanation]]:
    """Return the tables with topics that may hold unread messages, with the reasons."""
    reasons_by_table: defaultdict[str, list[Explanation]] = defaultdict(list)
    ledger, now = load_entries(), clock.now()
    for topic in find_never_read_topics(ledger):
        reasons_by_table[BY_TOPIC[topic].table].append(Explanation(Code.NEVER_READ, where=topic))
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for topic, asked_at in find_absent_topics(ledger).items():
        if asked_at < min(midnight, now - SILENT):
            since = f"{asked_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reason = Explanation(Code.TOPIC_NOT_ASKED_FOR, where=topic, at=since)
            reasons_by_table[BY_TOPIC[topic].table].append(reason)
    for entry in ledger:
        if entry.topic not in BY_TOPIC or entry.retired:
            continue
        reasons = reasons_by_table[BY_TOPIC[entry.topic].table]
        where, seen = f"{entry.topic}[{entry.partition}]", entry.end_known_at
        if entry.lag is None or (seen is None and entry.current):
            reasons.append(Explanation(Code.END_UNKNOWN, where=where))
        elif entry.current and seen is not None and seen < min(midnight, now - SILENT):
            since = f"{seen.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            reasons.append(Explanation(Code.END_NOT_SEEN, where=where, at=since))
    return {table: reasons for table, reasons in reasons_by_table.items() if reasons}


def _count_quarantined(tables: Collection[str]) -> Counter[tuple[str, date]]:
    """Return the number of unresolved messages of each table and day."""
    topics = [topic for entity in ENTITIES if entity.table in tables for topic in entity.topics]
    counts: Counter[tuple[str, date]] = Counter()
    with connection.cursor() as cursor:
        cursor.execute(_QUARANTINED, [topics])
        for topic, day, count in cursor.fetchall():
            counts[BY_TOPIC[topic].table, day] += count
    return counts


class UnaccountedMessages(NamedTuple):
    """Messages of one topic partition that may still become rows."""

    table: str
    since: date | None  # the first day that they can have; None for any day
    reason: Explanation


def _find_unaccounted() -> list[UnaccountedMessages]:
    """Return what each topic partition has not read, or does not account for."""
    unaccounted: list[UnaccountedMessages] = []
    horizon = clock.now() + CLOCK_TOLERANCE
    for entry in load_entries():
        entity = BY_TOPIC.get(entry.topic)
        if entity is None:
            continue
        where = f"{entry.topic}[{entry.partition}]"
        span = entry.next_offset - entry.first_offset
        if entry.read != entry.settled or span != entry.passed:
            reason = Explanation(Code.SUMS_WRONG, where=where)
            unaccounted.append(UnaccountedMessages(entity.table, None, reason))
        if entry.lag and not entry.retired:
            # A migration topic carries old versions in new messages: their time says nothing. Nor
            # does a time that is still to come.
            newest = entry.newest_timestamp if entry.topic == entity.topics[0] else None
            since = newest.astimezone(UTC).date() if newest and newest < horizon else None
            code = Code.UNREAD_ONE if entry.lag == 1 else Code.UNREAD
            reason = Explanation(code, n=entry.lag, where=where)
            unaccounted.append(UnaccountedMessages(entity.table, since, reason))
    return unaccounted
