"""The moment up to which everything that was sent has been read, by ingest's ledger."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from history.base import clock
from history.base.silence import SILENT, Silence, longest, silence
from history.database import prepared
from history.entities import Entity
from history.timeline import absence


@dataclass(frozen=True, slots=True)
class Completeness:
    """complete_to: everything sent up to this moment is stored; None if not known. lag_messages:
    sent and not read yet; None if not known. halted: reading has stopped because of too many bad
    messages. silence: the longest. retention_start: nothing older is kept. Retired topics do not
    count."""

    complete_to: datetime | None
    lag_messages: int | None
    halted: bool
    silence: Silence | None
    retention_start: datetime
    read_at: datetime

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
        l.halted_at IS NOT NULL, coalesce(l.checked_at, a.asked_at)
    FROM unnest(%(topics)s::text[]) AS t(topic) LEFT JOIN ingest_ledger l ON l.topic = t.topic
    LEFT JOIN ingest_asked_topic a ON a.topic = t.topic AND a.absent AND l.topic IS NULL
    WHERE NOT EXISTS (SELECT FROM ingest_retired_topic r WHERE r.topic = t.topic)
    ORDER BY t.topic, l.partition, l.checked_at DESC
"""


def read(entities: Iterable[Entity]) -> Completeness:
    """The worst of all topic partitions of these kinds of entities. One query."""
    topics = [topic for entity in entities for topic in entity.topics]
    found = prepared.fetch(_LEDGER, {"topics": topics})
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
    )


def _complete_to(
    lag: int | None, newest: datetime | None, end_known_at: datetime | None, halted: bool
) -> datetime | None:
    """Of one partition. At its end: the moment at which this was the end. Before it: the newest
    message read, but not beyond that moment, whatever time a producer gave to its message."""
    if lag is not None and lag <= 0 and not halted and end_known_at is not None:
        return end_known_at
    return newest if newest is None or end_known_at is None else min(newest, end_known_at)
