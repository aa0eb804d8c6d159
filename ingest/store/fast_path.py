"""Stores rows by one COPY into the table of their entity, all of them or none, with what belongs to
them: their business keys, and a note about each where their day is sealed."""

from collections.abc import Sequence
from operator import attrgetter

from psycopg import sql

from history.daily import days
from history.daily.canonical import encoded
from history.daily.window import MICROSECONDS_PER_DAY, day_of
from history.entities import Entity
from history.search_index.keys import KeyRow
from history.search_index.upsert import upsert
from ingest.store.batch import Row
from ingest.store.copy import RowsDroppedError, columns, copy, encode_rows
from ingest.store.ledger import Connection

# Each row is found by primary key: ingest.store.session has the settings for that.
_NOTE = """
INSERT INTO late_row
    ("table", day, row_id, version, row_hash, topic, partition, "offset", noted_at, sealed)
SELECT %s, %s, row_id, row_version, sha256({encoded}), topic, partition, "offset", now(), false
FROM unnest(%s::text[], %s::bigint[], %s::int[], %s::text[], %s::int[], %s::bigint[])
    AS given(row_id, moment, row_version, topic, partition, "offset")
JOIN {table} ON id = row_id AND version = row_version
    AND updated_at = 'epoch'::timestamptz + moment * interval '1 microsecond'
WHERE updated_at >= %s::timestamptz AND updated_at < %s::timestamptz
"""


def note(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """Note those of the rows that entered a sealed day, in the transaction that has just stored
    them. The days are asked about, not a clock. A sealer commits its mark before it waits for the
    lock of the rows (seals.day_snapshot.announce), so one of both sees the other; and who packs a
    day marks it while nobody can write."""
    written = {row.record.updated_at // MICROSECONDS_PER_DAY for row in rows}
    marked = days.marks(
        connection, entity.table, [day_of(day * MICROSECONDS_PER_DAY) for day in written]
    )
    if not marked:
        return
    query = sql.SQL(_NOTE).format(encoded=encoded(entity), table=sql.Identifier(entity.table))
    for day in sorted(marked):
        late = [row for row in rows if day_of(row.record.updated_at) == day]
        connection.execute(query, (entity.table, day, *_columns(late), *days.bounds(day)))


def _columns(rows: Sequence[Row]) -> tuple[list[object], ...]:
    """Key and origin of the rows, column by column."""
    values = [
        (
            row.record.id,
            row.record.updated_at,
            row.record.version,
            row.message.topic,
            row.message.partition,
            row.message.offset,
        )
        for row in rows
    ]
    return tuple(list(column) for column in zip(*values, strict=True))


_RECORD = attrgetter("record")


def copy_rows(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """Store all rows, or raise an error and store none. Those of sealed days are noted."""
    chunks = encode_rows(map(_RECORD, rows))
    taken = copy(connection, sql.Identifier(entity.table), columns(entity), chunks)
    if taken != len(rows):
        raise RowsDroppedError(
            f"{entity.table} took {taken:,} of {len(rows):,} rows: a trigger or a rule of it drops "
            "the others. Remove that"
        )
    note(connection, entity, rows)


def index(connection: Connection, keys: Sequence[KeyRow]) -> None:
    """Store keys, each with its newest day, inside the caller's transaction. keys: sorted."""
    if keys:
        upsert(connection, keys)
