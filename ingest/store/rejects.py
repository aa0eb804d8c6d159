"""Writes bad messages to the quarantine, byte for byte, in the transaction of their batch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from psycopg.types.json import Jsonb

from history.common import clock
from ingest.kafka.client import Headers
from ingest.kafka.names import identify_message, identify_service, read_place
from ingest.messages.decode import guess_day
from ingest.messages.message import Message, TopicPartition
from ingest.store.batch import BadMessage, Claims, PartitionProgress
from ingest.store.ledger import Connection

# Characters that PostgreSQL cannot store in a text.
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")


def headers_to_json(headers: Headers) -> list[list[Any]]:
    """Return headers as JSON: pairs of a name and a value in hex."""
    return [
        [escape_unstorable(name), None if value is None else value.hex()] for name, value in headers
    ]


def headers_from_json(stored: list[list[Any]]) -> Headers:
    """Return the headers that `headers_to_json` was given."""
    return tuple(
        (str(name), None if value is None else bytes.fromhex(value)) for name, value in stored
    )


def escape_unstorable(text: str) -> str:
    """Replace characters that PostgreSQL cannot store by escapes."""
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
# Settles messages that were bad when their partition was read before, and are not bad now.
_NOT_AGAIN = """
UPDATE ingest_quarantine SET status = 'resolved', outcome = 'read again',
    settled_at = now(), next_attempt = NULL
WHERE topic = %s AND topic_id = %s AND partition = %s AND "offset" >= %s AND "offset" < %s
    AND status <> 'resolved' AND "offset" <> ALL(%s)
"""


def quarantine_messages(
    connection: Connection, rejects: Sequence[BadMessage], claims: Claims
) -> None:
    """Put messages into quarantine, inside the caller's transaction.

    A message that is there already gets its new reason. It keeps its status, attempts and first
    reason unless it was resolved.
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
                    Jsonb(headers_to_json(message.headers)),
                    _guess_message_day(message),
                    *identify_message(message),
                    *read_place(message),
                    identify_service(message),
                    str(reject.reason),
                    escape_unstorable(reject.detail),
                    FIRST_PAUSE_SECONDS,
                )
                for reject in rejects
                for message in (reject.message,)
            ],
        )


def resolve_read_again(
    connection: Connection,
    rejects: Iterable[BadMessage],
    read: Mapping[TopicPartition, PartitionProgress],
    claims: Claims,
) -> None:
    """Resolve messages in quarantine that were read again and are good now.

    Runs inside the caller's transaction.

    Args:
        rejects: The bad messages of the batch.
        read: The offsets that the batch covers.
    """
    again = [
        source for source, progress in read.items() if progress.start < claims[source].reread_until
    ]
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


def _guess_message_day(message: Message) -> date:
    """Return the UTC day of the version, or else the day on which the message was sent."""
    day = guess_day(message.value)
    if day is not None:
        return day
    if message.timestamp >= 0:
        return datetime.fromtimestamp(message.timestamp / 1000, UTC).date()
    return clock.now().date()
