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
from history.blocks.form import MOST_VERSIONS, NUMBER, DamagedBlockError, Row, documents, expand
from history.entities import Entity

BLOCK: Final = ("unpacked", "keys", "versions", "names", "packed")
"""The columns of a block, in the order of history.blocks.form.Stored; empty in a plain row."""
TYPES: Final = ("int4", "bytea", "int4[]", "text", "bytea")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# The time of a version in `keys`, where its eight bytes begin.
_MOMENT: Final = """updated_at
    - ('x' || encode(substr(keys, {}, 5), 'hex'))::bit(40)::bigint * interval '1 microsecond'"""
OLDEST: Final = _MOMENT.format(1)
"""The time of the oldest version of a block, in SQL; NULL of a row with one version."""

FIRST_KEY: Final = f"""coalesce(versions[1], version - coalesce(octet_length(keys), 0) / 8),
    coalesce({OLDEST}, updated_at)"""
"""The number and time of the first version of a row, in SQL."""

# Each version of a table, with the row that has it, which stored_at and stored_version name: bound
# stored_at, or every day is read. position: of the version in its block, from 1.
_VERSIONS: Final = """(
    SELECT id, updated_at AS stored_at, version AS stored_version, {product} AS product, position,
        packed IS NOT NULL AS in_block, data, packed, unpacked,
        CASE WHEN start IS NULL THEN updated_at ELSE {moment} END AS updated_at,
        CASE WHEN start IS NULL THEN version ELSE coalesce(versions[position],
            version - octet_length(keys) / 8 - 1 + position) END AS version,
        CASE WHEN start IS NULL THEN type ELSE get_byte(keys, start + 4) END AS type,
        CASE WHEN coalesce(get_byte(keys, start + 5), 0) = 0 THEN client_id
            ELSE split_part(names, E'\\n', get_byte(keys, start + 5))::varchar END AS client_id,
        CASE WHEN coalesce(get_byte(keys, start + 6), 0) = 0 THEN author
            ELSE nullif(split_part(names, E'\\n', get_byte(keys, start + 6)), '')::varchar END
            AS author
    FROM {table} AS stored
    CROSS JOIN LATERAL (
        SELECT position, CASE WHEN 8 * position <= octet_length(keys) THEN 8 * position - 7 END
            AS start
        FROM generate_series(1, coalesce(octet_length(keys), 0) / 8 + 1) AS position LIMIT {most}
    ) AS one
)"""


def versions(entity: Entity, table: str | None = None) -> str:
    """A subquery with each version of a table: the entity's, or another with its columns. Who does
    not ask for data and packed reads no document."""
    product = "product_instance_id" if entity.parent else "NULL::varchar"
    words = {"moment": _MOMENT.format("start"), "most": MOST_VERSIONS}
    return _VERSIONS.format(table=table or entity.table, product=product, **words)


def logical(
    table: str,
    stored: Iterable[Sequence[Any]],
    packed: Callable[[Row], Row] | None,
) -> Iterator[Row]:
    """Yield the rows of a table as versions, those of a document in the order of number and time.

    Only the versions of blocks that overlap are in memory, and plain rows one at a time.

    Args:
        stored: rows with the columns of BLOCK at the end, in the order of id and of FIRST_KEY; read
            dictionaries before. In another order no version is left out, but they come as they are.
        packed: what to make of each row of a block; keeps the first three values.

    Raises:
        DamagedBlockError: a block cannot be read.
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
        if block[-1] is None:
            while waiting and _place(waiting[0]) <= _place(own):
                yield waiting.popleft()
            yield own
            continue
        with _named(table, own[0], EPOCH + timedelta(microseconds=own[2])):
            found = expand(own, block, _dictionary(block[-1]))
        while waiting and _place(waiting[0]) <= _place(found[0]):
            yield waiting.popleft()
        made = map(packed, found) if packed else found
        waiting = deque(merge(waiting, made, key=_place))
    yield from waiting


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
    return dictionaries.get(int.from_bytes(packed[:NUMBER]))


@contextmanager
def _named(table: str, id: str, stored_at: datetime) -> Iterator[None]:
    try:
        yield
    except (DamagedBlockError, MissingDictionaryError) as error:
        day = stored_at.astimezone(UTC).date()
        found = DamagedBlockError(f"{table} {day}: the packed versions of {id}: {error}")
        found.day = day
        raise found from None


def _place(row: Row) -> tuple[Any, ...]:
    return row[1], row[2]


def count(connection: Connection, source: sql.Composable) -> int:
    """How many versions a table has."""
    query = "SELECT coalesce(sum(coalesce(octet_length(keys), 0) / 8 + 1), 0)::bigint FROM {}"
    row = connection.execute(sql.SQL(query).format(source)).fetchone()
    return int(row[0]) if row else 0
