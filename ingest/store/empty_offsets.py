"""Records the offsets that brought no new row: repeated, expired, or without a message.

Begin with `note_empty_offsets`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, time
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import asdict

from history.documents.record import UNSTORED_SPAN
from history.store.days.window import Window
from ingest.messages.message import KafkaMessage, KafkaPartition, TopicPartition
from ingest.store.batch import DecodedRow, PartitionProgress
from ingest.store.ledger import Connection

OUTCOMES = ("repeated", "expired", "skipped")


class UnstoredRange(NamedTuple):
    """A range of offsets [start, end) that brought no new row, all for the same reason."""

    start: int
    end: int
    outcome: str  # a member of OUTCOMES


_ADD = """
INSERT INTO ingest_unstored (topic, topic_id, partition, start_offset, end_offset, repeated,
    expired, skipped, noted_at)
VALUES (%(topic)s, %(topic_id)s, %(partition)s, %(start)s, %(end)s, %(repeated)s, %(expired)s,
    %(skipped)s, now())
"""


def note_empty_offsets(
    connection: Connection,
    repeated: Iterable[KafkaMessage],
    expired: Iterable[DecodedRow],
    read: Mapping[TopicPartition, PartitionProgress],
) -> None:
    """Record which offsets of a batch brought no new row, inside the caller's transaction.

    A row of ingest_unstored covers at most UNSTORED_SPAN offsets of a topic partition.

    Args:
        repeated: The messages of the batch with versions that were stored before.
        expired: The rows of the batch that are older than the window.
        read: How far the batch advances each topic partition.
    """
    repeated_offsets = _collect_offsets(repeated)
    expired_offsets = _collect_offsets(row.message for row in expired)
    for topic_partition, progress in read.items():
        ranges = [
            UnstoredRange(gap.start, gap.end, "skipped") for gap in progress.gaps if not gap.lost
        ]
        ranges += _split_into_ranges(repeated_offsets.get(topic_partition.kafka, ()), "repeated")
        ranges += _split_into_ranges(expired_offsets.get(topic_partition.kafka, ()), "expired")
        pieces = sorted(piece for range_ in ranges for piece in _split_at_spans(range_))
        for _, span in groupby(pieces, lambda piece: piece.start // UNSTORED_SPAN):
            span_pieces = list(span)
            bounds_by_outcome: dict[str, list[int]] = {outcome: [] for outcome in OUTCOMES}
            for piece in span_pieces:
                bounds_by_outcome[piece.outcome] += (piece.start, piece.end)
            connection.execute(
                _ADD,
                {
                    **asdict(topic_partition),
                    "start": span_pieces[0].start,
                    "end": span_pieces[-1].end,
                    **bounds_by_outcome,
                },
            )


def _collect_offsets(messages: Iterable[KafkaMessage]) -> dict[KafkaPartition, list[int]]:
    """Return the offsets of messages, by partition."""
    offsets: defaultdict[KafkaPartition, list[int]] = defaultdict(list)
    for message in messages:
        offsets[message.topic, message.partition].append(message.offset)
    return offsets


def _split_into_ranges(offsets: Iterable[int], outcome: str) -> Iterator[UnstoredRange]:
    """Yield one range for each series of consecutive offsets."""
    # In a series, the difference between an offset and its position does not change.
    for _, pairs in groupby(enumerate(sorted(offsets)), lambda pair: pair[1] - pair[0]):
        series = [offset for _, offset in pairs]
        yield UnstoredRange(series[0], series[-1] + 1, outcome)


def _split_at_spans(range_: UnstoredRange) -> Iterator[UnstoredRange]:
    """Split a range at each multiple of UNSTORED_SPAN."""
    start = range_.start
    while start < range_.end:
        end = min(range_.end, start - start % UNSTORED_SPAN + UNSTORED_SPAN)
        yield UnstoredRange(start, end, range_.outcome)
        start = end


ROWS_PER_TRANSACTION = 10_000

# Before `noted_from` of the ledger, it is no longer known which offsets were not stored.
_REMOVE = """
WITH removed AS (
    DELETE FROM ingest_unstored WHERE id = ANY(ARRAY(
        SELECT id FROM ingest_unstored WHERE noted_at < %(before)s
        ORDER BY noted_at LIMIT %(limit)s))
    RETURNING topic, topic_id, partition, end_offset
), newest AS (
    SELECT topic, topic_id, partition, max(end_offset) AS end_offset, count(*) AS rows
    FROM removed GROUP BY topic, topic_id, partition
), moved AS (
    UPDATE ingest_ledger l SET noted_from = greatest(l.noted_from, newest.end_offset) FROM newest
    WHERE l.topic = newest.topic AND l.topic_id = newest.topic_id
        AND l.partition = newest.partition
)
SELECT coalesce(sum(rows), 0)::bigint FROM newest
"""


def remove_old_ranges(connection: Connection, window: Window) -> int:
    """Delete the rows of ingest_unstored that were recorded before the window.

    Returns:
        The number of deleted rows.
    """
    parameters = {
        "before": datetime.combine(window.oldest, time(), UTC),
        "limit": ROWS_PER_TRANSACTION,
    }
    removed = 0
    while True:
        with connection.transaction():
            row = connection.execute(_REMOVE, parameters).fetchone()
        count = int(row[0]) if row else 0  # type: ignore[call-overload]
        removed += count
        if count < ROWS_PER_TRANSACTION:
            return removed
