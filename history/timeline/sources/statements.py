"""Builds the SQL that reads versions from the *_aud tables, runs it, and decodes the rows.

PostgreSQL needs more time to plan a query over a hundred partitions than to run it. So every
statement is prepared, and its text is the same for all values of the filters. If a query has no
lower or upper bound for the moment, the moment of the constant FIRST or LAST is the bound.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cache
from typing import NamedTuple, TypeAlias

from django.db import connection
from psycopg.types.numeric import Int4

from history.common import deadline
from history.documents.jsonb import from_store, shorten_zeros
from history.documents.top_level_fields import FIELD_BYTES, select_fields
from history.kinds.entities import ENTITIES, PARTS, EntityKind
from history.store import distribution
from history.store.blocks import queries
from history.store.blocks.codec import DamagedBlockError
from history.store.database import prepared
from history.store.database.prepared import FetchedRows, Statement, Values
from history.store.versions import (
    LAST,
    Damaged,
    DamagedRef,
    FetchedVersions,
    LoginKind,
    LoginNames,
    SourceRow,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import TimelineOrder, TimelineSort

log = logging.getLogger(__name__)

FieldNames: TypeAlias = tuple[str, ...] | None
"""The names of top-level fields of snapshots; None for whole snapshots."""

# Returns the versions that the statement `rows` selects, in its order, each as a BoundedRow. Sends
# their snapshots as long as they have at most %(bytes)s bytes together, and always the first one.
# The two OFFSET 0 keep the planner from making the text of a snapshot several times. Texts beyond
# the limit are dropped before the window function computes the sum, because it may write its rows
# to a file.
# A block is sent once, with the first of its versions, and all of its bytes are counted there.
# LATERAL with LIMIT 1 makes PostgreSQL look up the names by primary key, and keeps the order.
_BOUNDED_ROWS = """
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
                    FROM ({rows}) AS selected
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


# The text of a whole snapshot.
_SNAPSHOT_TEXT = "data::text"
# The text of a snapshot with only the top-level %(fields)s, without large values. PostgreSQL stores
# a large snapshot in pieces, and each function that gets the column puts them together anew. So
# jsonb_path_query_first does that once, and the other functions get its result.
_SNAPSHOT_TEXT_OF_FIELDS = """(
    SELECT CASE WHEN jsonb_typeof(document) <> 'object' THEN document::text ELSE (
        SELECT coalesce(jsonb_object_agg(name, document -> name)
            FILTER (WHERE octet_length((document -> name)::text) <= {most}), '{{}}')::text
        FROM unnest(%(fields)s::text[]) AS name
    ) END
    FROM (SELECT jsonb_path_query_first(data, '$') AS document OFFSET 0) AS whole
)"""
# '{}' in place of a snapshot, so that PostgreSQL does not read large ones. Very small ones are
# sent: `null` says that a deletion has no snapshot.
_SNAPSHOT_TEXT_WITHOUT_FIELDS = """
    CASE WHEN pg_column_size(data) < 32 THEN data::text WHEN data IS NOT NULL THEN '{}' END"""

# How many bytes of snapshots one statement may send. The first snapshot may be larger.
READ_BYTES = 4 * 1024 * 1024


def fetch_rows(text: str, values: Values) -> FetchedRows:
    """Run one statement, unless the request has reached its deadline. See prepared.fetch_rows."""
    deadline.check()
    return prepared.fetch_rows(text, values)


def fetch_pipelined(statements: Sequence[Statement]) -> list[FetchedRows]:
    """Run several statements in one round trip, unless the request has reached its deadline."""
    deadline.check()
    return prepared.fetch_pipelined(statements)


@cache
def _wrap_in_bounds(rows: str, text: str = _SNAPSHOT_TEXT) -> str:
    return _BOUNDED_ROWS.format(rows=rows, text=text)


