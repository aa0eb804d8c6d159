"""The SQL on the *_aud tables, how it is run, and what it gives.

Every statement is prepared and keeps one shape whatever is filtered, because planning a query
over a hundred partitions costs more than running it. A bound that is not given is infinite.
"""

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeAlias

from django.db import connection
from psycopg.types.numeric import Int4

from history.blocks import stored
from history.blocks.form import DamagedBlockError
from history.database import prepared
from history.database.prepared import Rows, Statement, Values
from history.documents.fields import FIELD_BYTES
from history.documents.jsonb import from_store, shortened
from history.entities import ENTITIES, PARTS, Entity
from history.requests import deadline
from history.timeline.query import Order, Sort
from history.versions import Damaged, Key, Place, Read, VersionRow

log = logging.getLogger(__name__)

Fields: TypeAlias = tuple[str, ...] | None
"""The names of top-level fields of documents; None for whole documents."""

# Around a statement that gives rows of versions in order.
# PostgreSQL makes the text of a document once, only for those rows, and sends no more than the
# limit. A large text is dropped before the sum, which would write it to a file. OFFSET 0 keeps the
# planner from making texts several times. A block is sent and counted with its first version.
# LATERAL with LIMIT: names are found by primary key, and the order of the rows stays.
_BOUNDED = """
    SELECT version, updated_at, type, client_id, author, product,
           CASE WHEN fits THEN convert_to(text, 'UTF8') END, id,
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
                SELECT *, {text} AS text
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


# The text of a document, and that of one with a few fields. A large document is stored in pieces,
# which each function that gets it puts together: the path gives them one that is whole.
_TEXT = "data::text"
_TEXT_OF_FIELDS = """(
    SELECT CASE WHEN jsonb_typeof(document) <> 'object' THEN document::text ELSE (
        SELECT coalesce(jsonb_object_agg(name, document -> name)
            FILTER (WHERE octet_length((document -> name)::text) <= {most}), '{{}}')::text
        FROM unnest(%(fields)s::text[]) AS name
    ) END
    FROM (SELECT jsonb_path_query_first(data, '$') AS document OFFSET 0) AS whole
)"""
# Without fields no large document is touched; a deletion that has none still says so.
_TEXT_OF_NONE = """
    CASE WHEN pg_column_size(data) < 32 THEN data::text WHEN data IS NOT NULL THEN '{}' END"""

# Documents that one statement brings; the first one may be larger.
READ_BYTES = 4 * 1024 * 1024


def fetch(text: str, values: Values) -> Rows:
    """As prepared.fetch."""
    deadline.check()
    return prepared.fetch(text, values)


def together(asked: Sequence[Statement]) -> list[Rows]:
    """As prepared.together."""
    deadline.check()
    return prepared.together(asked)


@cache
def _around(rows: str, text: str = _TEXT) -> str:
    return _BOUNDED.format(rows=rows, text=text)


def bounded(text: str, values: Values, fields: Fields = None) -> Statement:
    """A statement that gives versions, with the limit of documents and the names around it. Its
    rows are for rows(). fields: the only ones of documents that are sent; a block is sent whole."""
    values = {**values, "bytes": Int4(READ_BYTES)}
    if fields is None:
        return _around(text), values
    if not fields:
        return _around(text, _TEXT_OF_NONE), values
    some = _TEXT_OF_FIELDS.format(most=FIELD_BYTES)
    return _around(text, some), {**values, "fields": list(fields)}


def read(
    entity: Entity,
    text: str,
    values: Values,
    fields: Fields = None,
    damaged: Damaged | None = None,
) -> Read:
    """The rows of a statement, from the first one on, of which the documents may be read now."""
    return rows(entity, fetch(*bounded(text, values, fields)), damaged)


def rows(entity: Entity, found: Iterable[tuple[Any, ...]], damaged: Damaged | None = None) -> Read:
    """Return the versions that a bounded() statement gives.

    Args:
        damaged: gets the versions that cannot be read, which are left out. None: they are errors.

    Raises:
        DamagedBlockError: a version cannot be read.
    """
    read = Read([], [])
    texts: list[bytes] = []
    broken: DamagedBlockError | None = None
    for row in found:
        text, id, fits, position, stored_at, packed = row[6:12]
        place = entity, id, Key(*row[:2])
        if not fits:
            read.unread.append(place)
            continue
        if packed is not None:  # with the first of its versions
            broken, texts = None, []
            try:
                texts = stored.texts(connection.connection, entity.table, id, stored_at, packed)
            except DamagedBlockError as error:
                broken = error
        if position is not None:  # in its block, from 1; 0: of a row that is not as it was written
            if position == 0 or (broken is None and position > len(texts)):
                broken = stored.damaged(entity.table, id, stored_at)
            text = None if broken else texts[position - 1]
        elif text is None:
            broken = stored.damaged(entity.table, id, stored_at)
        if text is None:
            note_damage(damaged, place, broken)
            continue
        document = shortened(from_store(text))
        read.rows.append(VersionRow._make((*row[:6], document, id, entity, False, row[12:])))
    return read


def note_damage(
    damaged: Damaged | None, place: tuple[Entity, str, Key | None], error: Exception | None
) -> None:
    """Add what cannot be read to `damaged`; raise the error where that is None."""
    if error is None:
        error = DamagedBlockError(f"{place[0].table}: {place[1]} cannot be read")
    if damaged is None:
        raise error
    log.error("left out of a list: %s", error)
    damaged[place] = error


# The columns that bounded() needs, of the row of a block or a plain one alone.
OF_ROW = """version, updated_at, type, client_id, author, {product} AS product, data, id,
    packed IS NOT NULL AS in_block, {count} AS position, packed, unpacked,
    updated_at AS stored_at, version AS stored_version"""


@cache
def sql(text: str, entity: Entity, **parts: str) -> str:
    """A statement with the entity's table, its versions, the columns of a row alone, the one that
    names its application, the index of the kind, and the given words, which may replace these."""
    application = None if entity.parent is None else "product_instance_id"
    product = application or "NULL::varchar"
    words = {
        "table": entity.table,
        "versions": stored.versions(entity),
        "oldest": stored.OLDEST,
        "columns": OF_ROW.format(product=product, count=stored.versions_in_row(entity)),
        "product": product,
        "owner": application or "id",
        "kind": str(ENTITIES.index(entity)),
    }
    return text.format(**words | parts)


# In every statement: otherwise each combination of filters is one more prepared statement.
FILTERS = """AND (%(author)s::varchar IS NULL OR author = %(author)s)
    AND (%(client_id)s::varchar IS NULL OR client_id = %(client_id)s)
    AND (%(type)s::int4 IS NULL OR type = %(type)s)"""


# stored_at is bounded alone, for only then does PostgreSQL leave partitions out.
_SHOWN = """
    SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
        stored_at, stored_version {bodies}
    FROM {versions} AS stored
    WHERE id = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
      AND (position = 0 OR updated_at >= %(since)s AND updated_at < %(until)s
        AND ({key}) {sign} ({after}) {filters})
    ORDER BY {ordered} LIMIT %(limit)s
