"""Writes bad messages to the quarantine, byte for byte, in the transaction of their batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from django.conf import settings
from psycopg.types.json import Jsonb

from history import clock
from ingest.source.guess_day import guess_day
from ingest.source.message import Message, TopicPartition
from ingest.source.names import declared, named
from ingest.store import headers_json
from ingest.store.batch import PartitionProgress, Reject
from ingest.store.claim import Claim
from ingest.store.ledger import Connection

FIRST_PAUSE_SECONDS = 60

_ADD = """
INSERT INTO ingest_quarantine AS q (topic, topic_id, partition, "offset", timestamp, key, value,
    headers, day, entity, entity_id, version, reason, detail, status, attempts, first_seen,
    next_attempt, outcome)
VALUES (%s, %s, %s, %s, CASE WHEN %s >= 0 THEN to_timestamp(%s / 1000.0) END, %s, %s,
    %s, %s, %s, %s, %s, %s, %s, 'new', 0, now(), now() + make_interval(secs => %s), '')
ON CONFLICT (topic, topic_id, partition, "offset") DO UPDATE SET
    key = excluded.key, value = excluded.value, headers = excluded.headers,
    entity = excluded.entity, entity_id = excluded.entity_id, version = excluded.version,
    reason = excluded.reason, detail = excluded.detail,
    first_reason = CASE WHEN q.status = 'resolved' THEN ''
        WHEN q.first_reason = '' AND q.reason <> excluded.reason THEN q.reason
        ELSE q.first_reason END,
    first_detail = CASE WHEN q.status = 'resolved' THEN ''
        WHEN q.first_reason = '' AND q.reason <> excluded.reason THEN q.detail
        ELSE q.first_detail END,
    status = CASE WHEN q.status = 'resolved' THEN excluded.status ELSE q.status END,
    attempts = CASE WHEN q.status = 'resolved' THEN 0 ELSE q.attempts END,
    next_attempt = CASE WHEN q.status = 'resolved' THEN excluded.next_attempt
        ELSE q.next_attempt END,
    settled_at = CASE WHEN q.status = 'resolved' THEN NULL ELSE q.settled_at END,
    outcome = CASE WHEN q.status = 'resolved' THEN '' ELSE q.outcome END
"""
# Messages that were quarantined when their partition was read before, and now were not.
_NOT_AGAIN = """
UPDATE ingest_quarantine SET status = 'resolved', outcome = 'read again',
    settled_at = now(), next_attempt = NULL
WHERE topic = %s AND topic_id = %s AND partition = %s AND "offset" >= %s AND "offset" < %s
    AND status <> 'resolved' AND "offset" <> ALL(%s)
"""


def add(
    connection: Connection, rejects: Sequence[Reject], claims: Mapping[TopicPartition, Claim]
) -> None:
    """Put messages into quarantine, inside the caller's transaction.

    A message that is there already was read again: its reason is updated. It keeps its status,
    attempts and first reason, unless it was resolved: then it is new.
    """
    if not rejects:
        return
    ids = {(source.topic, source.partition): source.topic_id for source in claims}
    with connection.cursor() as cursor:
        cursor.executemany(
            _ADD,
            [
                (
                    message.topic,
                    ids[message.topic, message.partition],
                    message.partition,
                    message.offset,
                    message.timestamp,
                    message.timestamp,
                    message.key,
                    message.value,
                    Jsonb(headers_json.to_json(message.headers)),
                    _day(message),
                    *named(message, declared(settings.ANNALS.envelopes_file)),
                    str(reject.reason),
                    headers_json.storable_text(reject.detail),
                    FIRST_PAUSE_SECONDS,
                )
                for reject in rejects
                for message in (reject.message,)
            ],
        )


def settle_read_again(
    connection: Connection,
    rejects: Iterable[Reject],
    read: Mapping[TopicPartition, PartitionProgress],
    claims: Mapping[TopicPartition, Claim],
) -> None:
    """Resolve the messages in quarantine that were read again and are not among the rejects, inside
    the caller's transaction. read: the offsets that the batch covers."""
    again = [source for source, each in read.items() if each.start < claims[source].reread_until]
    if not again:
        return
    bad: dict[tuple[str, int], list[int]] = {}
    for reject in rejects:
        message = reject.message
        bad.setdefault((message.topic, message.partition), []).append(message.offset)
    for source in again:
        place = (source.topic, source.topic_id, source.partition)
        offsets = (read[source].start, read[source].next)
        connection.execute(
            _NOT_AGAIN, (*place, *offsets, bad.get((source.topic, source.partition), []))
        )


def _day(message: Message) -> date:
    """The UTC day of the version, or else the day on which the message was sent."""
    named = guess_day(message.value)
    if named is not None:
        return named
    if message.timestamp >= 0:
        return datetime.fromtimestamp(message.timestamp / 1000, UTC).date()
    return clock.now().date()
