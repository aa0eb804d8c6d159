"""Writes bad messages to the quarantine, byte for byte, in the transaction of their batch.

Begin with `quarantine_messages`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, LiteralString

from psycopg.types.json import Jsonb

from history.common import clock
from ingest.kafka.client import Headers
from ingest.messages.explanations import escape_unstorable
from ingest.messages.identity import (
    find_parent_and_time,
    guess_day,
    identify_message,
    identify_service,
)
from ingest.messages.message import KafkaMessage, KafkaPartition, TopicPartition
from ingest.store.batch import BadMessage, PartitionProgress
from ingest.store.claim import Claims
from ingest.store.ledger import Connection


def headers_to_json(headers: Headers) -> list[list[Any]]:
    """Return headers as JSON: pairs of a name and a value in hex."""
    return [
        [escape_unstorable(name), None if value is None else value.hex()] for name, value in headers
    ]


def headers_from_json(stored: list[list[Any]]) -> Headers:
    """Return the headers that `headers_to_json` wrote."""
    return tuple(
        (str(name), None if value is None else bytes.fromhex(value)) for name, value in stored
    )


# The time before the first retry. It doubles with each further retry.
FIRST_PAUSE_SECONDS: Final = 60

# Adds one bad message. If the message is in quarantine already, its content and reason are
# replaced, and its first reason is kept. If it was resolved, it becomes new again.
_ADD_MESSAGE: Final[LiteralString] = """
INSERT INTO ingest_quarantine AS q (topic, topic_id, partition, "offset", timestamp, key, value,
    headers, day, entity, entity_id, version, application, made_at, client_id, reason, detail,
    field, explanation, status, attempts, first_seen, next_attempt, outcome)
VALUES (%(topic)s, %(topic_id)s, %(partition)s, %(offset)s,
    CASE WHEN %(timestamp)s >= 0 THEN to_timestamp(%(timestamp)s / 1000.0) END,
    %(key)s, %(value)s, %(headers)s, %(day)s, %(entity)s, %(entity_id)s, %(version)s,
    %(application)s, %(made_at)s, %(client_id)s, %(reason)s, %(detail)s, %(field)s,
    %(explanation)s, 'new', 0, now(), now() + make_interval(secs => %(pause)s), '')
ON CONFLICT (topic, topic_id, partition, "offset") DO UPDATE SET
    key = excluded.key, value = excluded.value, headers = excluded.headers,
    entity = excluded.entity, entity_id = excluded.entity_id, version = excluded.version,
    application = excluded.application, made_at = excluded.made_at,
    client_id = excluded.client_id, reason = excluded.reason, detail = excluded.detail,
    field = excluded.field, explanation = excluded.explanation,
    first_reason = CASE WHEN q.status = 'resolved' THEN ''
        WHEN q.first_reason = '' AND q.reason <> excluded.reason THEN q.reason
        ELSE q.first_reason END,
    first_detail = CASE WHEN q.status = 'resolved' THEN ''
        WHEN q.first_reason = '' AND q.reason <> excluded.reason THEN q.detail
        ELSE q.first_detail END,
    first_explanation = CASE WHEN q.status = 'resolved' THEN NULL
        WHEN q.first_reason = '' AND q.reason <> excluded.reason THEN q.explanation
        ELSE q.first_explanation END,
    status = CASE WHEN q.status = 'resolved' THEN excluded.status ELSE q.status END,
    attempts = CASE WHEN q.status = 'resolved' THEN 0 ELSE q.attempts END,
    next_attempt = CASE WHEN q.status = 'resolved' THEN excluded.next_attempt
        ELSE q.next_attempt END,
    settled_at = CASE WHEN q.status = 'resolved' THEN NULL ELSE q.settled_at END,
    outcome = CASE WHEN q.status = 'resolved' THEN '' ELSE q.outcome END
