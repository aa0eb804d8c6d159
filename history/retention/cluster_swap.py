"""Helps to replace a day's table on a Citus cluster: the new table, digests, ranges of ids.

Citus does not allow triggers on distributed tables, so no trigger notes the rows that change while
the new table is filled. Instead Annals digests the keys of the old table twice: before it reads the
table, and again before the swap, when writers are locked out. If the digests differ, the day stays
as it is, and the next run tries again. An SQL statement that changes the content of a row but not
its key is not noticed.

The coordinator sorts the rows that it reads. Sorting takes little memory because a day is read in
ranges of ids, one after another in the order of the ids.
"""

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from datetime import date
from itertools import islice, pairwise
from typing import Any, Final, LiteralString, NamedTuple, TypeVar

import psycopg
from psycopg import sql

from history.kinds.entities import EntityKind
from history.store import distribution
from history.store.blocks import queries
from history.store.days import days
from history.store.days.canonical import build_stored_order, list_columns
from history.store.days.days import DayTable
from history.store.distribution.disk_use import DiskUse, measure_disk_use

Connection = psycopg.Connection[Any]
T = TypeVar("T")

# How many bytes of a table are read and sorted at once.
RANGE_BYTES: Final = 32 * 1024 * 1024
# work_mem for sorting RANGE_BYTES on the coordinator. With less memory the coordinator would write
# the rows to its disk twice.
_WORK_MEMORY: Final = "128MB"
# How many sampled ids there are for each range. The bounds of the ranges are chosen from them.
IDS_OF_RANGE: Final = 100

# Counts the rows and versions of a table, and adds up a hash of each row. The sum does not depend
# on the order in which the nodes return the rows. The hash of a row covers its primary key. If the
# row is a block, the hash also covers the length of the block.
_KEYS: Final[LiteralString] = """
SELECT count(*), coalesce(sum({versions}), 0)::bigint,
    coalesce(sum(hash_record_extended(ROW(id, version, updated_at, {block}), 0)), 0)::text
FROM {table}
"""
_SOME_IDS: Final[LiteralString] = """
SELECT id FROM (SELECT id FROM {table} TABLESAMPLE SYSTEM ({percent})) AS sample ORDER BY id
"""
_NODE_USE: Final[LiteralString] = """
SELECT json_build_array(pg_database_size(current_database()), (
    SELECT coalesce(sum(pg_total_relation_size(part.oid)), 0) FROM pg_dist_shard
    JOIN pg_class whole ON whole.oid = logicalrelid
    JOIN pg_class part ON part.relnamespace = whole.relnamespace
        AND part.relname = whole.relname || '_' || shardid
    WHERE logicalrelid = {table}::regclass))
"""
# The bytes of a binary COPY before and after its rows.
_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END: Final = b"\xff\xff"


class RowsChangedError(Exception):
    """Raised if the old table changed after its keys were digested and before it was locked."""


class KeyDigest(NamedTuple):
    """A digest of the keys of a table, and how many rows and versions the table has."""

    rows: int
    versions: int
    digest: str


class IdRange(NamedTuple):
    """A range of ids, in the order in which the database sorts ids."""

    above: str | None = None  # excluded; None: the range begins with the first id
    up_to: str | None = None  # included; None: the range ends with the last id

    def select_from(self, table: sql.Identifier) -> sql.Composable:
        """Build a FROM item with the rows of this range: a subquery, or the table itself."""
        if self == ALL_IDS:
            return table
        bounds = {"id > {}": self.above, "id <= {}": self.up_to}
        conditions = [
            sql.SQL(text).format(sql.Literal(id)) for text, id in bounds.items() if id is not None
        ]
        return sql.SQL("(SELECT * FROM {} WHERE {}) AS id_range").format(
            table, sql.SQL(" AND ").join(conditions)
        )


ALL_IDS: Final = IdRange()


class NodeUse(NamedTuple):
    """The bytes that the database takes on one node, and the bytes that one table takes there."""

    node: str | None  # host and port; None: there is only one server
    database: int
    table: int