def bound_statement(text: str, values: Values, fields: FieldNames = None) -> Statement:
    """Wrap a statement that selects versions, so that it sends at most READ_BYTES of snapshots.

    The first snapshot is sent even if it is larger. The wrapped statement also selects the names
    of authors and services. `decode_rows` decodes its rows.

    Args:
        fields: The fields that PostgreSQL sends of the snapshot of a plain row. None: all fields.
            Blocks are always sent whole.
    """
    values = {**values, "bytes": Int4(READ_BYTES)}
    if fields is None:
        return _wrap_in_bounds(text), values
    if not fields:
        return _wrap_in_bounds(text, _SNAPSHOT_TEXT_WITHOUT_FIELDS), values
    text_of_fields = _SNAPSHOT_TEXT_OF_FIELDS.format(most=FIELD_BYTES)
    return _wrap_in_bounds(text, text_of_fields), {**values, "fields": list(fields)}


def fetch_versions(
    entity: EntityKind,
    text: str,
    values: Values,
    fields: FieldNames = None,
    damaged: Damaged | None = None,
) -> FetchedVersions:
    """Run a statement and return its first versions, up to READ_BYTES of snapshots."""
    raw_rows = fetch_rows(*bound_statement(text, values, fields))
    return decode_rows(entity, map(BoundedRow._make, raw_rows), damaged)


class BoundedRow(NamedTuple):
    """One row of a statement that `bound_statement` wrapped: a version with its encoded snapshot.

    The snapshot of a plain row is `text`. For a block, the statement returns a BoundedRow for each
    selected version. Only the first of these BoundedRows has the snapshots of the block, in
    `packed`.
    """

    version: int
    updated_at: datetime
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    text: bytes | None  # the snapshot, if the row is plain and `fits`
    id: str
    fits: bool  # False: the snapshot would exceed READ_BYTES, so it was not sent
    # the number of the version in its block, from 1; 0: the row is damaged; None: the row is plain
    position: int | None
    stored_at: datetime  # the moment in the key of the stored row: of the plain row or the block
    packed: bytes | None  # the snapshots of the block; only in the block's first BoundedRow
    author_name: str | None
    author_kind: LoginKind | None
    service_name: str | None
    service_kind: LoginKind | None

    @property
    def names(self) -> LoginNames:
        return LoginNames(self.author_name, self.author_kind, self.service_name, self.service_kind)


def decode_rows(
    entity: EntityKind, rows: Iterable[BoundedRow], damaged: Damaged | None = None
) -> FetchedVersions:
    """Decode the rows of a statement that `bound_statement` made.

    Args:
        damaged: The versions that cannot be read are left out and added here. None: a version that
            cannot be read raises an error.

    Raises:
        DamagedBlockError: A version cannot be read, and `damaged` is None.
    """
    fetched = FetchedVersions([], [])
    block = _Block([], None)
    for row in rows:
        key = VersionKey(row.version, row.updated_at)
        if not row.fits:
            fetched.unread.append(VersionRef(entity, row.id, key))
            continue
        if row.packed is not None:
            block = _unpack_block(entity, row, row.packed)
        text = _find_text(entity, row, block)
        if isinstance(text, DamagedBlockError):
            if row.position is not None:  # the later versions of the block cannot be trusted
                block = block._replace(error=text)
            note_damage(damaged, DamagedRef(entity, row.id, key), text)
            continue
        fetched.rows.append(
            SourceRow(
                version=row.version,
                updated_at=row.updated_at,
                type=row.type,
                client_id=row.client_id,
                author=row.author,
                product_instance_id=row.product_instance_id,
                data=shorten_zeros(from_store(text)),
                id=row.id,
                entity=entity,
                names=row.names,
            )
        )
    return fetched


def keep_fields(rows: list[SourceRow], fields: FieldNames) -> list[SourceRow]:
    """Return copies of the rows that have only these top-level fields of their snapshots.

    If `fields` is None, return `rows` unchanged.
    """
    if fields is None:
        return rows
    return [row._replace(data=select_fields(row.data, fields)) for row in rows]


