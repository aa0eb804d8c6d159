"""The SQL of the ledger: claims of topic partitions, their progress, heartbeats and halts.

A consumer claims a partition with `claim_partition`. `advance_partitions` moves the position of
the partition in the transaction that stores the rows.
"""

import logging
import time
from collections.abc import Container, Mapping, Sequence
from typing import Final, LiteralString, NamedTuple

import psycopg
from msgspec.structs import asdict
from psycopg.types.json import Jsonb

from history.common.single_row import require_row
from ingest.kafka.retention_forecast import LogForecast
from ingest.messages.explanations import Explanation
from ingest.messages.message import TRUNCATION_MARK, LastMessage, TopicPartition
from ingest.models import Pace
from ingest.store.batch import PartitionProgress
from ingest.store.claim import Claim

logger = logging.getLogger(__name__)

Connection = psycopg.Connection[tuple[object, ...]]


class FencedError(Exception):
    """Raised when another consumer has meanwhile claimed or advanced one of the partitions."""


class LedgerMove(NamedTuple):
    """How one batch advances one partition in the ledger."""

    claim: Claim
    progress: PartitionProgress
    stored: int  # messages
    repeated: int  # messages
    end_offset: int | None  # at the broker; None if it is not known


# The topic id under which a topic partition was read last. Each truncation of the log gives the
# topic partition another id: see TRUNCATION_MARK.
_NEWEST_TOPIC_ID: Final[LiteralString] = """
SELECT topic_id FROM ingest_ledger
WHERE topic = %(topic)s AND partition = %(partition)s
    AND split_part(topic_id, %(mark)s, 1) = %(broker_id)s
ORDER BY length(topic_id) DESC, topic_id DESC LIMIT 1
"""


def claim_partition(
    connection: Connection,
    topic_partition: TopicPartition,
    first_offset: int,
    end: int | None = None,
    truncated: Container[TopicPartition] = (),
) -> Claim:
    """Claim a partition for this consumer, inside the caller's transaction.

    If the log was truncated, the claim is for a new row of the ledger, and the log is read from its
    start. A log was truncated if it ends before the offset in the ledger.

    Args:
        first_offset: The first offset at the broker. Reading begins there if the partition is new.
        end: The end offset at the broker, to compare with the ledger. The caller must have asked
            the broker while no batch was being written. None: do not compare.
        truncated: The partitions with a log that was certainly truncated.
    """
    row = connection.execute(
        _NEWEST_TOPIC_ID,
        {
            "topic": topic_partition.topic,
            "partition": topic_partition.partition,
            "mark": TRUNCATION_MARK,
            "broker_id": topic_partition.topic_id,
        },
    ).fetchone()
    newest = (
        topic_partition
        if row is None
        else TopicPartition(topic_partition.topic, str(row[0]), topic_partition.partition)
    )
    claimed = _claim_row(connection, newest, first_offset)
    if newest in truncated:
        reason = "its messages are not those that were read"
    elif end is not None and claimed.next_offset > end:
        reason = f"it ends at offset {end}"
    else:
        return claimed
    logger.error(
        "%s[%d]: the log at the broker was truncated: the ledger is at offset %d, but %s. Reading "
        "the partition from its start; versions that were stored before count as repeated",
        topic_partition.topic,
        topic_partition.partition,
        claimed.next_offset,
        reason,
    )
    return _claim_row(connection, newest.make_successor(), first_offset)


