"""Records the offsets that brought no new row: repeated, expired, or without a message."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, time
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import astuple

from history.documents.record import UNSTORED_SPAN
from history.store.days.window import Window
from ingest.messages.message import KafkaPartition, Message, TopicPartition
from ingest.store.batch import DecodedRow, PartitionProgress
from ingest.store.ledger import Connection

KINDS = ("repeated", "expired", "skipped")

_ADD = """
INSERT INTO ingest_unstored (topic, topic_id, partition, start_offset, end_offset, repeated,
    expired, skipped, noted_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, now())
"""
# The ledger remembers up to which offset nothing is known any more.
_REMOVE = """
WITH gone AS (
    DELETE FROM ingest_unstored WHERE id = ANY(ARRAY(
        SELECT id FROM ingest_unstored WHERE noted_at < %s ORDER BY noted_at LIMIT %s))
    RETURNING topic, topic_id, partition, end_offset
), newest AS (
    SELECT topic, topic_id, partition, max(end_offset) AS end_offset, count(*) AS rows
    FROM gone GROUP BY topic, topic_id, partition
), known AS (
    UPDATE ingest_ledger l SET noted_from = greatest(l.noted_from, newest.end_offset) FROM newest
    WHERE l.topic = newest.topic AND l.topic_id = newest.topic_id
        AND l.partition = newest.partition
)
SELECT coalesce(sum(rows), 0)::bigint FROM newest
"""
ROWS_PER_TRANSACTION = 10_000


class UnstoredRange(NamedTuple):
    """Offsets [start, end) with one outcome, a member of KINDS."""

    start: int
    end: int
    kind: str


def note_empty_offsets(
    connection: Connection,
    repeated: Iterable[Message],
    expired: Iterable[DecodedRow],
    read: Mapping[TopicPartition, PartitionProgress],
) -> None:
    """Record the offsets of a batch that were not stored, inside the caller's transaction.

    No row covers more than UNSTORED_SPAN offsets.
    """
    again = _collect_offsets(repeated)
    old = _collect_offsets(row.message for row in expired)
    for source, progress in read.items():
        ranges = [
            UnstoredRange(gap.start, gap.end, "skipped") for gap in progress.gaps if not gap.lost
        ]
        ranges += _split_into_ranges(again.get(source.kafka, ()), "repeated")
        ranges += _split_into_ranges(old.get(source.kafka, ()), "expired")
        pieces = sorted(piece for run in ranges for piece in _cut_range(run))
        for _, few in groupby(pieces, lambda piece: piece.start // UNSTORED_SPAN):
            runs = [*few]
            columns = (
                [offset for run in runs if run.kind == kind for offset in (run.start, run.end)]
                for kind in KINDS
            )
            connection.execute(_ADD, (*astuple(source), runs[0].start, runs[-1].end, *columns))


def remove_old_ranges(connection: Connection, window: Window) -> int:
    """Remove what was recorded before the window. Return the number of rows."""
    before = datetime.combine(window.oldest, time(), UTC)
    removed = 0
    while True:
        with connection.transaction():
            row = connection.execute(_REMOVE, (before, ROWS_PER_TRANSACTION)).fetchone()
        count = int(row[0]) if row else 0  # type: ignore[call-overload]
        removed += count
        if count < ROWS_PER_TRANSACTION:
            return removed


def _collect_offsets(messages: Iterable[Message]) -> dict[KafkaPartition, list[int]]:
    """Return the offsets of the messages of each partition."""
    offsets: defaultdict[KafkaPartition, list[int]] = defaultdict(list)
    for message in messages:
        offsets[message.topic, message.partition].append(message.offset)
    return offsets


def _split_into_ranges(offsets: Iterable[int], kind: str) -> Iterator[UnstoredRange]:
    """Yield a range for each series of offsets without a hole."""
    for _, run in groupby(enumerate(sorted(offsets)), lambda pair: pair[1] - pair[0]):
        series = [offset for _, offset in run]
        yield UnstoredRange(series[0], series[-1] + 1, kind)


def _cut_range(run: UnstoredRange) -> Iterator[UnstoredRange]:
    """Cut a range at each multiple of UNSTORED_SPAN."""
    start = run.start
    while start < run.end:
        end = min(run.end, start - start % UNSTORED_SPAN + UNSTORED_SPAN)
        yield UnstoredRange(start, end, run.kind)
        start = end