class _Block(NamedTuple):
    """The snapshots of the block that PostgreSQL sent last, or why they cannot be read."""

    texts: Sequence[bytes]
    error: DamagedBlockError | None


def _unpack_block(entity: EntityKind, row: BoundedRow, packed: bytes) -> _Block:
    try:
        texts = queries.read_snapshots(
            connection.connection, entity.table, row.id, row.stored_at, packed
        )
    except DamagedBlockError as error:
        return _Block([], error)
    return _Block(texts, None)


def _find_text(entity: EntityKind, row: BoundedRow, block: _Block) -> bytes | DamagedBlockError:
    """Return the snapshot of a row, or the error that says why it cannot be read."""
    if row.position is None and row.text is not None:
        return row.text
    if row.position and block.error is not None:
        return block.error
    if row.position and row.position <= len(block.texts):
        return block.texts[row.position - 1]
    return queries.build_damage_error(entity.table, row.id, row.stored_at)


def note_damage(damaged: Damaged | None, place: DamagedRef, error: Exception) -> None:
    """Add a document or version that cannot be read to `damaged`.

    If `damaged` is None, raise the error instead.
    """
    if damaged is None:
        raise error
    log.error("a list lacks versions that cannot be read: %s", error)
    damaged[place] = error


# The columns that `bound_statement` needs, for the newest version of a row of a table. A plain row
# has only this version. In a block its position is the number of versions; 0: the row is damaged.
NEWEST_VERSION_COLUMNS = """version, updated_at, type, client_id, author, {product} AS product,
    data, id, packed IS NOT NULL AS in_block, {count} AS position, packed, unpacked,
    updated_at AS stored_at, version AS stored_version"""


def is_distributed() -> bool:
    """Return whether the tables of versions are distributed over a cluster."""
    connection.ensure_connection()
    return distribution.is_distributed(connection.connection)


@cache
def format_sql(text: str, entity: EntityKind, **parts: str) -> str:
    """Fill in the placeholders of a statement for the table of a kind.

    Args:
        text: The statement. Besides those in `parts`, it can have the placeholders {table},
            {versions}, {oldest}, {columns}, {product}, {owner} and {kind}.
        parts: The values of placeholders. They take precedence over the values for the kind.
    """
    application = None if entity.parent is None else "product_instance_id"
    product = application or "NULL::varchar"
    words = {
        "table": entity.table,
        "versions": queries.build_versions_query(entity),
        "oldest": queries.OLDEST,
        "columns": NEWEST_VERSION_COLUMNS.format(
            product=product, count=queries.build_version_count(entity)
        ),
        "product": product,
        "owner": application or "id",
        "kind": str(ENTITIES.index(entity)),
    }
    return text.format(**words | parts)


# The conditions of VersionFilters, except `since`, `until` and `path`. Every statement has all of
# these conditions, and NULL in a parameter selects everything. Otherwise each combination of
# filters would be another prepared statement.
FILTERS = """AND (%(author)s::varchar IS NULL OR author = %(author)s)
    AND (%(client_id)s::varchar IS NULL OR client_id = %(client_id)s)
    AND (%(type)s::int4 IS NULL OR type = %(type)s)"""


# Returns the versions on one page of a document, without their snapshots if `bodies` is empty. The
# conditions on stored_at have no other columns: only such conditions let PostgreSQL leave out days.
# A damaged row passes all filters, because nothing is known of its versions.
_DOCUMENT_PAGE = """
    SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
        stored_at, stored_version {bodies}
    FROM {versions} AS stored
    WHERE id = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
      AND (position = 0 OR updated_at >= %(since)s AND updated_at < %(until)s
        AND ({key}) {sign} ({after}) {filters})
    ORDER BY {order_by} LIMIT %(limit)s
"""
# Returns the same versions with their snapshots. PostgreSQL sorts them without snapshots, and then
# reads only the snapshots of the page.
_DOCUMENT_PAGE_WITH_SNAPSHOTS = f"""
    SELECT page.*, body.data, body.packed, body.unpacked FROM ({_DOCUMENT_PAGE}) AS page
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {{table}}
        WHERE id = %(id)s AND updated_at = page.stored_at AND version = page.stored_version LIMIT 1
    ) AS body
    ORDER BY {{order_by}}
"""  # noqa: S608 - constants

