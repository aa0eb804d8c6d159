"""Stores the rows of a batch in which some rows are stored already, or cannot be stored.

Begin with `store_deduplicated` and `store_isolated`. Rows with a new key go to the table by COPY.
Rows with a stored key go to a staging table, so that PostgreSQL can compare them with the stored
rows.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import NamedTuple

import msgspec
import psycopg
from psycopg import errors, sql
from psycopg.rows import args_row

from history.common.single_row import require_row
from history.kinds.entities import EntityKind
from history.store.blocks.codec import DamagedBlockError
from history.store.blocks.queries import build_damage_error, build_versions_query, read_snapshots
from history.store.days import days
from history.store.days.days import WHOLE_ROWS
from history.store.days.window import MICROSECONDS_PER_DAY, compute_day
from history.store.json_columns import encode_columns
from history.store.search_index.keys import NewSearchKeys
from ingest.messages.explanations import Code, Explanation
from ingest.messages.message import KafkaMessage
from ingest.messages.rejection import Reason
from ingest.store.batch import BadMessage, DecodedRow
from ingest.store.copy import (
    RefusedRow,
    copy_pieces,
    encode_row,
    get_copy_columns,
    isolate_bad_rows,
    make_bad_message,
    prefix_number,
)
from ingest.store.fast_path import copy_rows, store_search_keys
from ingest.store.ledger import Connection

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """The messages without a new row in one batch. All other messages of the batch were stored."""

    repeated: list[KafkaMessage] = field(default_factory=list)  # stored before
    refused: list[BadMessage] = field(default_factory=list)  # cannot be stored


def store_deduplicated(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> StoreOutcome:
    """Store the rows that are not stored yet. The caller stores their search keys.

    Runs inside the caller's transaction.

    Raises:
        psycopg.errors.UniqueViolation: Another writer stores one of the rows at the same time.
    """
    return DeduplicatingWriter(connection, entity, isolate=False).store(rows)


def store_isolated(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> StoreOutcome:
    """Store the rows that are not stored yet, each with its search keys.

    Runs inside the caller's transaction. If another writer stores one of the rows at the same time,
    no error is raised: the row is looked up again.
    """
    return DeduplicatingWriter(connection, entity, isolate=True).store(rows)


class DeduplicatingWriter:
    """Stores the rows of one batch that are not stored yet, row by row if need be.

    Made for one call of `store_deduplicated` or `store_isolated`.

    Args:
        isolate: Whether to find the rows that PostgreSQL refuses, and store the others.
    """

    def __init__(self, connection: Connection, entity: EntityKind, isolate: bool) -> None:
        self._connection = connection
        self._entity = entity
        self._isolate = isolate
        self._outcome = StoreOutcome()
        # Rows with a stored key, to be compared with the stored rows.
        self._known_rows: list[DecodedRow] = []
        # The id() of rows that violated a unique constraint although their key was not stored.
        self._conflicted: set[int] = set()
        # The id() of rows with a stored key for which the comparison found no stored row.
        self._vanished: set[int] = set()

    def store(self, rows: Sequence[DecodedRow]) -> StoreOutcome:
        """Store the new rows, and compare the others with the stored rows of the same keys."""
        waiting_rows = list(rows)
        while waiting_rows or self._known_rows:
            while waiting_rows:
                waiting_rows = self._store_new_rows(waiting_rows)
            rows_to_compare, self._known_rows = self._known_rows, []
            waiting_rows = self._compare(rows_to_compare)
        return self._outcome

    def _store_new_rows(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Store the first row of each key that is not stored yet.

        Rows with a stored key are added to `_known_rows`.

        Returns:
            The rows to pass to this method again. Either another writer may have stored them
            meanwhile, or an earlier row with the same key was refused.
        """
        split = split_new_and_known(self._connection, self._entity, rows)
        refused_rows = isolate_bad_rows(
            self._connection, self._copy, split.new, conflicts=self._isolate
        )
        refused_keys = {get_key(refused.row) for refused in refused_rows}
        conflicting = [refused.row for refused in refused_rows if self._is_new_conflict(refused)]
        conflicting_ids = {id(row) for row in conflicting}
        self._reject(refused for refused in refused_rows if id(refused.row) not in conflicting_ids)
        if not refused_keys:
            self._known_rows += split.known
            return []
        # A row with the key of a refused row is not a repeat: it may be the first one to be stored.
        rows_of_refused_keys: list[DecodedRow] = []
        for row in split.known:
            has_refused_key = get_key(row) in refused_keys
            (rows_of_refused_keys if has_refused_key else self._known_rows).append(row)
        return conflicting + self._select_storable(rows_of_refused_keys)

    def _is_new_conflict(self, refused: RefusedRow) -> bool:
        """Return whether another writer may have stored the row since its key was looked up.

        Return False if an earlier call has returned True for the same row.
        """
        row_id = id(refused.row)
        if not isinstance(refused.error, errors.UniqueViolation) or row_id in self._conflicted:
            return False
        self._conflicted.add(row_id)
        return True

    def _copy(self, rows: Sequence[DecodedRow]) -> None:
        copy_rows(self._connection, self._entity, rows)
        if self._isolate:
            keys = NewSearchKeys()
            for row in rows:
                keys.add_record(row.record)
            store_search_keys(self._connection, keys.list_rows())

    def _select_storable(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Return the rows that the columns of the table can hold. The others count as refused."""
        if not rows:
            return []
        with self._connection.transaction(force_rollback=True):
            refused_rows = self._stage(rows)
        self._reject(refused_rows)
        refused_ids = {id(refused.row) for refused in refused_rows}
        return [row for row in rows if id(row) not in refused_ids]

    def _compare(self, rows: Sequence[DecodedRow]) -> list[DecodedRow]:
        """Compare rows with the stored rows of the same keys.

        A row that equals the stored row is a repeat. A row that differs goes to quarantine.

        Returns:
            The rows that could not be compared, because `annals partitions maintain` has detached
            the day of the stored row since the keys were looked up. The keys of these rows must be
            looked up again. A row to which this happens a second time goes to quarantine instead,
            and is retried later.
        """
        if not rows:
            return []
        refused_rows = self._stage(rows)
        self._reject(refused_rows)
        refused_ids = {id(refused.row) for refused in refused_rows}
        comparison = compare_staged(self._connection, self._entity, rows)
        rows_to_look_up: list[DecodedRow] = []
        for number, row in enumerate(rows):
            if id(row) in refused_ids:
                continue
            if number in comparison.equal:
                self._outcome.repeated.append(row.message)
            elif number in comparison.differing or id(row) in self._vanished:
                self._outcome.refused.append(
                    BadMessage(row.message, Reason.DIVERGENT, Explanation(Code.DIVERGENT))
                )
            else:
                self._vanished.add(id(row))
                rows_to_look_up.append(row)
        return rows_to_look_up

    def _stage(self, rows: Sequence[DecodedRow]) -> list[RefusedRow]:
        """Copy rows into the staging table, and return the rows that its columns cannot hold.

        The number of a staged row is its position in `rows`.
        """
        create_staging_table(self._connection, self._entity)
        if self._vanished:  # the staging table still has the rows of the first comparison
            self._connection.execute(
                sql.SQL("DELETE FROM {staging}").format(staging=_get_staging_table(self._entity))
            )
        numbers = {id(row): number for number, row in enumerate(rows)}

        def copy_to_staging_table(part: Sequence[DecodedRow]) -> None:
            encoded = (prefix_number(numbers[id(row)], encode_row(row.record)) for row in part)
            columns = ("number", *get_copy_columns(self._entity))
            copy_pieces(self._connection, _get_staging_table(self._entity), columns, encoded)

        return isolate_bad_rows(self._connection, copy_to_staging_table, rows)

    def _reject(self, refused_rows: Iterable[RefusedRow]) -> None:
        self._outcome.refused.extend(make_bad_message(refused) for refused in refused_rows)


class RowKey(NamedTuple):
    """The identity of a version: the primary key of the tables."""

    id: str
    updated_at: int  # microseconds since the epoch
    version: int


def get_key(row: DecodedRow) -> RowKey:
    """Return the identity of the version in a row."""
    return RowKey(row.record.id, row.record.updated_at, row.record.version)


class SplitRows(NamedTuple):
    """The rows of a batch, split by whether their version is new."""

    new: list[DecodedRow]  # the first row of each key that is not stored
    known: list[DecodedRow]  # rows with a key that is stored, or that an earlier row has


def split_new_and_known(
    connection: Connection, entity: EntityKind, rows: Iterable[DecodedRow]
) -> SplitRows:
    """Look up which rows are new, and split the rows accordingly."""
    first_rows: dict[RowKey, DecodedRow] = {}
    later_rows = [row for row in rows if first_rows.setdefault(get_key(row), row) is not row]
    new: list[DecodedRow] = []
    known: list[DecodedRow] = []
    for day, keys in _group_by_day(first_rows).items():
        stored_numbers = _look_up(connection, entity, day, keys)
        for number, key in enumerate(keys):
            (known if number in stored_numbers else new).append(first_rows[key])
    return SplitRows(new, known + later_rows)


def _group_by_day(keys: Iterable[RowKey]) -> dict[date, list[RowKey]]:
    grouped: defaultdict[int, list[RowKey]] = defaultdict(list)
    for key in keys:
        grouped[key.updated_at // MICROSECONDS_PER_DAY].append(key)
    return {compute_day(day * MICROSECONDS_PER_DAY): day_keys for day, day_keys in grouped.items()}


# PostgreSQL looks up each key by primary key: the settings in ingest.store.session rule out other
# plans. {stored_at} is the time of the stored row. For a block, this is the time of its newest
# version.
_LOOK_UP = """
SELECT coalesce(json_agg(key.number - 1), '[]')::text FROM (
    SELECT number, id, version::int AS version,
        'epoch'::timestamptz + microseconds::bigint * interval '1 microsecond' AS updated_at
    FROM ROWS FROM (json_array_elements_text(%(ids)s::json),
        json_array_elements_text(%(microseconds)s::json),
        json_array_elements_text(%(versions)s::json))
        WITH ORDINALITY AS columns(id, microseconds, version, number)
) key JOIN {table} t ON t.id = key.id AND {is_same_version}
WHERE t.{stored_at} >= %(start)s::timestamptz AND t.{stored_at} < %(end)s::timestamptz
"""
_NUMBERS = msgspec.json.Decoder(list[int])


def _look_up(
    connection: Connection, entity: EntityKind, day: date, keys: Sequence[RowKey]
) -> frozenset[int]:
    """Return the positions in `keys` of the keys that are stored.

    The day may be packed, for example when a topic is read again. A packed day has blocks, and may
    also have plain rows (see docs/glossary.md).
    """
    is_same_version = "t.updated_at = key.updated_at AND t.version = key.version"
    if days.is_packed(connection, entity.table, day):
        table, stored_at = sql.SQL(build_versions_query(entity)), "stored_at"
        # A damaged block (position 0) may have any version of its document and day.
        is_same_version = f"(t.position = 0 OR t.stored_at >= key.updated_at AND {is_same_version})"
    else:
        table, stored_at = sql.SQL(entity.table), "updated_at"
    query = sql.SQL(_LOOK_UP).format(
        table=table,
        is_same_version=sql.SQL(is_same_version),
        stored_at=sql.Identifier(stored_at),
    )
    ids, microseconds, versions = encode_columns(zip(*keys, strict=True))
    start, end = days.compute_bounds(day)
    parameters = {
        "ids": ids,
        "microseconds": microseconds,
        "versions": versions,
        "start": start,
        "end": end,
    }
    cursor = connection.execute(query, parameters, prepare=False)
    (numbers,) = require_row(cursor.fetchone())
    return frozenset(_NUMBERS.decode(str(numbers)))


# Snapshots are neither compressed nor, if possible, moved to a TOAST table: each is read only once.
_CREATE_STAGING_TABLE = """
CREATE TEMP TABLE {staging} (number integer, LIKE {table}) WITH ({whole_rows})
    ON COMMIT DELETE ROWS;
ALTER TABLE {staging} ALTER data SET STORAGE EXTERNAL
"""


def create_staging_table(connection: Connection, entity: EntityKind) -> None:
    """Create the staging table if it is missing. PostgreSQL empties it after each transaction."""
    name = f"pg_temp.{_get_staging_name(entity)}"
    row = connection.execute("SELECT to_regclass(%(name)s)", {"name": name}).fetchone()
    if row == (None,):
        statement = sql.SQL(_CREATE_STAGING_TABLE).format(
            staging=_get_staging_table(entity),
            table=sql.Identifier(entity.table),
            whole_rows=WHOLE_ROWS,
        )
        connection.execute(statement)


def _get_staging_table(entity: EntityKind) -> sql.Identifier:
    return sql.Identifier("pg_temp", _get_staging_name(entity))


def _get_staging_name(entity: EntityKind) -> str:
    return f"stage_{entity.table}"


class Comparison(NamedTuple):
    """The result of comparing staged rows with the stored rows of the same keys.

    A staged row without a stored row of the same key is neither in `equal` nor in `differing`.
    """

    equal: set[int]  # the numbers of staged rows that equal the stored row
    differing: set[int]  # the numbers of staged rows that differ from the stored row


class ComparedRow(NamedTuple):
    """The number of a staged row, and whether it differs from the stored row of the same key."""

    number: int
    differs: bool


_COMPARE_WITH_PLAIN_ROWS = """
SELECT s.number, {differs} FROM {staging} s JOIN {table} t
    ON t.id = s.id AND t.updated_at = s.updated_at AND t.version = s.version
WHERE s.updated_at >= %(start)s::timestamptz AND s.updated_at < %(end)s::timestamptz
    AND t.updated_at >= %(start)s::timestamptz AND t.updated_at < %(end)s::timestamptz
    AND t.packed IS NULL
"""


def compare_staged(
    connection: Connection, entity: EntityKind, rows: Sequence[DecodedRow]
) -> Comparison:
    """Compare the rows in the staging table with the stored rows of the same keys.

    Args:
        rows: The staged rows. They tell which days to search.
    """
    query = sql.SQL(_COMPARE_WITH_PLAIN_ROWS).format(
        staging=_get_staging_table(entity),
        table=sql.Identifier(entity.table),
        differs=sql.SQL(" OR ").join(
            sql.SQL("t.{0} IS DISTINCT FROM s.{0}").format(sql.Identifier(name))
            for name in get_copy_columns(entity)
            if name not in ("id", "updated_at", "version")
        ),
    )
    equal: set[int] = set()
    differing: set[int] = set()
    day_numbers = {row.record.updated_at // MICROSECONDS_PER_DAY for row in rows}
    row_days = [compute_day(number * MICROSECONDS_PER_DAY) for number in day_numbers]
    packed_days = days.load_sealed_days(connection, entity.table, row_days)
    for day in row_days:
        start, end = days.compute_bounds(day)
        cursor = connection.execute(query, {"start": start, "end": end}, prepare=False)
        compared = [ComparedRow(int(str(number)), bool(differs)) for number, differs in cursor]
        if packed_days.get(day):
            compared += _compare_with_blocks(connection, entity, day)
        for number, differs in compared:
            (differing if differs else equal).add(number)
    return Comparison(equal - differing, differing)


class _StagedRowInBlock(NamedTuple):
    """A staged row, and the version with the same key in a block."""

    number: int
    id: str
    stored_at: datetime  # the time of the block
    position: int  # the position of the version in the block, from 1; 0 if the block is damaged
    has_same_columns: bool  # whether all columns except the snapshot are equal
    text: str  # the staged snapshot
    packed: bytes | None  # the block; None if it was sent with an earlier row


# A block is sent only with the first of its versions; `packed` is NULL in the rows after it.
_COMPARE_WITH_BLOCKS = """
SELECT number, id, stored_at, position, has_same_columns, text,
    CASE WHEN lag((id, stored_at, stored_version)) OVER () = (id, stored_at, stored_version)
        THEN NULL ELSE packed END AS packed
FROM (
    SELECT s.number, s.data::text AS text, t.id, t.stored_at, t.stored_version, t.position,
        t.packed,
        (s.type, s.client_id, s.author, s.{staged_application})
            IS NOT DISTINCT FROM (t.type, t.client_id, t.author, t.{stored_application})
            AS has_same_columns
    FROM {staging} s JOIN {versions} t ON t.id = s.id AND t.in_block AND (t.position = 0
        OR t.stored_at >= s.updated_at AND t.updated_at = s.updated_at AND t.version = s.version)
    WHERE s.updated_at >= %(start)s::timestamptz AND s.updated_at < %(end)s::timestamptz
        AND t.stored_at >= %(start)s::timestamptz AND t.stored_at < %(end)s::timestamptz
    ORDER BY t.id, t.stored_at, t.stored_version OFFSET 0
) AS pairs
"""


def _compare_with_blocks(
    connection: Connection, entity: EntityKind, day: date
) -> Iterator[ComparedRow]:
    """Compare staged rows with the versions of the same keys in the blocks of a day.

    Staged rows without such a version are left out.
    """
    start, end = days.compute_bounds(day)
    query = sql.SQL(_COMPARE_WITH_BLOCKS).format(
        staging=_get_staging_table(entity),
        versions=sql.SQL(build_versions_query(entity)),
        staged_application=sql.SQL("product_instance_id" if entity.parent else "id"),
        stored_application=sql.SQL("product" if entity.parent else "id"),
    )
    snapshots: list[bytes] = []  # the snapshots of the last block; empty if it cannot be read
    with psycopg.Cursor(connection, row_factory=args_row(_StagedRowInBlock)) as cursor:
        cursor.execute(query, {"start": start, "end": end}, prepare=False, binary=True)
        for pair in cursor:
            if pair.packed is not None:
                snapshots = _unpack_block(
                    connection, entity, pair.id, pair.stored_at, pair.position, pair.packed
                )
            is_equal = (
                bool(snapshots)
                and pair.has_same_columns
                and _is_same_snapshot(connection, pair.text, snapshots[pair.position - 1].decode())
            )
            yield ComparedRow(pair.number, differs=not is_equal)


def _unpack_block(
    connection: Connection,
    entity: EntityKind,
    id: str,
    stored_at: datetime,
    position: int,
    packed: bytes,
) -> list[bytes]:
    """Return the snapshots in a block, or an empty list if the block is damaged."""
    try:
        if position == 0:
            raise build_damage_error(entity.table, id, stored_at)
        return read_snapshots(connection, entity.table, id, stored_at, packed)
    except DamagedBlockError as error:
        log.warning("a message that may be a repeat goes to quarantine: %s", error)
        return []


def _is_same_snapshot(connection: Connection, text: str, stored_text: str) -> bool:
    """Return whether two JSON texts are equal for PostgreSQL."""
    if text == stored_text:
        return True
    row = connection.execute(
        "SELECT %(text)s::jsonb = %(stored_text)s::jsonb",
        {"text": text, "stored_text": stored_text},
    ).fetchone()
    return row == (True,)