"""
# Only keys are sorted, so that only the shown bodies are read.
_PAGE = f"""
    SELECT page.*, body.data, body.packed, body.unpacked FROM ({_SHOWN}) AS page
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {{table}}
        WHERE id = %(id)s AND updated_at = page.stored_at AND version = page.stored_version LIMIT 1
    ) AS body
    ORDER BY {{ordered}}
"""  # noqa: S608 - constants

# The rows that have the newest versions below a place, where nothing else is asked of these: as
# many rows that are below it, and the blocks of its day that only begin below it.
_BELOW = """(
    (SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(since)s
        AND updated_at <= %(after_updated_at)s AND ({key}) < ({after})
        ORDER BY {ordered} LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(after_updated_at)s
        AND updated_at < %(high)s AND packed IS NOT NULL AND ({key}) >= ({after})
        AND {oldest} <= %(after_updated_at)s
)"""

KEYS = """
    SELECT id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(%(ids)s) AND stored_at <= %(last)s
"""

_DOCUMENTS = """
    SELECT * FROM unnest(%(ids)s::varchar[], %(moments)s::timestamptz[], %(numbers)s::int4[])
        WITH ORDINALITY AS wanted(id, updated_at, version, place)
    JOIN {rows} AS stored USING (id, updated_at, version)
    ORDER BY {ordered} OFFSET 0
"""
# As far as a row has their key. The bounds leave out the days of none of them, before anything is
# planned or prepared for them. OFFSET 0 above: Citus puts what the shards gave in this order, and
# goes on with that.
_BY_ROW = "(SELECT {columns} FROM {table} WHERE updated_at BETWEEN %(first)s AND %(last)s)"
# The blocks that may have the others: of each document and day those between two moments.
_BY_BLOCK = """(
    SELECT {table}.* FROM unnest(%(of)s::varchar[], %(lows)s::timestamptz[],
        %(highs)s::timestamptz[], %(ends)s::timestamptz[]) AS span(of, low, high, next_day)
    JOIN {table} ON id = of AND updated_at >= low AND updated_at < next_day AND packed IS NOT NULL
        AND high >= {oldest}
    WHERE updated_at >= %(first)s AND updated_at < %(end)s OFFSET 0
)"""
# Each OFFSET 0: a block is looked up, and its keys are read, once for all that are wanted.
_EACH = "(SELECT * FROM {versions} AS one OFFSET 0)"
# All of a block together, so that it is sent once.
_BLOCK_BY_BLOCK = "min(place) OVER (PARTITION BY id, stored_at, stored_version), place"

OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%(ids)s)"

# The keys are one row: of 10,000 rows with all columns most would be empty.
NEWEST = """
    WITH keys AS MATERIALIZED (
        SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
            stored_at, stored_version
        FROM {versions} AS stored WHERE id = %(id)s
    )
    SELECT bodies.*, NULL::int4[], NULL::timestamptz[], NULL::timestamptz FROM ({bodies}) AS bodies
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL,
        array_agg(version), array_agg(updated_at), max(stored_at) FILTER (WHERE position = 0)
    FROM keys
"""
UP_TO = """
    SELECT place.*, body.data, body.packed, body.unpacked FROM (
        SELECT DISTINCT place.*
        FROM unnest(%(numbers)s::int4[], %(moments)s::timestamptz[]) AS wanted(version, moment)
        CROSS JOIN LATERAL (
            SELECT * FROM keys
            WHERE keys.version <= wanted.version AND keys.updated_at <= wanted.moment
            ORDER BY version DESC, updated_at DESC LIMIT %(count)s
        ) AS place ORDER BY version DESC, updated_at DESC
    ) AS place
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {table}
        WHERE id = %(id)s AND updated_at = place.stored_at AND version = place.stored_version
        LIMIT 1
    ) AS body