# Takes a partition over from its owner, or adds its row.
_CLAIM: Final[LiteralString] = """
INSERT INTO ingest_ledger AS l
    (topic, topic_id, partition, first_offset, next_offset, epoch, read, stored, repeated,
     expired, quarantined, skipped, lost, halted_why, updated_at, checked_at)
VALUES (%(topic)s, %(topic_id)s, %(partition)s, %(first_offset)s, %(first_offset)s, 1,
        0, 0, 0, 0, 0, 0, 0, '', now(), now())
ON CONFLICT (topic, topic_id, partition) DO UPDATE SET epoch = l.epoch + 1
RETURNING epoch, next_offset, coalesce(resume_until, 0), halted_at IS NOT NULL,
    last_offset, last_leader_epoch, last_digest
"""
# The offset up to which the quarantine has messages that will be read again. This is a separate
# statement, because Citus refuses it within the INSERT.
_REREAD: Final[LiteralString] = """
SELECT coalesce(max("offset") + 1, 0) FROM ingest_quarantine
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
    AND "offset" >= %(next_offset)s
"""


def _claim_row(connection: Connection, topic_partition: TopicPartition, first_offset: int) -> Claim:
    row = connection.execute(
        _CLAIM,
        {
            "topic": topic_partition.topic,
            "topic_id": topic_partition.topic_id,
            "partition": topic_partition.partition,
            "first_offset": first_offset,
        },
    ).fetchone()
    epoch, next_offset, resume_until, halted, *remembered = require_row(row)
    (reread_until,) = connection.execute(
        _REREAD,
        {
            "topic": topic_partition.topic,
            "topic_id": topic_partition.topic_id,
            "partition": topic_partition.partition,
            "next_offset": next_offset,
        },
    ).fetchone() or (0,)
    last = None if remembered[0] is None else LastMessage(*remembered)  # type: ignore[arg-type]
    return Claim(
        topic_partition,
        int(epoch),  # type: ignore[call-overload]
        int(next_offset),  # type: ignore[call-overload]
        int(resume_until),  # type: ignore[call-overload]
        bool(halted),
        int(reread_until),  # type: ignore[call-overload]
        # A message that the broker has deleted cannot be compared.
        last if last is not None and last.offset >= first_offset else None,
    )


# Advances partitions by the progress of a batch, if this consumer still owns their claims.
_ADVANCE: Final[LiteralString] = """
UPDATE ingest_ledger l SET
    next_offset = v.next, read = l.read + v.read, stored = l.stored + v.stored,
    repeated = l.repeated + v.repeated, expired = l.expired + v.expired,
    quarantined = l.quarantined + v.quarantined, skipped = l.skipped + v.skipped,
    lost = l.lost + v.lost,
    high_watermark = CASE WHEN coalesce(v.high, l.high_watermark) IS NOT NULL
        THEN greatest(l.high_watermark, v.high, v.next) END,
    newest_timestamp = CASE WHEN v.stamp < 0 THEN l.newest_timestamp
        ELSE greatest(l.newest_timestamp, to_timestamp(v.stamp / 1000.0)) END,
    last_offset = coalesce(v.last, l.last_offset),
    last_leader_epoch = CASE WHEN v.last IS NULL THEN l.last_leader_epoch ELSE v.leader END,
    last_digest = coalesce(v.digest, l.last_digest),
    updated_at = now(), checked_at = now()
FROM unnest(%(topic)s::text[], %(topic_id)s::text[], %(partition)s::int[],
            %(epoch)s::bigint[], %(start)s::bigint[], %(next)s::bigint[], %(read)s::bigint[],
            %(stored)s::bigint[], %(repeated)s::bigint[], %(expired)s::bigint[],
            %(quarantined)s::bigint[], %(skipped)s::bigint[], %(lost)s::bigint[],
            %(stamp)s::bigint[], %(high)s::bigint[], %(last)s::bigint[], %(leader)s::int[],
            %(digest)s::bytea[])
    AS v(topic, topic_id, partition, epoch, start, next, read, stored, repeated, expired,
         quarantined, skipped, lost, stamp, high, last, leader, digest)
WHERE l.topic = v.topic AND l.topic_id = v.topic_id AND l.partition = v.partition
    AND l.epoch = v.epoch AND l.next_offset = v.start
"""
# Records offsets that the broker deleted before they were read.
_ADD_LOST_OFFSETS: Final[LiteralString] = """
INSERT INTO ingest_gap (topic, topic_id, partition, start_offset, end_offset, lost, noticed_at)
VALUES (%(topic)s, %(topic_id)s, %(partition)s, %(start)s, %(end)s, true, now())
"""


