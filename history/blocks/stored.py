"""The tables of versions, whose rows are plain or blocks, read as versions: in SQL without their
documents, in Python with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Any, Final

from psycopg import sql

from history.blocks import dictionaries
from history.blocks.dictionaries import Connection, Dictionary, MissingDictionaryError
from history.blocks.form import (
    CHECKSUM,
    MOST_VERSIONS,
    DamagedBlockError,
    Row,
    dictionary_number,
    documents,
    expand,
)
from history.entities import Entity
from history.record import MAX_VERSION

BLOCK: Final = ("unpacked", "keys", "versions", "names", "packed")
"""The columns of a block, in the order of history.blocks.form.Stored; empty in a plain row."""
TYPES: Final = ("int4", "bytea", "int4[]", "text", "bytea")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The time of a version in `keys`, where its eight bytes begin.
_MOMENT: Final = """updated_at
    - ('x' || encode(substr(keys, {}, 5), 'hex'))::bit(40)::bigint * interval '1 microsecond'"""
OLDEST: Final = f"CASE WHEN octet_length(keys) >= 8 THEN {_MOMENT.format(1)} END"
"""The time of the oldest version of a block, in SQL; NULL of a row with one version."""

# As history.blocks.form.checksum. Blocks of the first form have no checksum.
_SOUND: Final = f"""((mod(octet_length(keys), 8) = {CHECKSUM}) IS NOT true OR
        substr(keys, octet_length(keys) - {CHECKSUM - 1}) = substr(sha256(record_send(ROW(
            version, updated_at, type, unpacked, id, client_id, author, {{product}},
            substr(keys, 1, octet_length(keys) - {CHECKSUM}), versions, names))), 1, {CHECKSUM}))"""
_COUNT: Final = f"""CASE WHEN packed IS NULL THEN (data IS NOT NULL)::int WHEN {_SOUND}
        THEN coalesce(octet_length(keys), 0) / 8 + 1 ELSE 0 END"""

_DAY_END: Final = (
    "date_bin('24 hours', updated_at, 'epoch'::timestamptz) + interval '23:59:59.999999'"
)

FIRST_KEY: Final = f"""coalesce(versions[1], version - coalesce(octet_length(keys), 0) / 8),
    coalesce({OLDEST}, updated_at)"""
"""The number and time of the first version of a row, in SQL."""

# Each version of a table, with the row that has it, which stored_at and stored_version name: bound
# stored_at, or every day is read. position: of the version in its block, from 1. A row that is not
# as it was written is one version with position 0: the highest number, at the end of its day.
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
    FROM {table} AS stored
    CROSS JOIN LATERAL (
        SELECT position, CASE WHEN position > 0 AND 8 * position <= octet_length(keys)
            THEN 8 * position - 7 END AS start
        FROM (SELECT {count} AS count OFFSET 0) AS row,
            generate_series(least(count, 1), count) AS position LIMIT {most}
    ) AS one
)"""


def versions(entity: Entity, table: str | None = None) -> str:
    """A subquery with each version of a table: the entity's, or another with its columns. Who does
    not ask for data and packed reads no document."""
    product = "product_instance_id" if entity.parent else "NULL::varchar"
    words = {
        "moment": _MOMENT.format("start"),
        "most": MOST_VERSIONS,
        "count": _COUNT.format(product=product),
        "day_end": _DAY_END,
        "highest": MAX_VERSION,
    }
    return _VERSIONS.format(table=table or entity.table, product=product, **words)


def versions_in_row(entity: Entity) -> str:
    """An SQL expression with the number of versions that a row of the table has; 0 where it is not
    as it was written."""
    return _COUNT.format(product="product_instance_id" if entity.parent else "NULL::varchar")


def logical(
    table: str,
    stored: Iterable[Sequence[Any]],
    packed: Callable[[Row], Row] | None,
    skip: Callable[[DamagedBlockError], None] | None = None,
) -> Iterator[Row]:
    """Yield the rows of a table as versions, those of a document in the order of number and time.

    Only the versions of blocks that overlap are in memory, and plain rows one at a time.

    Args:
        stored: rows with the columns of BLOCK at the end, in the order of id and of FIRST_KEY; read
            dictionaries before. In another order no version is left out, but they come as they are.
        packed: what to make of each row of a block; keeps the first three values.
        skip: gets the error of each row that cannot be read, which is left out.

    Raises:
        DamagedBlockError: a block cannot be read, and there is no `skip`.
    """
    size = len(BLOCK)
    id = None
    waiting: deque[Row] = deque()  # versions of blocks; a row that comes may be before them
    for row in stored:
        own, block = tuple(row[:-size]), row[-size:]
        if own[0] != id:
            yield from waiting
            waiting.clear()
            id = own[0]
        if block[-1] is None and own[-1] is not None:
            while waiting and _place(waiting[0]) <= _place(own):
                yield waiting.popleft()
            yield own
            continue
        try:
            found = _expanded(table, own, block)
        except DamagedBlockError as error:
            if skip is None:
                raise
            skip(error)
            continue
        while waiting and _place(waiting[0]) <= _place(found[0]):
            yield waiting.popleft()
        made = map(packed, found) if packed else found
        waiting = deque(merge(waiting, made, key=_place))
    yield from waiting


def _expanded(table: str, own: Row, block: Sequence[Any]) -> list[Row]:
    stored_at = EPOCH + timedelta(microseconds=own[2])
    if block[-1] is None:
        raise damaged(table, own[0], stored_at, "its documents are not there")
    with _named(table, own[0], stored_at):
        return expand(own, block, _dictionary(block[-1]))


def texts(
    connection: Connection, table: str, id: str, stored_at: datetime, packed: bytes
) -> list[bytes]:
    """The documents in a block, in its order. Raises DamagedBlockError, which names the day."""
    with _named(table, id, stored_at):
        return documents(packed, _asked(connection, packed))


def _asked(connection: Connection, packed: bytes) -> Dictionary | None:
    try:
        return _dictionary(packed)
    except MissingDictionaryError:
        dictionaries.read(connection)
        return _dictionary(packed)


def _dictionary(packed: bytes) -> Dictionary | None:
    return dictionaries.get(dictionary_number(packed))


def damaged(
    table: str, id: str, stored_at: datetime, why: object = "its row is not as it was written"
) -> DamagedBlockError:
    """Return the error of a block that cannot be read; it names the day."""
    day = stored_at.astimezone(UTC).date()
    error = DamagedBlockError(f"{table} {day}: the packed versions of {id}: {why}")
    error.day = day
    return error


@contextmanager
def _named(table: str, id: str, stored_at: datetime) -> Iterator[None]:
    try:
        yield
    except (DamagedBlockError, MissingDictionaryError) as error:
        raise damaged(table, id, stored_at, error) from None


def _place(row: Row) -> tuple[Any, ...]:
    return row[1], row[2]


def count(connection: Connection, source: sql.Composable) -> int:
    """How many versions a table has."""
    query = "SELECT coalesce(sum(coalesce(octet_length(keys), 0) / 8 + 1), 0)::bigint FROM {}"
    row = connection.execute(sql.SQL(query).format(source)).fetchone()
    return int(row[0]) if row else 0
