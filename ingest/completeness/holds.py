"""Finds the days that must not be dropped yet, because they may still get rows.

Begin with `explain_days_to_hold`.
"""

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

# The clocks of producers differ by less than this.
CLOCK_TOLERANCE: Final = timedelta(hours=1)


def find_days_to_hold(days: Collection[TableAndDay]) -> dict[TableAndDay, str]:
    """Return which of the days may still get rows, with the reasons in English.

    See `explain_days_to_hold`.
    """
    reasons = explain_days_to_hold(days)
    return {table_day: join_english(explanations) for table_day, explanations in reasons.items()}


def find_unsettled_days(days: Collection[TableAndDay]) -> dict[TableAndDay, str]:
    """Return which of the days have unsettled messages, with the reasons in English.

    An unsettled message is an open message in quarantine, a message that is not read yet, or a
    message for which the ledger does not account. Days that are held for a different reason are
    left out; see `explain_days_to_hold`.
    """
    reasons = _explain_unsettled_days(days)
    return {table_day: join_english(explanations) for table_day, explanations in reasons.items()}


def explain_days_to_hold(
    days: Collection[TableAndDay],
) -> dict[TableAndDay, list[Explanation]]:
    """Return which of the days may still get rows, with the reasons.

    A day is held while it has unsettled messages: open messages in quarantine, unread messages, or
    messages for which the ledger does not account.

    All days of a table are held while it is not known whether a topic of the table has unread
    messages: the topic was never read, its end offset is not known, or its end offset is out of
    date. An end offset is out of date if a consumer last saw it before today (UTC) and more than
    SILENT ago.

    A topic does not hold days if it is retired, or if the brokers recently answered that it does
    not exist. Recently means today (UTC), or at most SILENT ago.
    """
    reasons = _explain_unsettled_days(days)
    unknown = _find_unknown_tables()
    for table_day in days:
        if table_day not in reasons and table_day[0] in unknown:
            reasons[table_day] = unknown[table_day[0]]
    return reasons


def _explain_unsettled_days(
    days: Collection[TableAndDay],
) -> dict[TableAndDay, list[Explanation]]:
    """Return which of the days have unsettled messages, with the reasons.

    See `explain_days_to_hold`.
    """
    if not days:
        return {}
    reasons: dict[TableAndDay, list[Explanation]] = {}
    for (table, day), count in _count_quarantined({table for table, _ in days}).items():
        if (table, day) in days:
            reasons.setdefault((table, day), []).append(Explanation(Code.UNRESOLVED, n=count))
    for unaccounted in _find_unaccounted():
        for table, day in days:
            is_possible_day = unaccounted.since is None or day >= unaccounted.since
            if table == unaccounted.table and is_possible_day:
                reasons.setdefault((table, day), []).append(unaccounted.reason)
    return reasons


def _find_unknown_tables() -> dict[str, list[Explanation]]:
    """Return the tables for which it is not known whether messages are unread, with the reasons.

    An unread message can belong to any day, so all days of such a table must be held.
    """
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


_COUNT_QUARANTINED = """
SELECT topic, coalesce(day, (coalesce(timestamp, first_seen) AT TIME ZONE 'UTC')::date), count(*)
FROM ingest_quarantine
WHERE status IN ('new', 'retrying', 'failed') AND topic = ANY(%(topics)s)
GROUP BY 1, 2
"""


def _count_quarantined(tables: Collection[str]) -> Counter[TableAndDay]:
    """Return the number of open messages in quarantine for each table and day."""
    topics = [topic for entity in ENTITIES if entity.table in tables for topic in entity.topics]
    counts: Counter[TableAndDay] = Counter()
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_QUARANTINED, {"topics": topics})
        for topic, day, count in cursor.fetchall():
            counts[BY_TOPIC[topic].table, day] += count
    return counts


class UnaccountedMessages(NamedTuple):
    """Messages of one topic partition that may still become rows of a table."""

    table: str
    since: date | None  # the first day that their versions can have; None: any day
    reason: Explanation


def _find_unaccounted() -> list[UnaccountedMessages]:
    """Return the messages that were not read yet, or that the ledger does not account for."""
    unaccounted: list[UnaccountedMessages] = []
    latest_plausible = clock.now() + CLOCK_TOLERANCE
    for entry in load_entries():
        entity = BY_TOPIC.get(entry.topic)
        if entity is None:
            continue
        where = f"{entry.topic}[{entry.partition}]"
        offset_count = entry.next_offset - entry.first_offset
        if entry.read != entry.settled or offset_count != entry.passed:
            reason = Explanation(Code.SUMS_WRONG, where=where)
            unaccounted.append(UnaccountedMessages(entity.table, None, reason))
        if entry.lag and not entry.retired:
            # Unread messages of the live topic are not older than the newest message that was
            # read, unless a wrong clock put its time into the future. A message of a migration
            # topic can have a version of any age.
            newest = entry.newest_timestamp if entry.topic == entity.topics[0] else None
            since = newest.astimezone(UTC).date() if newest and newest < latest_plausible else None
            code = Code.UNREAD_ONE if entry.lag == 1 else Code.UNREAD
            reason = Explanation(code, n=entry.lag, where=where)
            unaccounted.append(UnaccountedMessages(entity.table, since, reason))
    return unaccounted