def advance_partitions(connection: Connection, moves: Sequence[LedgerMove]) -> None:
    """Advance partitions, inside the caller's transaction.

    Raises:
        FencedError: Another consumer has claimed a partition. The transaction must be rolled back.
    """
    rows = [_make_advance(move) for move in moves]
    cursor = connection.execute(_ADVANCE, _make_columns(rows))
    if cursor.rowcount != len(moves):
        raise FencedError
    # Gaps without a loss are only counted: otherwise each marker of a transaction would be a row.
    for move in moves:
        for gap in move.progress.gaps:
            if gap.lost:
                partition = asdict(move.claim.topic_partition)
                connection.execute(
                    _ADD_LOST_OFFSETS, {**partition, "start": gap.start, "end": gap.end}
                )


def _make_advance(move: LedgerMove) -> dict[str, object]:
    """Return the parameters of _ADVANCE for one partition."""
    progress = move.progress
    settled = progress.expired + move.stored + move.repeated
    last = LastMessage.from_message(progress.last) if progress.last else None
    return {
        **_get_row_key(move.claim),
        "start": progress.start,
        "next": progress.next,
        "read": progress.read,
        "stored": move.stored,
        "repeated": move.repeated,
        "expired": progress.expired,
        "quarantined": progress.read - settled,
        "skipped": sum(gap.end - gap.start for gap in progress.gaps if not gap.lost),
        "lost": sum(gap.end - gap.start for gap in progress.gaps if gap.lost),
        "stamp": progress.newest_timestamp,
        "high": move.end_offset,
        "last": last and last.offset,
        "leader": last and last.leader_epoch,
        "digest": last and last.digest,
    }


# A separate query computes the moments, because Citus refuses now() in a CASE of an UPDATE.
_HEARTBEAT = """
WITH mine AS (
    SELECT l.topic, l.topic_id, l.partition, v.high,
        CASE WHEN v.answered OR NOT EXISTS (SELECT FROM ingest_ledger other
                WHERE other.topic = l.topic AND other.partition = l.partition
                AND other.checked_at > l.checked_at)
            THEN now() - make_interval(secs => %(age)s::float8) END AS checked,
        CASE WHEN v.high IS NULL OR NOT v.answered THEN l.end_known_at
            ELSE greatest(l.end_known_at, now() - make_interval(secs => %(age_of_end)s::float8))
            END AS known
    FROM unnest(%(topic)s::text[], %(topic_id)s::text[], %(partition)s::int[],
            %(epoch)s::bigint[], %(high)s::bigint[], %(answered)s::bool[])
        AS v(topic, topic_id, partition, epoch, high, answered)
    JOIN ingest_ledger l USING (topic, topic_id, partition, epoch)
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE ingest_ledger l SET
    checked_at = greatest(l.checked_at, mine.checked),
    high_watermark = greatest(l.high_watermark, mine.high),
    end_known_at = mine.known
FROM mine
WHERE l.topic = mine.topic AND l.topic_id = mine.topic_id AND l.partition = mine.partition
"""


_FORESEE = """
WITH mine AS (
    SELECT l.topic, l.topic_id, l.partition, v.loss, v.kept, v.arriving
    FROM unnest(%(topic)s::text[], %(topic_id)s::text[], %(partition)s::int[],
            %(epoch)s::bigint[], %(loss)s::float8[], %(kept)s::float8[], %(arriving)s::float8[])
        AS v(topic, topic_id, partition, epoch, loss, kept, arriving)
    JOIN ingest_ledger l USING (topic, topic_id, partition, epoch)
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE ingest_ledger l SET
    forecast_at = now(), loss_at = to_timestamp(mine.loss), kept_seconds = mine.kept,
    arriving_rate = mine.arriving, reading_rate = coalesce(%(reading_rate)s, l.reading_rate)
FROM mine
WHERE l.topic = mine.topic AND l.topic_id = mine.topic_id AND l.partition = mine.partition
"""


