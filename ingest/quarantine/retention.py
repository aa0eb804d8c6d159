"""Removes quarantined messages with their documents when retention is over; the counts stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from history.window import Window
from ingest.quarantine.messages import Place, count_in_ledger
from ingest.store.ledger import Connection

MESSAGES_PER_TRANSACTION = 1_000

_REMOVE = """
DELETE FROM ingest_quarantine WHERE id = ANY(ARRAY(
    SELECT id FROM ingest_quarantine
    WHERE (status IN ('resolved', 'discarded') AND (day < %(settled)s OR first_seen < %(settled)s))
        OR (day < %(unsettled)s AND first_seen < %(held)s)
        OR (day > %(newest)s AND first_seen < %(unsettled)s)
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED))
RETURNING topic, topic_id, partition, "offset", status, outcome
"""


@dataclass(frozen=True, slots=True)
class Removed:
    """Numbers of messages. unsettled: nobody resolved or discarded them in time."""

    settled: int = 0
    unsettled: int = 0


def remove_old(connection: Connection, window: Window, hold_days: int, now: datetime) -> Removed:
    """Remove the messages whose version, or whose arrival, is older than the window; unsettled ones
    hold_days later, as long as they hold their day. The arrival of an unsettled message counts only
    if its day is after the window: a retry could store a version inside the window.

    Each thousand is a transaction of its own. The ledger counts them as quarantined forever.
    """
    unsettled = window.oldest - timedelta(days=hold_days)
    values = {
        "settled": _midnight(window.oldest),
        "unsettled": _midnight(unsettled),
        "newest": window.newest,
        "held": now - timedelta(days=hold_days),
        "limit": MESSAGES_PER_TRANSACTION,
    }
    removed, count = Removed(), MESSAGES_PER_TRANSACTION
    while count == MESSAGES_PER_TRANSACTION:
        with connection.transaction():
            rows = connection.execute(_REMOVE, values).fetchall()
            gone: defaultdict[Place, dict[int, bool]] = defaultdict(dict)
            for topic, topic_id, partition, offset, status, outcome in rows:
                if outcome != "stored":
                    place = str(topic), str(topic_id), int(partition)  # type: ignore[call-overload]
                    gone[place][int(offset)] = status != "resolved"  # type: ignore[call-overload]
            for place in sorted(gone):
                _keep_count(connection, place, gone[place])
        count = len(rows)
        settled = sum(row[-2] in ("resolved", "discarded") for row in rows)
        removed = Removed(removed.settled + settled, removed.unsettled + count - settled)
    return removed


def _keep_count(connection: Connection, place: Place, gone: Mapping[int, bool]) -> None:
    """Note in the ledger what was removed. gone: by offset, whether the message is still counted as
    quarantined. That it was not stored is not known any more."""
    counted = count_in_ledger(connection, place, (at for at, counts in gone.items() if counts))
    connection.execute(
        "UPDATE ingest_ledger SET quarantine_removed = quarantine_removed + %s,"
        " noted_from = greatest(noted_from, least(%s, next_offset))"
        " WHERE topic = %s AND topic_id = %s AND partition = %s",
        (len(counted), max(gone) + 1, *place),
    )


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