# Returns the rows of a table that have the versions of a page. Only for pages in descending order
# of moments, without filters that leave out versions. Then the first %(limit)s rows below the
# position where the page begins are enough, with the blocks around this position: their newest
# version is not below it, but older ones may be.
_ROWS_OF_DESCENDING_PAGE = """(
    (SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(since)s
        AND updated_at <= %(after_updated_at)s AND ({key}) < ({after})
        ORDER BY {order_by} LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(after_updated_at)s
        AND updated_at < %(high)s AND packed IS NOT NULL AND ({key}) >= ({after})
        AND {oldest} <= %(after_updated_at)s
)"""

# Returns the keys of all versions of some documents, and whether each row is damaged.
KEYS_OF_DOCUMENTS = """
    SELECT id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(%(ids)s) AND stored_at <= %(last)s
"""

# Returns the versions among `rows` that have the requested keys. OFFSET 0 makes Citus sort the rows
# of all shards before the statement around this one gets them.
_VERSIONS_BY_KEY = """
    SELECT * FROM unnest(%(ids)s::varchar[], %(moments)s::timestamptz[], %(numbers)s::int4[])
        WITH ORDINALITY AS requested(id, updated_at, version, place)
    JOIN {rows} AS stored USING (id, updated_at, version)
    ORDER BY {order_by} OFFSET 0
"""
# Added if all requested versions are of one document: the id tells Citus which shard to ask.
_ID_CONDITION = "AND id = %(id)s"
# Returns the newest version of each row between the first and the last requested moment. This
# condition leaves out the other days before PostgreSQL plans anything for them.
_NEWEST_VERSIONS_OF_ROWS = """(
    SELECT {columns} FROM {table} WHERE updated_at BETWEEN %(first)s AND %(last)s {id_condition}
)"""
# Returns the blocks that may have the requested versions: for each document and day, the blocks
# with moments between the first and the last requested one. OFFSET 0, here and in the next
# constant, makes PostgreSQL look up a block and decode its keys once, and not for each version.
_BLOCKS_OF_SPANS = """(
    SELECT {table}.* FROM unnest(%(of)s::varchar[], %(lows)s::timestamptz[],
        %(highs)s::timestamptz[], %(ends)s::timestamptz[]) AS span(of, low, high, next_day)
    JOIN {table} ON id = of AND updated_at >= low AND updated_at < next_day AND packed IS NOT NULL
        AND high >= {oldest}
    WHERE updated_at >= %(first)s AND updated_at < %(end)s {id_condition} OFFSET 0
)"""
# Returns all versions of these blocks.
_VERSIONS_OF_BLOCKS = "(SELECT * FROM {versions} AS one OFFSET 0)"
# Sorts the versions of one block together, so that the block is sent once.
_ORDER_BY_BLOCK = "min(place) OVER (PARTITION BY id, stored_at, stored_version), place"

# Returns the applications that the versions of some documents name.
OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%(ids)s)"

# Returns the newest versions of a document, which the statement `bodies` selects, and then one row
# with the keys of all its versions as arrays. If each key were a row, most columns of 10,000 rows
# would be empty.
KEYS_AND_NEWEST_VERSIONS = """
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
# Returns the newest %(count)s versions up to each number and moment, with their snapshots. It is a
# part of KEYS_AND_NEWEST_VERSIONS, which defines `keys`.
NEWEST_VERSIONS_UP_TO = """
    SELECT place.*, body.data, body.packed, body.unpacked FROM (
        SELECT DISTINCT place.*
        FROM unnest(%(numbers)s::int4[], %(moments)s::timestamptz[]) AS highest(version, moment)
        CROSS JOIN LATERAL (
            SELECT * FROM keys
            WHERE keys.version <= highest.version AND keys.updated_at <= highest.moment
            ORDER BY version DESC, updated_at DESC LIMIT %(count)s
        ) AS place ORDER BY version DESC, updated_at DESC
    ) AS place
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {table}
        WHERE id = %(id)s AND updated_at = place.stored_at AND version = place.stored_version
        LIMIT 1
    ) AS body
