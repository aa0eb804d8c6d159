"""The moment up to which everything that was sent has been read, by ingest's ledger. What was read
and not stored is in quarantine."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from history.base import clock
from history.base.silence import SILENT, Silence, longest, silence
from history.database import prepared
from history.entities import Entity
from history.timeline import absence
from history.timeline.gate import OpenQuestion


@dataclass(frozen=True, slots=True)
class Completeness:
    """complete_to: everything sent up to this moment was read; None if not known. lag_messages:
    sent and not read yet; None if not known. halted: reading has stopped because of too many bad
    messages. silence: the longest. retention_start: nothing older is kept. stored: whether nothing
    of these kinds that was read is in quarantine. Retired topics do not count."""

    complete_to: datetime | None
    lag_messages: int | None
    halted: bool
    silence: Silence | None
    retention_start: datetime
    read_at: datetime
    stored: bool = True

    @property
    def lag_seconds(self) -> float | None:
        """How long ago complete_to was."""
        if self.complete_to is None:
            return None
        return max(0.0, round((self.read_at - self.complete_to).total_seconds(), 3))

    @property
    def late(self) -> bool:
        """Whether messages have been unread for longer than SILENT."""
        lag = self.lag_seconds
        return bool(self.lag_messages) and (lag is None or lag > SILENT.total_seconds())


# One row with nothing known: never read. Of a topic that was created again the newest row counts.
# A topic that did not exist when a consumer asked had nothing to read until then.
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


def read(entities: Iterable[Entity]) -> Completeness:
    """The worst of all topic partitions of these kinds of entities. One query."""
    return _worst(prepared.fetch(*_ask(entities)))


def read_with_messages(question: OpenQuestion) -> tuple[Completeness, prepared.Rows]:
    """Return the same for the kinds of a question, with the rows for Reader.open_messages. Both are
    read in one round trip: what was read up to then is stored, or among these messages."""
    ledger, messages = prepared.together([_ask(question.kinds), question.statement])
    return _worst(ledger), messages


def _ask(entities: Iterable[Entity]) -> prepared.Statement:
    asked = list(entities)
    topics = [topic for entity in asked for topic in entity.topics]
    return _LEDGER, {"topics": topics, "kinds": [entity.name for entity in asked]}


def _worst(rows: prepared.Rows) -> Completeness:
    found = [row[:-1] for row in rows]
    known = [lag for lag, *_ in found if lag is not None]
    moments = [_complete_to(*row[:-1]) for row in found]
    sure = [moment for moment in moments if moment is not None]
    now = clock.now()
    return Completeness(
        complete_to=min(sure, default=now) if len(sure) == len(moments) else None,
        lag_messages=sum(max(0, lag) for lag in known) if len(known) == len(found) else None,
        halted=any(halted for *_, halted, _ in found),
        silence=longest(silence(seen, end, now) for *_, end, _, seen in found if seen),
        retention_start=absence.kept_from(),
        read_at=now,
        stored=not any(held for *_, held in rows),
    )


def _complete_to(
    lag: int | None, newest: datetime | None, end_known_at: datetime | None, halted: bool
) -> datetime | None:
    """Of one partition. At its end: the moment at which this was the end. Before it: the newest
    message read, but not beyond that moment, whatever time a producer gave to its message."""
    if lag is not None and lag <= 0 and not halted and end_known_at is not None:
        return end_known_at
    return newest if newest is None or end_known_at is None else min(newest, end_known_at)
