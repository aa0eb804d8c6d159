"""Says up to which moment everything that was sent has been read, according to the ledger.

A message that was read is stored, or in quarantine if it cannot be stored.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from history.common import clock
from history.common.consumer_silence import (
    SILENT,
    Silence,
    find_main_silence,
    find_silence,
)
from history.kinds.entities import EntityKind
from history.store.database import prepared
from history.timeline import absence
from history.timeline.open_messages import OpenMessagesQuestion


@dataclass(frozen=True, slots=True)
class StoreCompleteness:
    """How complete the store is for some kinds. Retired topics do not count."""

    complete_to: datetime | None  # everything sent up to this moment was read; None if not known
    lag_messages: int | None  # how many messages are sent but not read yet; None if not known
    halted: bool  # whether reading stopped because of too many bad messages
    # since when news of the topics of these kinds is missing, and why; None if no news is missing
    silence: Silence | None
    retention_start: datetime  # versions from before this moment are not kept
    read_at: datetime  # when this was read from the database
    stored: bool = True  # whether no message of these kinds is in quarantine

    @property
    def lag_seconds(self) -> float | None:
        """How many seconds ago `complete_to` was; None if it is not known."""
        if self.complete_to is None:
            return None
        return max(0.0, round((self.read_at - self.complete_to).total_seconds(), 3))

    @property
    def late(self) -> bool:
        """Whether unread messages have waited for longer than SILENT, or for an unknown time."""
        lag = self.lag_seconds
        return bool(self.lag_messages) and (lag is None or lag > SILENT.total_seconds())


# Selects a row for each topic partition. For a topic that was never read, this is one row of NULLs.
# If a topic was deleted and created again, its newest row counts. A topic that did not exist when a
# consumer asked for it counts as read up to that moment.
_LEDGER = """
    SELECT DISTINCT ON (t.topic, l.partition)
        CASE WHEN a.topic IS NULL THEN l.high_watermark - l.next_offset ELSE 0 END,
        l.newest_timestamp, coalesce(l.end_known_at, a.asked_at),
        l.halted_at IS NOT NULL, coalesce(l.checked_at, a.asked_at), (SELECT EXISTS (
            SELECT FROM ingest_quarantine q
            WHERE q.entity = ANY(%(kinds)s::text[]) AND q.status IN ('new', 'retrying', 'failed')
        ))
    FROM unnest(%(topics)s::text[]) AS t(topic) LEFT JOIN ingest_ledger l ON l.topic = t.topic
    LEFT JOIN ingest_asked_topic a ON a.topic = t.topic AND a.absent AND l.topic IS NULL
    WHERE NOT EXISTS (SELECT FROM ingest_retired_topic r WHERE r.topic = t.topic)
    ORDER BY t.topic, l.partition, l.checked_at DESC
"""


def read_completeness(entities: Iterable[EntityKind]) -> StoreCompleteness:
    """Return how complete the store is for these kinds. The worst topic partition decides."""
    return _find_worst(prepared.fetch_rows(*_make_ledger_query(entities)))


def read_completeness_and_messages(
    question: OpenMessagesQuestion,
) -> tuple[StoreCompleteness, prepared.FetchedRows]:
    """Read in one round trip how complete the store is, and which messages are open.

    Because both are read together, every message up to `complete_to` is either stored or open.

    Args:
        question: Names the kinds, and has the query for the open messages.

    Returns:
        The completeness, and the rows of the open messages for
        history.timeline.select_open_messages.
    """
    ledger, messages = prepared.fetch_pipelined(
        [_make_ledger_query(question.kinds), question.statement]
    )
    return _find_worst(ledger), messages


def _make_ledger_query(entities: Iterable[EntityKind]) -> prepared.Statement:
    kinds = list(entities)
    topics = [topic for entity in kinds for topic in entity.topics]
    return _LEDGER, {"topics": topics, "kinds": [entity.name for entity in kinds]}


def _find_worst(rows: prepared.FetchedRows) -> StoreCompleteness:
    partitions = [row[:-1] for row in rows]
    lags = [lag for lag, *_ in partitions if lag is not None]
    moments = [_find_complete_to(*row[:-1]) for row in partitions]
    known_moments = [moment for moment in moments if moment is not None]
    now = clock.now()
    return StoreCompleteness(
        complete_to=min(known_moments, default=now) if len(known_moments) == len(moments) else None,
        lag_messages=sum(max(0, lag) for lag in lags) if len(lags) == len(partitions) else None,
        halted=any(halted for *_, halted, _ in partitions),
        silence=find_main_silence(
            find_silence(reported_at, end_known_at, now)
            for *_, end_known_at, _, reported_at in partitions
            if reported_at
        ),
        retention_start=absence.get_retention_start(),
        read_at=now,
        stored=not any(is_held for *_, is_held in rows),
    )


def _find_complete_to(
    lag: int | None, newest: datetime | None, end_known_at: datetime | None, halted: bool
) -> datetime | None:
    """Return the moment up to which one topic partition is complete.

    If everything was read, this is `end_known_at`. Otherwise it is `newest`, but not later than
    `end_known_at`, because a producer can give a message any timestamp.

    Args:
        lag: How many messages are not read yet; None if it is not known.
        newest: The timestamp of the newest message that was read.
        end_known_at: When the broker last reported the end offset.
    """
    if lag is not None and lag <= 0 and not halted and end_known_at is not None:
        return end_known_at
    return newest if newest is None or end_known_at is None else min(newest, end_known_at)