"""
# Resolves messages that were bad when their partition was read earlier, and are good now.
_RESOLVE_REREAD_MESSAGES: Final[LiteralString] = """
UPDATE ingest_quarantine SET status = 'resolved', outcome = 'read again',
    settled_at = now(), next_attempt = NULL
WHERE topic = %(topic)s AND topic_id = %(topic_id)s AND partition = %(partition)s
    AND "offset" >= %(start)s AND "offset" < %(end)s
    AND status <> 'resolved' AND "offset" <> ALL(%(bad)s)
"""


def quarantine_messages(
    connection: Connection, bad_messages: Sequence[BadMessage], claims: Claims
) -> None:
    """Put messages into quarantine, inside the caller's transaction.

    If a message is in quarantine already, its content and reason are replaced. Its status, attempts
    and first reason are kept, except if it was resolved: then it counts as new.
    """
    if not bad_messages:
        return
    topic_ids = {partition.kafka: partition.topic_id for partition in claims}
    with connection.cursor() as cursor:
        cursor.executemany(
            _ADD_MESSAGE,
            [
                _make_row(
                    bad_message, topic_ids[bad_message.message.topic, bad_message.message.partition]
                )
                for bad_message in bad_messages
            ],
        )


def _make_row(bad_message: BadMessage, topic_id: str) -> dict[str, Any]:
    """Return the columns of the quarantine's row for a bad message, by name."""
    message = bad_message.message
    identity, parent_and_time = identify_message(message), find_parent_and_time(message)
    return {
        "topic": message.topic,
        "topic_id": topic_id,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": message.key,
        "value": message.value,
        "headers": Jsonb(headers_to_json(message.headers)),
        "day": _guess_message_day(message),
        "entity": identity.entity,
        "entity_id": identity.id,
        "version": identity.version,
        "application": parent_and_time.application,
        "made_at": parent_and_time.updated_at,
        "client_id": identify_service(message),
        "pause": FIRST_PAUSE_SECONDS,
        **make_reason_columns(bad_message),
    }


def make_reason_columns(bad_message: BadMessage) -> dict[str, Any]:
    """Return the columns that say why a message is bad."""
    explanation = bad_message.explanation
    return {
        "reason": str(bad_message.reason),
        "detail": escape_unstorable(explanation.english),
        "field": escape_unstorable(explanation.field),
        "explanation": Jsonb(explanation.to_json()),
    }


def resolve_reread_messages(
    connection: Connection,
    bad_messages: Iterable[BadMessage],
    read: Mapping[TopicPartition, PartitionProgress],
    claims: Claims,
) -> None:
    """Resolve messages in quarantine that were read again and are good now.

    Runs inside the caller's transaction.

    Args:
        bad_messages: The bad messages of the batch. All other messages of the batch are good.
        read: The offsets that the batch covers, by topic partition.
    """
    reread_partitions = [
        partition
        for partition, progress in read.items()
        if progress.start < claims[partition].reread_until
    ]
    if not reread_partitions:
        return
    bad: dict[KafkaPartition, list[int]] = {}
    for bad_message in bad_messages:
        message = bad_message.message
        bad.setdefault((message.topic, message.partition), []).append(message.offset)
    for topic_partition in reread_partitions:
        connection.execute(
            _RESOLVE_REREAD_MESSAGES,
            {
                "topic": topic_partition.topic,
                "topic_id": topic_partition.topic_id,
                "partition": topic_partition.partition,
                "start": read[topic_partition].start,
                "end": read[topic_partition].next,
                "bad": bad.get(topic_partition.kafka, []),
            },
        )


def _guess_message_day(message: KafkaMessage) -> date:
    """Return the UTC day of the version, or the day of the message if that is not known."""
    day = guess_day(message.value)
    if day is not None:
        return day
    if message.timestamp >= 0:
        return datetime.fromtimestamp(message.timestamp / 1000, UTC).date()
    return clock.now().date()