"""

# Returns the versions of one kind that may be on a page of an application.
_PAGE_SHARE_OF_KIND = """
    (SELECT {kind} AS kind, id, version, updated_at, position = 0 AS damaged
     FROM {versions} AS stored
     WHERE {owner_column} = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
       AND (position = 0 OR updated_at >= %(since)s AND updated_at < %(until)s
         AND ({key}) {sign} ({after}) {filters})
     ORDER BY {order_by} LIMIT %(limit)s)
"""

# Returns the versions on a page of an application, each with its place on the page. Then the keys
# of all versions of these documents, with NULL as the place: they show which version is the
# previous one of each.
_APPLICATION_PAGE = """
    WITH page AS MATERIALIZED (
        SELECT row_number() OVER () AS place, ordered.* FROM (
            SELECT kind, id, version, updated_at, damaged FROM ({shares}) AS merged
            ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %(limit)s
        ) AS ordered
    )
    SELECT place, kind, id, version, updated_at, damaged FROM page {keys}
"""

# Returns the keys of all versions of the documents of one kind that are on the page.
_KEYS_OF_PAGE_DOCUMENTS = """
    UNION ALL SELECT NULL, {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM page WHERE kind = {kind}))
"""

# Returns the keys of all versions of an application.
KEYS_OF_APPLICATION = """
    SELECT {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = %(id)s
"""
# Returns the keys of all versions of the children that name an application in any stored version.
KEYS_OF_CHILDREN = """
    SELECT {kind}, id, version, updated_at, position = 0 FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %(id)s))
"""


def find_midnight(moment: datetime) -> datetime:
    """Return the first moment of the UTC day in which `moment` lies."""
    return datetime.combine(moment.astimezone(UTC), time(), UTC)


def find_next_day(moment: datetime) -> datetime:
    """Return the first moment of the next UTC day after `moment`."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


# Returns the keys of one document in some days, and whether `chosen` is true of each version.
_KEYS_OF_DOCUMENT = """
    SELECT id, version, updated_at, position = 0, coalesce({chosen}, false)
    FROM {versions} AS stored
    WHERE id = %(id)s AND stored_at >= %(first)s AND stored_at < %(end)s
"""
# Is true of a version that names the application.
_NAMES_APPLICATION = "{owner_column} = %(application)s"
# Is true of a version that may be on a page of the application, as in _PAGE_SHARE_OF_KIND.
_MAY_BE_ON_PAGE = f"""{_NAMES_APPLICATION} AND stored_at >= %(low)s AND stored_at < %(high)s
    AND (position = 0 OR updated_at >= %(since)s AND updated_at < %(until)s
        AND ({{key}}) {{sign}} ({{after}}) {{filters}})"""


@cache
def make_page_sql(
    entity: EntityKind, sort: TimelineSort, order: TimelineOrder, stop_early: bool
) -> str:
    """Make the statement of one page of a document's versions.

    Args:
        stop_early: Read only as many rows as the page needs, instead of all rows of the document.
            Only for pages in descending order of moments, without filters that may skip versions.
    """
    names = (
        ["updated_at", "version"] if sort is TimelineSort.UPDATED_AT else ["version", "updated_at"]
    )
    words = _make_order_words(names, order)
    if stop_early:  # few rows: read their snapshots at once, without a second search for the rows
        rows = format_sql(_ROWS_OF_DESCENDING_PAGE, entity, **words | {"owner": "id"})
        words |= {
            "versions": queries.build_versions_query(entity, rows),
            "bodies": ", data, packed, unpacked",
        }
    text = _DOCUMENT_PAGE if stop_early else _DOCUMENT_PAGE_WITH_SNAPSHOTS
    return format_sql(text, entity, filters=FILTERS, **{"bodies": ""} | words)


