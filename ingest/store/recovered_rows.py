"""Messages that Annals asked for: how they are told from Kafka's, and where they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from history.entities import Entity
from history.window import day_of
from ingest.source.message import Message, TopicPartition
from ingest.store.batch import Row
from ingest.store.ledger import Connection

# In the place of a partition and of a topic's id: no partition of Kafka has them.
PARTITION = -1
TOPIC_ID = "recovered"
_SOURCE = "annals-source"

_NOTE = """
INSERT INTO recovered_version ("table", row_id, version, updated_at, day, source, recovered_at)
SELECT %s, row_id, version, 'epoch'::timestamptz + moment * interval '1 microsecond', day, source,
    now()
FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::date[], %s::text[])
    AS given (row_id, version, moment, day, source)
ON CONFLICT DO NOTHING
"""


def message(topic: str, source: str, id: str, version: int, value: bytes) -> Message:
    """An answer as a message. The same version of the same source is the same message, however
    often it is asked for."""
    digest = hashlib.sha256("\0".join((source, topic, id, str(version))).encode()).digest()
    offset = int.from_bytes(digest[:8]) >> 1
    headers = ((_SOURCE, source.encode()),)
    return Message(topic, PARTITION, offset, -1, id.encode(), value, headers)


def place(topic: str) -> TopicPartition:
    """In the place of the partition of such messages."""
    return TopicPartition(topic, TOPIC_ID, PARTITION)


def note(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """Note where those of the rows came from that Annals asked for, in the transaction that has
    stored them."""
    columns = [
        (
            row.record.id,
            row.record.version,
            row.record.updated_at,
            day_of(row.record.updated_at),
            _source(row.message),
        )
        for row in rows
        if row.message.partition == PARTITION
    ]
    if columns:
        connection.execute(
            _NOTE, [entity.table, *(list(column) for column in zip(*columns, strict=True))]
        )


def _source(message: Message) -> str:
    return next((value or b"" for name, value in message.headers if name == _SOURCE), b"").decode()
