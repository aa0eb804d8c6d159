"""What the SQL on the *_aud tables gives, and how it is run.

Every statement is prepared and keeps one shape whatever is filtered, because planning a query
over a hundred partitions costs more than running it. A bound that is not given is infinite.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import psycopg
from django.db import connection
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int4

from history.blocks import stored
from history.database import prepared
from history.documents.jsonb import from_store, shortened
from history.entities import Entity
from history.requests import deadline
from history.timeline.query import Filters
from history.timeline.row import IdKey, Key, Read, VersionRow


class _Document(Loader):
    """The text of a document as bytes: numbers keep their digits."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return shortened(from_store(bytes(data)))


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """As cursors: one."""
    with cursors(1) as (opened,):
        yield opened


@contextmanager
def cursors(count: int) -> Iterator[list[psycopg.Cursor[tuple[Any, ...]]]]:
    """Cursors of Django's own connection with the binary protocol; what is of type text, a
    document, comes as bytes.

    Errors come out as Django's, so that Django drops a broken connection.
    """
    deadline.check()
    connection.ensure_connection()
    # Not connection.cursor(): Django's cursor puts the parameters into the text, so that nothing
    # is ever prepared.
    made = [psycopg.Cursor(connection.connection, row_factory=tuple_row) for _ in range(count)]
    for each in made:
        each.format = Format.BINARY
        each.adapters.register_loader("text", _Document)
    with connection.wrap_database_errors:
        try:
            yield made
        finally:
            for each in made:
                each.close()


# Around a statement that gives rows of versions in order.
# PostgreSQL makes the text of a document once, only for those rows, and sends no more than the
# limit. A large text is dropped before the sum, which would write it to a file. OFFSET 0 keeps the
# planner from making texts several times. A block is sent and counted with its first version.
# LATERAL with LIMIT: names are found by primary key, and the order of the rows stays.
_BOUNDED = """
    SELECT version, updated_at, type, client_id, author, product,
           CASE WHEN fits THEN text END, id,
           person.full_name, person.kind, service.full_name, service.kind,
           fits, CASE WHEN in_block THEN position END, CASE WHEN in_block THEN stored_at END,
           CASE WHEN fits THEN packed END
    FROM (SELECT *, total <= %s OR total = size AS fits FROM (
        SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
                   stored_at, CASE WHEN first THEN packed END AS packed,
                   coalesce(octet_length(text), CASE WHEN first THEN unpacked ELSE 0 END) AS size,
                   CASE WHEN number = 1 OR octet_length(text) <= %s THEN text END AS text
            FROM (
                SELECT *, data::text AS text
                FROM (
                    SELECT *, row_number() OVER () AS number,
                        in_block AND ((id, stored_at, stored_version)
                            = lag((id, stored_at, stored_version)) OVER ()) IS NOT true AS first
                    FROM ({rows}) AS found
                ) AS numbered
                OFFSET 0) AS texts
            OFFSET 0) AS measured
    ) AS summed) AS decided
    LEFT JOIN LATERAL (
        SELECT full_name, kind FROM history_person WHERE login = decided.author LIMIT 1
    ) AS person ON true
    LEFT JOIN LATERAL (
        SELECT full_name, kind FROM history_person WHERE login = decided.client_id LIMIT 1
    ) AS service ON true
"""


@cache
def around(statement: str) -> str:
    """The statement with the limits and the names around it; its first two values are the limit,
    in bytes. It gives what `rows` takes."""
    return _BOUNDED.format(rows=statement)


# Documents that one statement brings; the first one may be larger.
READ_BYTES = 4 * 1024 * 1024


def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """All rows of a prepared statement."""
    with cursor() as opened:
        return prepared.run(opened, statement, values)


def read(entity: Entity, statement: str, values: Sequence[object]) -> Read:
    """The rows of a statement, from the first one on, of which the documents may be read now."""
    return rows(entity, fetch(*bounded(statement, values)))


def bounded(statement: str, values: Sequence[object]) -> tuple[str, Sequence[object]]:
    """A statement that gives versions, and its values, with the limit of documents around it."""
    return around(statement), [Int4(READ_BYTES), Int4(READ_BYTES), *values]


def together(asked: Sequence[tuple[str, Sequence[object]]]) -> list[list[tuple[Any, ...]]]:
    """The rows of each of these prepared statements, in one round trip."""
    if len(asked) < 2:
        return [fetch(*each) for each in asked]
    with cursors(len(asked)) as opened:
        return prepared.run_together(opened, asked)


def rows(entity: Entity, found: Iterable[tuple[Any, ...]]) -> Read:
    """The rows that around() gives. Raises DamagedBlockError."""
    read: list[VersionRow] = []
    unread: list[IdKey] = []
    texts: list[bytes] = []
    for row in found:
        fits, position, stored_at, packed = row[12:]
        if not fits:
            unread.append((row[7], Key(row[0], row[1])))
        elif position is None:
            read.append(VersionRow._make((*row[:8], False, row[8:12])))
        else:
            if packed is not None:  # it comes with the first of its versions
                texts = stored.texts(connection.connection, entity.table, row[7], stored_at, packed)
            data = shortened(from_store(texts[position - 1]))
            read.append(VersionRow._make((*row[:6], data, row[7], False, row[8:12])))
    return Read(read, unread)


def unpacked(entity: Entity, own: Sequence[Any], block: Sequence[Any]) -> Iterator[VersionRow]:
    """The versions in a block. own: its row as history.daily.canonical.fields, None for the
    application of a main kind. Raises DamagedBlockError."""
    rows = stored.unpacked(connection.connection, entity.table, tuple(own), block)
    for id, version, moment, client, author, type, product, text in rows:
        at = stored.EPOCH + timedelta(microseconds=moment)
        data = shortened(from_store(text.encode()))
        yield VersionRow(version, at, type, client, author, product, data, id)


# The columns that around() needs, of the row of a block or a plain one alone.
OF_ROW = """version, updated_at, type, client_id, author, {product} AS product, data, id,
    packed IS NOT NULL AS in_block, coalesce(cardinality(moments), 1) AS position, packed, unpacked,
    updated_at AS stored_at, version AS stored_version"""


@cache
def sql(text: str, entity: Entity, **parts: str) -> str:
    """A statement with the entity's table, its versions, the columns of a row alone and the given
    words put in, of which `versions` may be other ones."""
    product = "NULL::varchar" if entity.parent is None else "product_instance_id"
    columns = OF_ROW.format(product=product)
    words = {"table": entity.table, "columns": columns, "versions": stored.versions(entity)}
    return text.format(**words | parts)


# In every statement: otherwise each combination of filters is one more prepared statement.
FILTERS = "AND (%s OR author = %s) AND (%s OR client_id = %s) AND (%s OR type = %s)"


def conditions(filters: Filters) -> list[object]:
    """The values for FILTERS."""
    author, client_id, type = filters.author, filters.client_id, filters.type
    return [
        *(author is None, author or ""),
        *(client_id is None, client_id or ""),
        *(type is None, Int4(type or 0)),
    ]
