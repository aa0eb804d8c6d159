"""Stores rows by one COPY into the table of their kind: all of them, or none.

Begin with `copy_rows`. The module also notes rows that enter a sealed day, and stores search keys
and children.
"""

import time
from collections.abc import Container, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from psycopg import errors, sql

from history.common import clock
from history.kinds.entities import EntityKind
from history.store import distribution
from history.store.blocks.queries import build_versions_query
from history.store.days import days
from history.store.days.canonical import build_encoding
from history.store.days.window import EPOCH, MICROSECONDS_PER_DAY, compute_day
from history.store.search_index.children import NewChildren, upsert_children
from history.store.search_index.keys import SearchKeyRow
from history.store.search_index.upsert import upsert_keys
from ingest.store.batch import DecodedRow
from ingest.store.copy import RowsDroppedError, copy_pieces, encode_rows, get_copy_columns
from ingest.store.ledger import Connection

_RECORD = attrgetter("record")


class StoredInBlockError(errors.UniqueViolation):
    """Raised when a block already has the version of a row."""


def copy_rows(connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]) -> None:
    """Store all rows, or raise an error and store no row. Note the rows that enter a sealed day.

    Raises:
        psycopg.errors.UniqueViolation: A version is stored already.
        RowsDroppedError: PostgreSQL stored fewer rows than were sent.
    """
    chunks = encode_rows(map(_RECORD, rows))
    count = copy_pieces(connection, sql.Identifier(entity.table), get_copy_columns(entity), chunks)
    if count != len(rows):
        raise RowsDroppedError(
            f"{entity.table} took {count:,} of {len(rows):,} rows: a trigger or rule of this table "
            "drops the others. Remove the trigger or rule"
        )
    note_late_rows(connection, entity, rows)


def store_search_keys(connection: Connection, keys: Sequence[SearchKeyRow]) -> None:
    """Insert or update search keys with their newest days, in the caller's transaction.

    Args:
        keys: The search keys, in the order of `NewSearchKeys.list_rows`.
    """
    if keys:
        upsert_keys(connection, keys)


def store_children(
    connection: Connection, rows: Iterable[DecodedRow], known: Container[int] = frozenset()
) -> set[int]:
    """On a cluster, add the children in these rows to the table of children.

    Runs inside the caller's transaction. Does nothing on a single server. A child stays in the
    table even if PostgreSQL refuses the row of its only version.

    Args:
        known: Fingerprints of children that are already in the table.

    Returns:
        The fingerprints of the children that were added.
    """
    if not distribution.is_distributed(connection):
        return set()
    children = NewChildren(known)
    for row in rows:
        children.add_record(row.record)
    upsert_children(connection, children.list_rows())
    return children.fingerprints


# PostgreSQL finds each row by primary key: the settings in ingest.store.session rule out other
# plans.
_NOTE_LATE_ROWS = """
INSERT INTO late_row
    ("table", day, row_id, version, row_hash, topic, partition, "offset", noted_at, sealed)
SELECT %(table)s, %(day)s, row_id, row_version, sha256({encoded}), topic, partition, "offset",
    now(), false
FROM unnest(%(ids)s::text[], %(moments)s::bigint[], %(versions)s::int[], %(topics)s::text[],
        %(partitions)s::int[], %(offsets)s::bigint[])
    AS late(row_id, moment, row_version, topic, partition, "offset")
JOIN {table} ON id = row_id AND version = row_version
    AND updated_at = 'epoch'::timestamptz + moment * interval '1 microsecond'
WHERE updated_at >= %(start)s::timestamptz AND updated_at < %(end)s::timestamptz
"""
# Whether a block of the day has one of the rows. A damaged block (position 0) may have any row.
# `stored_at` is updated_at of the block, which is the moment of its newest version.
_FIND_IN_BLOCKS = """
SELECT true FROM (
    SELECT 1 FROM unnest(%(ids)s::text[], %(moments)s::bigint[], %(versions)s::int[])
        AS late(row_id, moment, row_version)
    JOIN {versions} AS stored ON stored.id = row_id AND in_block
        AND (position = 0 OR stored_at >= updated_at AND stored.version = row_version
            AND updated_at = 'epoch'::timestamptz + moment * interval '1 microsecond')
    WHERE stored_at >= %(start)s::timestamptz AND stored_at < %(end)s::timestamptz LIMIT 1
) AS inside
"""


def note_late_rows(connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]) -> None:
    """Note the rows that entered a sealed day, in the transaction that has just stored them.

    Days that are not over by the server's clock are left out: they are neither sealed nor packed.

    No late row is missed. Before the sealer reads a day, it commits a mark that the day is sealed.
    Then it waits for every transaction that has written rows of the day (`announce` in
    history/retention/seals/day_snapshot.py). So either this transaction sees the mark, or the
    sealer sees the rows of this transaction. A day is marked as packed while a lock on its table
    keeps out all writers.

    Raises:
        StoredInBlockError: A block already has the version of one of the rows.
    """
    day_numbers = {row.record.updated_at // MICROSECONDS_PER_DAY for row in rows}
    today = (_get_server_time(connection).date() - EPOCH).days
    finished_days = [
        compute_day(number * MICROSECONDS_PER_DAY) for number in day_numbers if number < today
    ]
    packed_by_day = days.load_sealed_days(connection, entity.table, finished_days)
    for day, is_packed in sorted(packed_by_day.items()):
        late_rows = [row for row in rows if compute_day(row.record.updated_at) == day]
        start, end = days.compute_bounds(day)
        parameters = {
            "table": entity.table,
            "day": day,
            "ids": [row.record.id for row in late_rows],
            "moments": [row.record.updated_at for row in late_rows],
            "versions": [row.record.version for row in late_rows],
            "topics": [row.message.topic for row in late_rows],
            "partitions": [row.message.partition for row in late_rows],
            "offsets": [row.message.offset for row in late_rows],
            "start": start,
            "end": end,
        }
        if is_packed:
            versions = sql.SQL(build_versions_query(entity))
            find_in_blocks = sql.SQL(_FIND_IN_BLOCKS).format(versions=versions)
            if connection.execute(find_in_blocks, parameters).fetchone() == (True,):
                raise StoredInBlockError(
                    f"{entity.table} {day}: a block already has a version of this batch"
                )
        note = sql.SQL(_NOTE_LATE_ROWS).format(
            encoded=build_encoding(entity), table=sql.Identifier(entity.table)
        )
        connection.execute(note, parameters)


# For how many seconds the server's time is computed from this machine's monotonic clock. To ask the
# server with each batch would make a batch of one message some percent slower.
SERVER_TIME_S: Final = 30.0


class ServerTime(NamedTuple):
    """A time that was read from the clock of the database server."""

    read_at: float  # time.monotonic()
    time: datetime


# The time that was last read through each connection.
SERVER_TIMES: Final[WeakKeyDictionary[Connection, ServerTime]] = WeakKeyDictionary()


def _get_server_time(connection: Connection) -> datetime:
    """Return the current time by the clock of the database server.

    The clock is read again after SERVER_TIME_S. Until then, the seconds since the last reading are
    added to it.
    """
    answer = SERVER_TIMES.get(connection)
    if answer is None or time.monotonic() - answer.read_at > SERVER_TIME_S:
        answer = ServerTime(time.monotonic(), clock.read_server_time(connection))
        SERVER_TIMES[connection] = answer
    return answer.time + timedelta(seconds=time.monotonic() - answer.read_at)