@cache
def make_application_page_sql(order: TimelineOrder, stop_early: bool) -> str:
    """Make the statement of one page of an application.

    Args:
        stop_early: See `make_page_sql`.
    """
    shares, keys = [], []
    for entity in PARTS:
        words = _make_order_words(TimelinePosition._fields, order, str(ENTITIES.index(entity)))
        if stop_early:
            words["versions"] = queries.build_versions_query(
                entity, format_sql(_ROWS_OF_DESCENDING_PAGE, entity, **words)
            )
        words["owner_column"] = "product" if entity.parent else "id"
        shares.append(format_sql(_PAGE_SHARE_OF_KIND, entity, filters=FILTERS, **words))
        keys.append(format_sql(_KEYS_OF_PAGE_DOCUMENTS, entity))
    return _APPLICATION_PAGE.format(
        shares=" UNION ALL ".join(shares), order=order.value, keys="".join(keys)
    )


@cache
def make_document_keys_sql(entity: EntityKind, order: TimelineOrder | None) -> str:
    """Make the statement that selects the version keys of one document in a range of days.

    The document is an application or one of its children. Each row also says whether the version is
    chosen; see `order`. On a cluster the statement asks one shard.

    Args:
        order: The order of a page of the application's timeline. A version is chosen if it names
            the application, passes the filters, and comes after the start of the page. None: a
            version is chosen if it names the application.
    """
    chosen = _NAMES_APPLICATION if order is None else _MAY_BE_ON_PAGE
    words = {"owner_column": "product" if entity.parent else "id", "filters": FILTERS}
    if order is not None:
        kind = str(ENTITIES.index(entity))
        words |= _make_order_words(TimelinePosition._fields, order, kind)
    return format_sql(_KEYS_OF_DOCUMENT, entity, chosen=chosen.format(**words))


def _make_order_words(names: Sequence[str], order: TimelineOrder, kind: str = "") -> dict[str, str]:
    """Make the parts of a statement that sort its rows, and that skip the rows up to a position.

    Args:
        names: The columns by which rows are sorted.
        kind: SQL that replaces the column "kind", which the tables do not have: all rows have the
            same kind, and the SQL is the index of this kind in ENTITIES. Needed only if `names` has
            "kind".

    Returns:
        The SQL for each placeholder of the statement.
    """
    return {
        "key": ", ".join(kind if name == "kind" else name for name in names),
        "after": ", ".join(f"%(after_{name})s" for name in names),
        "order_by": ", ".join(f"{name} {order.value}" for name in names if name != "kind"),
        "sign": "<" if order is TimelineOrder.DESC else ">",
    }


@cache
def make_versions_sql(entity: EntityKind, blocks: bool, one_document: bool) -> str:
    """Make the statement that reads versions by key.

    Args:
        blocks: True: look inside blocks. False: compare the version keys only with the primary keys
            of rows, which finds plain rows, and the newest version of each block.
        one_document: All versions are of one document, which is the parameter `id` of the
            statement.
    """
    id_condition = _ID_CONDITION if one_document else ""
    if blocks:
        block_rows = format_sql(_BLOCKS_OF_SPANS, entity, id_condition=id_condition)
        versions = queries.build_versions_query(entity, block_rows)
        rows, order_by = _VERSIONS_OF_BLOCKS.format(versions=versions), _ORDER_BY_BLOCK
    else:
        rows = format_sql(_NEWEST_VERSIONS_OF_ROWS, entity, id_condition=id_condition)
        order_by = "place"
    return format_sql(_VERSIONS_BY_KEY, entity, rows=rows, order_by=order_by)