"""

# The rows of one kind in a merged timeline, marked with the index of the kind.
_SHARE = """
    (SELECT {kind} AS kind, id, version, updated_at, position = 0 AS damaged
     FROM {versions} AS stored
     WHERE {whose} = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
       AND (position = 0 OR updated_at >= %(since)s AND updated_at < %(until)s
         AND ({key}) {sign} ({after}) {filters})
     ORDER BY {ordered} LIMIT %(limit)s)
"""

# With the keys of all versions of what is on the page: which version comes before each of them.
_MERGED = """
    WITH page AS MATERIALIZED (
        SELECT row_number() OVER () AS place, ordered.* FROM (
            SELECT kind, id, version, updated_at, damaged FROM ({shares}) AS merged
            ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %(limit)s
        ) AS ordered
    )
    SELECT place, kind, id, version, updated_at, damaged FROM page {keys}
"""

_KEYS_OF_PAGE = """
    UNION ALL SELECT NULL, {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM page WHERE kind = {kind}))
"""

# All keys of an application, and of the children that name it in any stored version.
OF_ROOT = """
    SELECT {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = %(id)s
"""
OF_CHILD = """
    SELECT {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %(id)s))
"""


@cache
def of_entity(entity: Entity, sort: Sort, order: Order, below: bool) -> str:
    """The statement of a page. below: of the rows of _BELOW."""
    names = ["updated_at", "version"] if sort is Sort.UPDATED_AT else ["version", "updated_at"]
    words = _order(names, order)
    if below:  # few rows: their bodies come with them, and no partition is searched again
        rows = sql(_BELOW, entity, **words | {"owner": "id"})
        words |= {"versions": stored.versions(entity, rows), "bodies": ", data, packed, unpacked"}
    return sql(_SHOWN if below else _PAGE, entity, filters=FILTERS, **{"bodies": ""} | words)


@cache
def of_application(order: Order, below: bool) -> str:
    """The statement of a page of an application. below: as above."""
    shares, keys = [], []
    for entity in PARTS:
        words = _order(Place._fields, order, str(ENTITIES.index(entity)))
        if below:
            words["versions"] = stored.versions(entity, sql(_BELOW, entity, **words))
        whose = "product" if entity.parent else "id"
        shares.append(sql(_SHARE, entity, whose=whose, filters=FILTERS, **words))
        keys.append(sql(_KEYS_OF_PAGE, entity))
    return _MERGED.format(shares=" UNION ALL ".join(shares), order=order.value, keys="".join(keys))


def _order(names: Sequence[str], order: Order, kind: str = "") -> dict[str, str]:
    """The words that bring what comes after a place into an order. names: by which it is ordered.
    kind: the index of the kind whose rows these are, a constant."""
    return {
        "key": ", ".join(kind if name == "kind" else name for name in names),
        "after": ", ".join(f"%(after_{name})s" for name in names),
        "ordered": ", ".join(f"{name} {order.value}" for name in names if name != "kind"),
        "sign": "<" if order is Order.DESC else ">",
    }


@cache
def documents(entity: Entity, blocks: bool) -> str:
    """The statement of versions by their keys: as far as a row has the key, or those in blocks."""
    rows, ordered = sql(_BY_ROW, entity), "place"
    if blocks:
        found = stored.versions(entity, sql(_BY_BLOCK, entity))
        rows, ordered = _EACH.format(versions=found), _BLOCK_BY_BLOCK
    return sql(_DOCUMENTS, entity, rows=rows, ordered=ordered)