def record_forecast(
    connection: Connection, log_forecasts: Mapping[Claim, LogForecast], reading_rate: float | None
) -> None:
    """Record when unread messages of these partitions will be lost.

    A row that another transaction has locked is not changed.

    Args:
        reading_rate: How many offsets this consumer reads in a second; None if not measured.
    """
    rows = [
        {
            **_get_row_key(claim),
            "loss": log_forecast.forecast.at,
            "kept": log_forecast.forecast.kept_seconds,
            "arriving": log_forecast.log.arriving,
        }
        for claim, log_forecast in log_forecasts.items()
        if log_forecast.forecast is not None
    ]
    if rows:
        connection.execute(_FORESEE, {**_make_columns(rows), "reading_rate": reading_rate})


def is_at_offsets(connection: Connection, ends: Mapping[Claim, int]) -> bool:
    """Return whether a batch that ends at these offsets was committed under these claims.

    The caller asks this when PostgreSQL's answer to the commit was lost.

    Args:
        ends: By claim, the next offset after the batch.
    """
    for claim, end in ends.items():
        row = connection.execute(
            "SELECT 1 FROM ingest_ledger WHERE topic = %(topic)s AND topic_id = %(topic_id)s"
            " AND partition = %(partition)s AND epoch = %(epoch)s AND next_offset = %(end)s",
            {**_get_row_key(claim), "end": end},
        ).fetchone()
        if row is None:
            return False
    return True


def record_heartbeat(
    connection: Connection,
    ends: Mapping[Claim, int | None],
    seen_at: float | None,
    beat_at: float | None = None,
    answered: Container[Claim] | None = None,
) -> None:
    """Record that a consumer still has these claims, and the end offsets that it knows.

    The ledger gets the time at which the heartbeat was made, not the time at which it is written.
    Otherwise a heartbeat that is written late could look newer than a claim of a second consumer.

    If a topic was deleted and created again, the ledger has one row for the deleted topic and one
    for the new topic. The row with the newest `checked_at` counts as current. The row of the
    deleted topic must not become current again. So `checked_at` of a row that is not current
    changes only if the brokers have answered for the claim of this row.

    A row that another transaction has locked is not changed.

    Args:
        ends: The end offsets; None if an end is not known.
        seen_at: The `time.monotonic()` at which the brokers answered; None if they did not.
        beat_at: The `time.monotonic()` at which the heartbeat was made; None: now.
        answered: The claims for which the brokers answered with the end; None for all.
    """
    if not ends:
        return
    now = time.monotonic()
    age = 0.0 if beat_at is None else max(0.0, now - beat_at)
    age_of_end = None if seen_at is None else max(0.0, now - seen_at)
    rows = [
        {
            **_get_row_key(claim),
            "high": end,
            "answered": answered is None or claim in answered,
        }
        for claim, end in ends.items()
    ]
    connection.execute(_HEARTBEAT, {**_make_columns(rows), "age": age, "age_of_end": age_of_end})


# Only the first record in each period of ten minutes counts. Several consumers may write in any
# order, because the sums only grow. Citus refuses now() in the conditions of an upsert, so the
# condition takes the time from the new row.
_PACE = """
INSERT INTO ingest_pace AS p (slot, at, came, read, stored)
SELECT extract(epoch FROM now())::bigint / %(seconds)s %% %(slots)s, now(),
    coalesce(sum(greatest(high_watermark, next_offset) - first_offset), 0),
    coalesce(sum(read), 0), coalesce(sum(stored), 0)
FROM ingest_ledger HAVING count(*) > 0
ON CONFLICT (slot) DO UPDATE
SET at = excluded.at, came = excluded.came, read = excluded.read, stored = excluded.stored
WHERE excluded.at - p.at > make_interval(secs => %(seconds)s)
"""


