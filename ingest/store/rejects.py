"""Writes bad messages to the quarantine, byte for byte, in the transaction of their batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg.types.json import Jsonb

from ingest.source.message import TopicPartition
from ingest.store.batch import Reject
from ingest.store.ledger import Claim, Connection

FIRST_PAUSE_SECONDS = 60


def add(
    connection: Connection, rejects: Sequence[Reject], claims: Mapping[TopicPartition, Claim]
) -> None:
    """Put messages into quarantine, inside the caller's transaction."""
    if not rejects:
        return
    ids = {(source.topic, source.partition): source.topic_id for source in claims}
    with connection.cursor() as cursor:
        cursor.executemany(
            'INSERT INTO ingest_quarantine (topic, topic_id, partition, "offset", timestamp, key,'
            " value, headers, reason, detail, status, attempts, first_seen, next_attempt, outcome)"
            " VALUES (%s, %s, %s, %s, CASE WHEN %s >= 0 THEN to_timestamp(%s / 1000.0) END, %s, %s,"
            " %s, %s, %s, 'new', 0, now(), now() + make_interval(secs => %s), '')",
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
                    Jsonb([[name, None if v is None else v.hex()] for name, v in message.headers]),
                    str(reject.reason),
                    reject.detail,
                    FIRST_PAUSE_SECONDS,
                )
                for reject in rejects
                for message in (reject.message,)
            ],
        )
