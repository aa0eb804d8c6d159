"""The tables of versions, whose rows are plain or blocks, read as versions: in SQL without their
documents, in Python with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import sql

from history.blocks import dictionaries
from history.blocks.dictionaries import Connection, Dictionary, MissingDictionaryError
from history.blocks.form import NUMBER, DamagedBlockError, Row, documents, expand, is_packed
from history.entities import Entity

BLOCK: Final = ("moments", "versions", "source", "sources", "packed", "unpacked")
"""The columns of a block, in the order of history.blocks.form.Stored."""
TYPES: Final = ("int8[]", "int4[]", "bytea", "text", "bytea", "int4")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Each version of a table, with the row that has it, which stored_at and stored_version name: bound
# stored_at, or every day is read. position: of the version in its block, from 1.
_VERSIONS: Final = """(
    SELECT stored.id, stored.updated_at AS stored_at, stored.version AS stored_version,
        {product} AS product, coalesce(one.position, 1)::int AS position,
        stored.packed IS NOT NULL AS in_block, stored.data, stored.packed, stored.unpacked,
        CASE WHEN one.moment IS NULL THEN stored.updated_at
            ELSE 'epoch'::timestamptz + one.moment * interval '1 microsecond' END AS updated_at,
        CASE WHEN one.moment IS NULL THEN stored.version ELSE coalesce(one.version,
            stored.version - cardinality(stored.moments) + one.position::int) END AS version,
        CASE WHEN stored.source IS NULL THEN stored.type
            ELSE split_part(source.line, E'\\t', 1)::int END AS type,
        CASE WHEN stored.source IS NULL THEN stored.client_id
            ELSE split_part(source.line, E'\\t', 2)::varchar END AS client_id,
        CASE WHEN stored.source IS NULL THEN stored.author
            ELSE nullif(split_part(source.line, E'\\t', 3), '')::varchar END AS author
    FROM {table} AS stored
    LEFT JOIN LATERAL unnest(stored.moments, stored.versions)
        WITH ORDINALITY AS one(moment, version, position) ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN stored.source IS NOT NULL THEN split_part(stored.sources,
        E'\\n', get_byte(stored.source, one.position::int - 1) + 1) END AS line) AS source
)"""


def versions(entity: Entity, table: str | None = None) -> str:
    """A subquery with each version of a table: the entity's, or another with its columns. Who does
    not ask for data and packed reads no document."""
    product = "stored.product_instance_id" if entity.parent else "NULL::varchar"
    return _VERSIONS.format(table=table or entity.table, product=product)


def logical(
    table: str,
    stored: Iterable[Sequence[Any]],
    packed: Callable[[Row], Row] = lambda row: row,
) -> Iterator[Row]:
    """The rows of a table as versions. Those of one document must come together; they are given in
    the order of number and time if they come so, a block by its newest. stored: rows with the
    columns of BLOCK at the end; read dictionaries before. packed: what to make of each row of a
    block; keeps the first three values. Raises DamagedBlockError."""
    size = len(BLOCK)
    together: list[Row] = []
    mixed = False
    for row in stored:
        if together and together[0][0] != row[0]:
            yield from sorted(together, key=_place) if mixed else together
            together, mixed = [], False
        own, block = tuple(row[:-size]), row[-size:]
        if is_packed(block):
            mixed = True
            with _named(table, own[0], EPOCH + timedelta(microseconds=own[2])):
                together += map(packed, expand(own, block, _dictionary(block[4])))
        else:
            together.append(own)
    yield from sorted(together, key=_place) if mixed else together


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
    query = "SELECT coalesce(sum(coalesce(cardinality(moments), 1)), 0)::bigint FROM {}"
    row = connection.execute(sql.SQL(query).format(source)).fetchone()
    return int(row[0]) if row else 0