def record_pace(connection: Connection) -> None:
    """Record the message counts of the whole ledger, once in each period of ten minutes."""
    connection.execute(_PACE, {"seconds": Pace.SECONDS, "slots": Pace.SLOTS})


# The answer to the latest request wins, even if an answer to an earlier request is written later.
_ABSENT: Final[LiteralString] = """
INSERT INTO ingest_asked_topic AS known (topic, absent, asked_at)
SELECT topic, true, now() - make_interval(secs => %(age)s::float8)
FROM unnest(%(topics)s::text[]) AS topic
ON CONFLICT (topic) DO UPDATE SET absent = true, asked_at = excluded.asked_at
WHERE known.asked_at < excluded.asked_at
"""
_EXISTING: Final[LiteralString] = """
UPDATE ingest_asked_topic
SET absent = false, asked_at = now() - make_interval(secs => %(age)s::float8)
WHERE topic = ANY(%(topics)s) AND absent
    AND asked_at < now() - make_interval(secs => %(age)s::float8)
"""


def record_topics(
    connection: Connection, existing: Sequence[str], absent: Sequence[str], asked_at: float
) -> None:
    """Record which topics exist according to the brokers, and which do not.

    Args:
        asked_at: The `time.monotonic()` before the request.
    """
    age = max(0.0, time.monotonic() - asked_at)
    if absent:
        connection.execute(_ABSENT, {"age": age, "topics": list(absent)})
    connection.execute(_EXISTING, {"age": age, "topics": list(existing)})


# Halts a partition, unless it is halted already, or has been resumed meanwhile.
_HALT: Final[LiteralString] = """
UPDATE ingest_ledger
SET halted_at = now(), halted_why = %(reason)s, halted_explanation = %(explanation)s
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
    AND epoch = %(epoch)s AND halted_at IS NULL AND coalesce(resume_until, 0) <= next_offset
"""
_RESUME: Final[LiteralString] = """
UPDATE ingest_ledger SET halted_at = NULL, halted_why = '', halted_explanation = NULL,
    resume_until = greatest(resume_until, %(until)s)
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
    AND epoch = %(epoch)s
"""


def record_halts(connection: Connection, halted: Mapping[Claim, Explanation]) -> None:
    """Record that these partitions are halted, with the reasons."""
    for claim, explanation in halted.items():
        reason = {"reason": explanation.english, "explanation": Jsonb(explanation.to_json())}
        connection.execute(_HALT, {**_get_row_key(claim), **reason})


def record_resume(connection: Connection, claim: Claim, until: int) -> None:
    """Record that a halted partition is read again.

    Args:
        until: Bad messages before this offset go to quarantine without halting the partition again.
    """
    connection.execute(_RESUME, {**_get_row_key(claim), "until": until})


def load_resume_until(connection: Connection, claim: Claim) -> int:
    """Return the offset before which bad messages do not halt the partition, or 0."""
    row = connection.execute(
        "SELECT coalesce(resume_until, 0) FROM ingest_ledger"
        " WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s"
        " AND epoch = %(epoch)s",
        _get_row_key(claim),
    ).fetchone()
    return int(row[0]) if row else 0  # type: ignore[call-overload]


def _make_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, list[object]]:
    """Return the values of each column of the rows as a list, for `unnest`.

    Args:
        rows: At least one row.
    """
    return {name: [row[name] for row in rows] for name in rows[0]}


def _get_row_key(claim: Claim) -> dict[str, str | int]:
    """Return the parameters that find the row of a claim."""
    return {**asdict(claim.topic_partition), "epoch": claim.epoch}
