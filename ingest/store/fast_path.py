"""Stores rows by one COPY into the table of their entity, all of them or none, with what belongs to
them: their business keys, and a note about each where their day is sealed."""

import time
from collections.abc import Container, Iterable, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Final
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


# The rows that a block of their day has already, or may have: position 0 is one of a block that is
# not as it was written. The moments of a block are in microseconds.
_IN_BLOCKS = """
SELECT true FROM (
    SELECT 1 FROM unnest(%s::text[], %s::bigint[], %s::int[]) AS given(row_id, moment, row_version)
    JOIN {versions} AS stored ON stored.id = row_id AND in_block
        AND (position = 0 OR stored_at >= updated_at AND stored.version = row_version
            AND updated_at = 'epoch'::timestamptz + moment * interval '1 microsecond')
    WHERE stored_at >= %s::timestamptz AND stored_at < %s::timestamptz LIMIT 1
) AS inside
"""


class StoredInBlockError(errors.UniqueViolation):
    """A row has the key of a version that is packed."""


# For how many seconds the server's clock is trusted to go on as this machine's monotonic one: a
# question with each batch would cost a batch of one some percent.
SERVER_TIME_S: Final = 30.0
# By connection: the monotonic time of the question, and the server's answer.
SERVER_TIMES: Final[WeakKeyDictionary[Connection, tuple[float, datetime]]] = WeakKeyDictionary()


def _server_time(connection: Connection) -> datetime:
    """Return the time by the server's clock, which does not depend on this machine's."""
    known = SERVER_TIMES.get(connection)
    if known is None or time.monotonic() - known[0] > SERVER_TIME_S:
        known = SERVER_TIMES[connection] = time.monotonic(), clock.read_server_time(connection)
    return known[1] + timedelta(seconds=time.monotonic() - known[0])


def note(connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]) -> None:
    """Note those of the rows that entered a sealed day, in the transaction that has just stored
    them. Days that are not over by the server's clock are not asked about: none of them is sealed
    or packed, whatever this machine's clock says. A sealer
    commits its mark before it waits for the lock of the rows (seals.day_snapshot.announce), so one
    of both sees the other; and who packs a day marks it while nobody can write. Raises
    StoredInBlockError if a block has one of the rows."""
    written = {row.record.updated_at // MICROSECONDS_PER_DAY for row in rows}
    today = (_server_time(connection).date() - EPOCH).days
    written_days = [compute_day(day * MICROSECONDS_PER_DAY) for day in written if day < today]
    query = sql.SQL(_NOTE).format(
        encoded=build_encoding(entity), table=sql.Identifier(entity.table)
    )
    for day, packed in sorted(
        days.load_sealed_days(connection, entity.table, written_days).items()
    ):
        late = [row for row in rows if compute_day(row.record.updated_at) == day]
        columns, bounds = _columns(late), days.compute_bounds(day)
        if packed:
            spread = distribution.is_distributed(connection)
            versions = sql.SQL(build_versions_query(entity, spread=spread))
            inside = sql.SQL(_IN_BLOCKS).format(versions=versions)
            if connection.execute(inside, (*columns[:3], *bounds)).fetchone() == (True,):
                raise StoredInBlockError(f"a block of {entity.table} {day} has the row")
        connection.execute(query, (entity.table, day, *columns, *bounds))


def _columns(rows: Sequence[DecodedRow]) -> tuple[list[object], ...]:
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


def copy_rows(connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]) -> None:
    """Store all rows, or raise an error and store none. Those of sealed days are noted."""
    chunks = encode_rows(map(_RECORD, rows))
    taken = copy_pieces(connection, sql.Identifier(entity.table), get_copy_columns(entity), chunks)
    if taken != len(rows):
        raise RowsDroppedError(
            f"{entity.table} took {taken:,} of {len(rows):,} rows: a trigger or a rule of it drops "
            "the others. Remove that"
        )
    note(connection, entity, rows)


def store_search_keys(connection: Connection, keys: Sequence[SearchKeyRow]) -> None:
    """Store keys, each with its newest day, inside the caller's transaction. keys: sorted."""
    if keys:
        upsert_keys(connection, keys)


def store_children(
    connection: Connection, rows: Iterable[DecodedRow], known: Container[int] = frozenset()
) -> set[int]:
    """List the children that the rows are of, inside the caller's transaction: on a cluster.

    A row that is refused may be among them: its child is listed without a version.

    Args:
        known: Fingerprints of children that are listed already.

    Returns:
        The fingerprints of those that were listed now.
    """
    if not distribution.is_distributed(connection):
        return set()
    children = NewChildren(known)
    for row in rows:
        children.add_record(row.record)
    upsert_children(connection, children.list_rows())
    return children.fingerprints
