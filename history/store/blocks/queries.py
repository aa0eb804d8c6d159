"""Reads the plain rows and blocks of a table as versions.

`build_versions_query` does this in SQL, which cannot unpack snapshots: a version in a block comes
with the column `packed` of the block. `iterate_versions` does it in Python, with the snapshots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Any, Final

from psycopg import sql

from history.documents.record import MAX_VERSION
from history.kinds.entities import EntityKind
from history.store.blocks import dictionaries
from history.store.blocks.codec import (
    CHECKSUM,
    MOST_VERSIONS,
    CanonicalRow,
    DamagedBlockError,
    expand_block,
    get_dictionary_number,
    unpack_snapshots,
)
from history.store.blocks.dictionaries import Connection, Dictionary, MissingDictionaryError

BLOCK_COLUMNS: Final = ("unpacked", "keys", "versions", "names", "packed")
"""The columns of a block, in the order of codec.BlockColumns. NULL in a plain row."""
BLOCK_TYPES: Final = ("int4", "bytea", "int4[]", "text", "bytea")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# In SQL, the moment of a version in `keys`. {} is the position at which its eight bytes begin.
_MOMENT: Final = """updated_at
    - ('x' || encode(substr(keys, {}, 5), 'hex'))::bit(40)::bigint * interval '1 microsecond'"""
OLDEST: Final = f"CASE WHEN octet_length(keys) >= 8 THEN {_MOMENT.format(1)} END"
"""The moment of the oldest version of a block, in SQL. NULL if the row has one version."""

# In SQL, whether a block has the checksum that codec.compute_checksum computes for it. Also true of
# a block without a checksum, from an early release.
_IS_CHECKSUM_RIGHT: Final = f"""((mod(octet_length(keys), 8) = {CHECKSUM}) IS NOT true OR
        substr(keys, octet_length(keys) - {CHECKSUM - 1}) = substr(sha256(record_send(ROW(
            version, updated_at, type, unpacked, id, client_id, author, {{product}},
            substr(keys, 1, octet_length(keys) - {CHECKSUM}), versions, names))), 1, {CHECKSUM}))"""
# In SQL, how many versions a row has; 0 if the row is damaged.
_COUNT: Final = f"""CASE WHEN packed IS NULL THEN (data IS NOT NULL)::int WHEN {_IS_CHECKSUM_RIGHT}
        THEN coalesce(octet_length(keys), 0) / 8 + 1 ELSE 0 END"""

# In SQL, the last moment of the UTC day of a row.
_DAY_END: Final = (
    "date_bin('24 hours', updated_at, 'epoch'::timestamptz) + interval '23:59:59.999999'"
)

FIRST_KEY: Final = f"""coalesce(versions[1], version - coalesce(octet_length(keys), 0) / 8),
    coalesce({OLDEST}, updated_at)"""
"""The number and the moment of the first version of a row, in SQL."""

# Selects each version of a table.
# stored_at and stored_version are updated_at and version of the stored row that has the version: a
# plain row or a block. Without a condition on stored_at PostgreSQL reads every day.
# position is the position of the version in its block, from 1. A damaged row is selected as one
# version with the position 0, the highest possible number, and the last moment of its day.
# FROM (VALUES (1)) is for Citus: in a statement to several shards, it accepts the function of the
# checksum only in a query that has a FROM.
_VERSIONS: Final = """(
    SELECT id, updated_at AS stored_at, version AS stored_version, {product} AS product, position,
        packed IS NOT NULL AS in_block, data, packed, unpacked,
        CASE WHEN position = 0 THEN {day_end} WHEN start IS NULL THEN updated_at ELSE {moment} END
            AS updated_at,
        CASE WHEN position = 0 THEN {highest} WHEN start IS NULL THEN version
            ELSE coalesce(versions[position],
                version - octet_length(keys) / 8 - 1 + position) END AS version,
        CASE WHEN start IS NULL THEN type ELSE get_byte(keys, start + 4) END AS type,
        CASE WHEN coalesce(get_byte(keys, start + 5), 0) = 0 THEN client_id
            ELSE split_part(names, E'\\n', get_byte(keys, start + 5))::varchar END AS client_id,
        CASE WHEN coalesce(get_byte(keys, start + 6), 0) = 0 THEN author
            ELSE nullif(split_part(names, E'\\n', get_byte(keys, start + 6)), '')::varchar END
            AS author
    FROM {stored} AS stored
    CROSS JOIN LATERAL (
        SELECT position, CASE WHEN position > 0 AND 8 * position <= octet_length(keys)
            THEN 8 * position - 7 END AS start
        FROM (SELECT {count} AS count FROM (VALUES (1)) AS one_row OFFSET 0) AS row,
            generate_series(least(count, 1), count) AS position LIMIT {most}
    ) AS one
)"""


def build_versions_query(entity: EntityKind, table: str | None = None) -> str:
    """Build a subquery with one row for each version of a table.

    As long as a query does not select `data` and `packed`, PostgreSQL does not read the snapshots.

    Args:
        table: A table with the columns of the kind's table. None: the kind's table itself.
    """
    product = "product_instance_id" if entity.parent else "NULL::varchar"
    words = {
        "moment": _MOMENT.format("start"),
        "most": MOST_VERSIONS,
        "stored": table or entity.table,
        "count": _COUNT.format(product=product),
        "day_end": _DAY_END,
        "highest": MAX_VERSION,
    }
    return _VERSIONS.format(product=product, **words)


def build_version_count(entity: EntityKind) -> str:
    """Build an SQL expression for the number of versions in a row; 0 if the row is damaged."""
    return _COUNT.format(product="product_instance_id" if entity.parent else "NULL::varchar")


def iterate_versions(
    table: str,
    stored: Iterable[Sequence[Any]],
    convert: Callable[[CanonicalRow], CanonicalRow] | None,
    on_damage: Callable[[DamagedBlockError], None] | None = None,
) -> Iterator[CanonicalRow]:
    """Yield the versions in the rows of a table: one from a plain row, several from a block.

    If `stored` is in the order of id and FIRST_KEY, the versions of each document come in the order
    of number and moment. Otherwise the versions come in the order of the rows. Only one plain row,
    and the versions of blocks that overlap, are in memory. Call `read_new_dictionaries` first.

    Args:
        stored: Rows with BLOCK_COLUMNS at the end.
        convert: Makes the row to yield from each version of a block. It must keep the first three
            values of the version: id, number and moment.
        on_damage: Called with the error of each row that cannot be read. These rows are left out.

    Raises:
        DamagedBlockError: A block cannot be read, and `on_damage` is None.
    """
    size = len(BLOCK_COLUMNS)
    id = None
    # Versions of blocks that were not yielded yet, because the next row may come before them.
    pending_rows: deque[CanonicalRow] = deque()
    for row in stored:
        plain_row, block = tuple(row[:-size]), row[-size:]
        if plain_row[0] != id:
            yield from pending_rows
            pending_rows.clear()
            id = plain_row[0]
        if block[-1] is None and plain_row[-1] is not None:
            while pending_rows and _get_order(pending_rows[0]) <= _get_order(plain_row):
                yield pending_rows.popleft()
            yield plain_row
            continue
        try:
            block_rows = _expand_row(table, plain_row, block)
        except DamagedBlockError as error:
            if on_damage is None:
                raise
            on_damage(error)
            continue
        while pending_rows and _get_order(pending_rows[0]) <= _get_order(block_rows[0]):
            yield pending_rows.popleft()
        converted_rows = map(convert, block_rows) if convert else block_rows
        pending_rows = deque(merge(pending_rows, converted_rows, key=_get_order))
    yield from pending_rows


def _expand_row(table: str, plain_row: CanonicalRow, block: Sequence[Any]) -> list[CanonicalRow]:
    stored_at = EPOCH + timedelta(microseconds=plain_row[2])
    if block[-1] is None:
        raise build_damage_error(table, plain_row[0], stored_at, "its snapshots are missing")
    with _name_damaged_block(table, plain_row[0], stored_at):
        return expand_block(plain_row, block, _get_dictionary(block[-1]))


def read_snapshots(
    connection: Connection, table: str, id: str, stored_at: datetime, packed: bytes
) -> list[bytes]:
    """Return the snapshots of a block in the order of its versions.

    Raises:
        DamagedBlockError: The snapshots cannot be read. `error.day` is the day of the block.
    """
    with _name_damaged_block(table, id, stored_at):
        return unpack_snapshots(packed, _load_dictionary(connection, packed))


def _load_dictionary(connection: Connection, packed: bytes) -> Dictionary | None:
    try:
        return _get_dictionary(packed)
    except MissingDictionaryError:
        dictionaries.read_new_dictionaries(connection)
        return _get_dictionary(packed)


def _get_dictionary(packed: bytes) -> Dictionary | None:
    return dictionaries.get_dictionary(get_dictionary_number(packed))


def build_damage_error(
    table: str, id: str, stored_at: datetime, reason: object = "the row is not as it was written"
) -> DamagedBlockError:
    """Return the error for a block that cannot be read. `error.day` is the day of the block.

    Args:
        id: The id of the document.
        stored_at: The updated_at of the block's row.
    """
    day = stored_at.astimezone(UTC).date()
    error = DamagedBlockError(
        f"{table} {day}: the packed versions of {id} cannot be read: {reason}"
    )
    error.day = day
    return error


@contextmanager
def _name_damaged_block(table: str, id: str, stored_at: datetime) -> Iterator[None]:
    try:
        yield
    except (DamagedBlockError, MissingDictionaryError) as error:
        raise build_damage_error(table, id, stored_at, error) from None


def _get_order(row: CanonicalRow) -> tuple[Any, ...]:
    return row[1], row[2]


def count_versions(connection: Connection, source: sql.Composable) -> int:
    """Return the number of versions of a table."""
    query = "SELECT coalesce(sum(coalesce(octet_length(keys), 0) / 8 + 1), 0)::bigint FROM {}"
    row = connection.execute(sql.SQL(query).format(source)).fetchone()
    return int(row[0]) if row else 0
