"""Reading the versions of several applications at once where the tables are distributed: those of a
child that has been in more than one, and lists.

No statement here has what one shard can only do alone, as a LIMIT for each of several ids. So each
goes to the shards of these applications, all at once, and to no other. A version that a child has
in two applications counts once: that of the lower id.
"""

from collections.abc import Collection, Sequence
from itertools import takewhile

from psycopg.types.numeric import Int4

from history.entities import Entity
from history.timeline.query import Order, Query, Sort
from history.timeline.row import FIRST, LAST, IdKey, Key, Read, VersionRow
from history.timeline.sources import homes, statements
from history.timeline.sources.homes import Within
from history.timeline.sources.statements import conditions, places, sql, version_row

# updated_at is bounded a second time, alone: only then does PostgreSQL leave partitions out.
BY_TIME = """
    SELECT {columns} FROM {table}
    WHERE id = %s {within} AND updated_at >= %s AND updated_at < %s AND updated_at {sign}= %s
      AND (updated_at, version) {sign} (%s, %s) {filters}
    ORDER BY updated_at {order}, version {order} LIMIT %s
"""
BY_VERSION = """
    SELECT version, updated_at FROM {table}
    WHERE id = %s {within} AND updated_at >= %s AND updated_at < %s
      AND (version, updated_at) {sign} (%s, %s) {filters}
    ORDER BY version {order}, updated_at {order} LIMIT %s
"""


def page(query: Query, where: Within, after: Key, limit: int) -> list[Key]:
    """The keys of a page, as tables.page has them."""
    filters = query.filters
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    sign = "<" if query.order is Order.DESC else ">"
    words = {"sign": sign, "order": query.order.value, "filters": statements.FILTERS}
    words["columns"] = "version, updated_at"
    version, moment = Int4(after.version), after.updated_at
    by_time = query.sort is Sort.UPDATED_AT
    place = [moment, moment, version] if by_time else [version, moment]
    text = sql(BY_TIME if by_time else BY_VERSION, query.entity, within=where.text, **words)
    # Each may be there once for each application.
    most = Int4(limit * len(where.homes or ()))
    named = [query.id, *where.values, since, until]
    found = homes.fetch(where, text, [*named, *place, *conditions(filters), most])
    return list(dict.fromkeys(Key(*row) for row in found))[:limit]


# No text is as large as this.
_ANY_SIZE = 2**31 - 1
# The documents become texts on the shards, so that no sum over all of them can be made there.
_BODIES = """
    SELECT version, updated_at, stored.type, client_id, author, {product} AS product,
           CASE WHEN octet_length(data::text) <= %s THEN data::text END, id,
           person.full_name, person.kind, service.full_name, service.kind
    FROM (SELECT * FROM {table} WHERE true {within}) AS stored
    JOIN unnest(%s::varchar[], %s::timestamptz[], %s::int4[]) AS wanted(id, updated_at, version)
        USING (id, updated_at, version)
    LEFT JOIN history_person AS person ON person.login = author
    LEFT JOIN history_person AS service ON service.login = client_id
"""


def first_bodies(entity: Entity, wanted: Sequence[IdKey], where: Within) -> Read:
    """As tables.first_bodies, of any reader: each that is not larger than its share of READ_BYTES,
    and the first one. In the order in which they are wanted."""
    rows = _bodies(entity, wanted, where)
    first = next((place for place in wanted if place in rows), None)
    if first is not None and rows[first].data is None:
        rows |= _bodies(entity, [first], where)
    ready = list(takewhile(lambda place: rows[place].data is not None, filter(rows.get, wanted)))
    late = set(rows) - set(ready)
    return Read([rows[place] for place in ready], [place for place in wanted if place in late])


def _bodies(entity: Entity, wanted: Sequence[IdKey], where: Within) -> dict[IdKey, VersionRow]:
    """Those of these versions that are there; without data what is too large."""
    most = statements.READ_BYTES // len(wanted) if len(wanted) > 1 else _ANY_SIZE
    text = sql(_BODIES, entity, within=where.text)
    values = [Int4(most), *where.values, *places(wanted)]
    found = homes.fetch(where, text, values) if wanted else []
    rows = sorted(map(version_row, found), key=lambda row: row.product_instance_id or "")
    return {(row.id, row.key): row for row in reversed(rows)}


_NEWEST = """
    SELECT DISTINCT ON ({home}, id) id, version, updated_at, {home} FROM {table}
    WHERE id = ANY(%s) {within} {filters}
    ORDER BY {home}, id, version DESC, updated_at DESC
"""
_WITH_DOCUMENT = "AND (type <> 2 OR data <> 'null'::jsonb)"


def newest(
    entity: Entity, ids: Collection[str], where: Within, *, with_document: bool = False
) -> dict[str, tuple[Key, str]]:
    """The highest key of each of these, as far as the store has any, and the application that this
    version names. with_document: of those that have one."""
    filters = _WITH_DOCUMENT if with_document else ""
    home = homes.column(entity)
    text = sql(_NEWEST, entity, within=where.text, filters=filters, home=home)
    found: dict[str, tuple[Key, str]] = {}
    for id, version, updated_at, application in homes.fetch(
        where, text, [list(ids), *where.values]
    ):
        its = (Key(version, updated_at), application)
        if id not in found or found[id][0] < its[0]:
            found[id] = its
    return found
