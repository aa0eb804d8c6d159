"""What the SQL on the *_aud tables gives, and how it is run.

Every statement is prepared and keeps one shape whatever is filtered, because planning a query
over a hundred partitions costs more than running it. A bound that is not given is infinite.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

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
from history.timeline.row import Key, Read, VersionRow


class _Document(Loader):
    """The text of a document as bytes: numbers keep their digits."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return shortened(from_store(bytes(data)))


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
    made = [psycopg.RawCursor(connection.connection, row_factory=tuple_row) for _ in range(count)]
    for each in made:
        each.format = Format.BINARY
        each.adapters.register_loader("text", _Document)
    with connection.wrap_database_errors:
        try:
            yield list(made)
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
           fits, CASE WHEN in_block THEN position END, stored_at, CASE WHEN fits THEN packed END,
           person.full_name, person.kind, service.full_name, service.kind
    FROM (SELECT *, total <= %(bytes)s OR total = size AS fits FROM (
        SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
                   stored_at, CASE WHEN first THEN packed END AS packed,
                   coalesce(octet_length(text), CASE WHEN first THEN unpacked ELSE 0 END) AS size,
                   CASE WHEN number = 1 OR octet_length(text) <= %(bytes)s THEN text END AS text
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


# Documents that one statement brings; the first one may be larger.
READ_BYTES = 4 * 1024 * 1024

# A statement with %(name)s for each value, and the values by name.
Values: TypeAlias = Mapping[str, object]
Statement: TypeAlias = tuple[str, Values]
_NAME: Final = re.compile(r"%\((\w+)\)s")


@cache
def _numbered(text: str) -> tuple[str, Sequence[str]]:
    """The text with numbers in the place of names, and the names in their order. psycopg would
    look for the names of a long text at each call."""
    names = list(dict.fromkeys(_NAME.findall(text)))
    return _NAME.sub(lambda found: f"${names.index(found[1]) + 1}", text), names


def _as_sent(text: str, values: Values) -> tuple[str, Sequence[object]]:
    numbered, names = _numbered(text)
    return numbered, [values[name] for name in names]


def fetch(text: str, values: Values) -> list[tuple[Any, ...]]:
    """All rows of a prepared statement."""
    with cursors(1) as (opened,):
        return prepared.run(opened, *_as_sent(text, values))


def together(asked: Sequence[Statement]) -> list[list[tuple[Any, ...]]]:
    """The rows of each of these prepared statements, in one round trip."""
    if len(asked) < 2:
        return [fetch(*each) for each in asked]
    with cursors(len(asked)) as opened:
        return prepared.run_together(opened, [_as_sent(*each) for each in asked])


@cache
def _around(text: str) -> str:
    return _BOUNDED.format(rows=text)


def bounded(text: str, values: Values) -> Statement:
    """A statement that gives versions, with the limit of documents and the names around it. Its
    rows are for rows()."""
    return _around(text), {**values, "bytes": Int4(READ_BYTES)}


def read(entity: Entity, text: str, values: Values) -> Read:
    """The rows of a statement, from the first one on, of which the documents may be read now."""
    return rows(entity, fetch(*bounded(text, values)))


def rows(entity: Entity, found: Iterable[tuple[Any, ...]]) -> Read:
    """The rows that a bounded() statement gives. Raises DamagedBlockError."""
    read = Read([], [])
    texts: list[bytes] = []
    for row in found:
        text, id, fits, position, stored_at, packed = row[6:12]
        if not fits:
            read.unread.append((entity, id, Key(*row[:2])))
            continue
        if packed is not None:  # with the first of its versions
            texts = stored.texts(connection.connection, entity.table, id, stored_at, packed)
        if position is not None:  # in its block, from 1
            text = shortened(from_store(texts[position - 1]))
        read.rows.append(VersionRow._make((*row[:6], text, id, entity, False, row[12:])))
    return read


# The columns that bounded() needs, of the row of a block or a plain one alone.
OF_ROW = """version, updated_at, type, client_id, author, {product} AS product, data, id,
    packed IS NOT NULL AS in_block, coalesce(cardinality(moments), 1) AS position, packed, unpacked,
    updated_at AS stored_at, version AS stored_version"""


@cache
def sql(text: str, entity: Entity, **parts: str) -> str:
    """A statement with the entity's table, its versions, the columns of a row alone, the one that
    names its application, and the given words put in, which may replace these."""
    application = None if entity.parent is None else "product_instance_id"
    product = application or "NULL::varchar"
    words = {
        "table": entity.table,
        "versions": stored.versions(entity),
        "columns": OF_ROW.format(product=product),
        "product": product,
        "owner": application or "id",
    }
    return text.format(**words | parts)


# In every statement: otherwise each combination of filters is one more prepared statement.
FILTERS = """AND (%(any_author)s OR author = %(author)s)
    AND (%(any_client_id)s OR client_id = %(client_id)s) AND (%(any_type)s OR type = %(type)s)"""


def conditions(filters: Filters) -> Values:
    """The values for FILTERS."""
    given: dict[str, object] = {
        "author": filters.author or "",
        "client_id": filters.client_id or "",
        "type": Int4(filters.type or 0),
    }
    return given | {f"any_{name}": getattr(filters, name) is None for name in given}