def split_table(connection: Connection, table: sql.Identifier) -> list[IdRange]:
    """Return ranges of ids in their order, each with about RANGE_BYTES of the table."""
    use = measure_table(connection, table)
    count = -(-use.table // RANGE_BYTES)
    if count < 2:
        return [ALL_IDS]
    percent = min(100.0, 100.0 * count * IDS_OF_RANGE / max(1, use.rows))
    query = sql.SQL(_SOME_IDS).format(table=table, percent=sql.Literal(percent))
    ids = [id for (id,) in connection.execute(query)]
    bounds = dict.fromkeys(ids[number * len(ids) // count] for number in range(1, count) if ids)
    return [IdRange(above, up_to) for above, up_to in pairwise([None, *bounds, None])]


def allow_memory(connection: Connection) -> None:
    """Raise work_mem of this session, so that it can sort the rows of an IdRange in memory."""
    connection.execute("SELECT set_config('work_mem', %s, false)", [_WORK_MEMORY])


def chain_streams(readers: Sequence[Connection], streams: Iterator[Generator[T]]) -> Generator[T]:
    """Yield the items of all streams, one stream after another.

    While one stream is read, a thread already takes the first item of the next stream. So the
    query of the next stream runs meanwhile, and its rows wait on the server.

    Args:
        readers: The connections that the streams use. A stream must not use the connection of the
            stream before it.
    """
    with ThreadPoolExecutor(max_workers=1) as pool:
        upcoming = _begin_next(pool, streams)
        try:
            while upcoming is not None:
                first_items, stream = upcoming.result()
                with closing(stream):
                    upcoming = _begin_next(pool, streams)
                    yield from first_items
                    yield from stream
        finally:
            if upcoming is not None:  # the caller stopped early, or the next query failed
                _cancel(upcoming, readers)


def _cancel(upcoming: Future[tuple[list[T], Generator[T]]], readers: Sequence[Connection]) -> None:
    """End the query of a stream that nobody reads any more, and close the stream.

    Errors are suppressed: the caller has an error already, or does not need the stream.
    """
    with suppress(Exception):
        while not upcoming.done():
            for reader in readers:
                reader.cancel_safe()  # has no effect between two statements, so it is repeated
            wait([upcoming], timeout=0.1)
        upcoming.result()[1].close()


def _begin_next(
    pool: Executor, streams: Iterator[Generator[T]]
) -> Future[tuple[list[T], Generator[T]]] | None:
    """Let a thread take the first item of the next stream.

    Returns:
        None if there is no next stream. Otherwise a future with a pair as its result. The first
        member is a list with the item; the list is empty if the stream has no items. The second
        member is the stream.
    """
    stream = next(streams, None)
    if stream is None:
        return None
    return pool.submit(lambda: (list(islice(stream, 1)), stream))


def create_new_table(connection: Connection, day_table: DayTable, day: date) -> None:
    """Create and distribute the new table of a day, in the caller's transaction.

    Each shard is placed on the node with the same shard of the parent, so that ATTACH does not move
    rows later.
    """
    distribution.use_one_connection(connection)
    connection.execute("SELECT set_config('work_mem', %s, true)", [_WORK_MEMORY])
    new = day_table._replace(child=day_table.new)
    days.create_detached_table(connection, new, day, day_table.comment or days.MARK)
    connection.execute(
        "SELECT create_distributed_table(%s, 'id', colocate_with => %s)",
        [day_table.new.as_string(connection), day_table.parent.as_string(connection)],
    )


def hash_rows(
    connection: Connection, entity: EntityKind, table: sql.Identifier, ranges: Iterable[IdRange]
) -> bytes:
    """Return the SHA-256 of the bytes that a binary COPY of all rows in the ranges would give.

    Instead of one COPY of all rows, there is one for each range. The nodes return rows in any
    order, so each COPY sorts the rows in the order in which they were written.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, (*list_columns(entity), *queries.BLOCK_COLUMNS)))
    order = build_stored_order(connection, entity)
    table_hash = hashlib.sha256(_COPY_HEADER)
    for id_range in ranges:
        query = sql.SQL("COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT (FORMAT BINARY)").format(
            names, id_range.select_from(table), order
        )
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for chunk in copy:
                row = bytes(chunk).removeprefix(_COPY_HEADER)
                if row != _COPY_END:
                    table_hash.update(row)
    table_hash.update(_COPY_END)
    return table_hash.digest()


def digest_keys(connection: Connection, table: sql.Identifier, *, packed: bool) -> KeyDigest:
    """Return the digest of the keys of a table. `packed` says whether the table may have blocks."""
    query = sql.SQL(_KEYS).format(
        table=table,
        versions=sql.SQL("coalesce(octet_length(keys), 0) / 8 + 1" if packed else "1"),
        block=sql.SQL("octet_length(packed)" if packed else "NULL::int"),
    )
    row = connection.execute(query).fetchone()
    assert row is not None  # an aggregate is one row  # noqa: S101
    return KeyDigest(*row)


def measure_table(connection: Connection, table: sql.Identifier) -> DiskUse:
    """Return the rows and bytes of a day's table on all nodes.

    Do not call it in a transaction that changed the table.
    """
    name = str(table._obj[-1])
    return measure_disk_use(connection, [name]).get(name, DiskUse())


def measure_nodes(connection: Connection, table: sql.Identifier) -> Sequence[NodeUse]:
    """Return the bytes of this database and of a day's table on each node.

    Raises:
        psycopg.OperationalError: A node does not answer.
    """
    name = sql.Literal(table.as_string(connection))
    query = sql.SQL(_NODE_USE).format(table=name).as_string(connection)
    uses = []
    for answer in distribution.ask_nodes(connection, query):
        if not answer.success:
            raise psycopg.OperationalError(f"{answer.node} does not answer: {answer.result}")
        uses.append(NodeUse(answer.node, *json.loads(answer.result)))
    return uses
