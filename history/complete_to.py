"""Tells the moment up to which everything that was sent has been read.

The ledger is ingest's table; history reads it and imports nothing of ingest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from history import clock
from history.entities import Entity
from history.timeline import retention, rows


@dataclass(frozen=True, slots=True)
class Completeness:
    """complete_to: everything sent up to this moment is stored; None if not known (a topic that was
    never read). lag_messages: sent and not read yet; None if not known. halted: reading has stopped
    because of too many bad messages. retention_start: nothing older is kept."""

    complete_to: datetime | None
    lag_messages: int | None
    halted: bool
    retention_start: datetime
    read_at: datetime

    @property
    def lag_seconds(self) -> float | None:
        """How long ago complete_to was."""
        if self.complete_to is None:
            return None
        return max(0.0, round((self.read_at - self.complete_to).total_seconds(), 3))


# A topic that was created again also has rows under its old id; only the newest row counts.
_LEDGER = """
    SELECT DISTINCT ON (topic, partition)
        high_watermark - next_offset, newest_timestamp, checked_at, halted_at IS NOT NULL
    FROM ingest_ledger WHERE topic = ANY(%s) ORDER BY topic, partition, checked_at DESC
"""


def read(entities: Iterable[Entity]) -> Completeness:
    """The worst of all topic partitions of these kinds of entities. One query."""
    topics = [topic for entity in entities for topic in entity.topics]
    found = rows.fetch(_LEDGER, [topics])
    known = [lag for lag, *_ in found if lag is not None]
    moments = [_complete_to(*row) for row in found]
    sure = [moment for moment in moments if moment is not None]
    return Completeness(
        complete_to=min(sure) if found and len(sure) == len(moments) else None,
        lag_messages=sum(max(0, lag) for lag in known) if len(known) == len(found) else None,
        halted=any(row[-1] for row in found),
        retention_start=retention.start(),
        read_at=clock.now(),
    )


def _complete_to(
    lag: int | None, newest: datetime | None, checked_at: datetime, halted: bool
) -> datetime | None:
    """At the end of a partition: the time of the check; before the end: the newest message read."""
    if lag is not None and lag <= 0 and not halted:
        return checked_at
    return newest
