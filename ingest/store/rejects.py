"""Writes bad messages to the quarantine, byte for byte, in the transaction of their batch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from psycopg.types.json import Jsonb

from history.base import clock
from ingest.source.client import Headers
from ingest.source.decode import guess_day
from ingest.source.message import Message, TopicPartition
from ingest.source.names import named, read_place, service
from ingest.store.batch import Claims, PartitionProgress, Reject
from ingest.store.ledger import Connection

# What PostgreSQL cannot store in a text.
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


def to_json(headers: Headers) -> list[list[Any]]:
    """Pairs of name and hex value."""
    return [
        [storable_text(name), None if value is None else value.hex()] for name, value in headers
    ]


def from_json(stored: list[list[Any]]) -> Headers:
    """The headers that to_json() was given. Releases before 0.2 kept some names as {"hex": ...}."""
    return tuple(
        (str(name), None if value is None else bytes.fromhex(value)) for name, value in stored
    )


def storable_text(text: str) -> str:
    """The text with escapes for what PostgreSQL cannot store."""
    return _NOT_STORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


FIRST_PAUSE_SECONDS = 60

_ADD = """
INSERT INTO ingest_quarantine AS q (topic, topic_id, partition, "offset", timestamp, key, value,
    headers, day, entity, entity_id, version, application, made_at, client_id, reason, detail,
    status, attempts, first_seen, next_attempt, outcome)
VALUES (%s, %s, %s, %s, CASE WHEN %s >= 0 THEN to_timestamp(%s / 1000.0) END, %s, %s,
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, 'new', 0, now(), now() + make_interval(secs => %s), '')
ON CONFLICT (topic, topic_id, partition, "offset") DO UPDATE SET
    key = excluded.key, value = excluded.value, headers = excluded.headers,
    entity = excluded.entity, entity_id = excluded.entity_id, version = excluded.version,
    application = excluded.application, made_at = excluded.made_at,
    client_id = excluded.client_id, reason = excluded.reason, detail = excluded.detail,
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


def add(connection: Connection, rejects: Sequence[Reject], claims: Claims) -> None:
    """Put messages into quarantine, inside the caller's transaction. One that is there already gets
    its new reason and keeps its status, attempts and first reason, unless it was resolved."""
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
                    Jsonb(to_json(message.headers)),
                    _day(message),
                    *named(message),
                    *read_place(message),
                    service(message),
                    str(reject.reason),
                    storable_text(reject.detail),
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
    claims: Claims,
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
