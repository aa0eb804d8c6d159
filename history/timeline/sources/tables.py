"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from psycopg.types.numeric import Int4

from history.distribution import APPLICATION
from history.entities import ENTITIES, PARTS, Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import (
    FIRST,
    LAST,
    Documents,
    IdKey,
    Key,
    Located,
    Named,
    Place,
    Read,
    VersionRow,
)
from history.timeline.sources import statements
from history.timeline.sources.statements import around, sql, version_row

# updated_at is bounded a second time, alone: only then does PostgreSQL leave partitions out.
_BY_TIME = """
    SELECT {columns} FROM {table}
    WHERE id = %s AND updated_at >= %s AND updated_at < %s AND updated_at {sign}= %s
      AND (updated_at, version) {sign} (%s, %s) {filters}
    ORDER BY updated_at {order}, version {order} LIMIT %s
"""

# No index has this order. Only keys are sorted, so that only the shown bodies are read.
_BY_VERSION = """
    SELECT body.* FROM (
        SELECT version, updated_at FROM {table}
        WHERE id = %s AND updated_at >= %s AND updated_at < %s
          AND (version, updated_at) {sign} (%s, %s) {filters}
        ORDER BY version {order}, updated_at {order} LIMIT %s
    ) AS page
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = %s AND updated_at = page.updated_at AND version = page.version LIMIT 1
    ) AS body
    ORDER BY page.version {order}, page.updated_at {order}
"""

_KEYS = """
    SELECT id, version, updated_at FROM {table} WHERE id = ANY(%s) AND updated_at <= %s
"""

# The bounds leave out the days of none of them, before anything is planned or prepared for them.
# OFFSET 0: Citus puts what the shards gave in this order, and goes on with that.
_BODIES = """
    SELECT {columns} FROM unnest(%s::varchar[], %s::timestamptz[], %s::int4[])
        WITH ORDINALITY AS wanted(id, updated_at, version, place)
    JOIN {table} AS stored USING (id, updated_at, version)
    WHERE stored.updated_at BETWEEN %s AND %s
    ORDER BY place OFFSET 0
"""

_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%s)"

# The keys are one row: of 10,000 rows with all columns most would be empty.
_NEWEST = """
    WITH keys AS MATERIALIZED (
        SELECT version, updated_at FROM {table} WHERE id = %s
    )
    SELECT bodies.*, NULL::int4[], NULL::timestamptz[] FROM ({bodies}) AS bodies
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        array_agg(version), array_agg(updated_at) FROM keys
"""
_UP_TO = """
    SELECT body.* FROM (
        SELECT DISTINCT place.*
        FROM unnest(%s::int4[], %s::timestamptz[]) AS wanted(version, moment)
        CROSS JOIN LATERAL (
            SELECT version, updated_at FROM keys
            WHERE keys.version <= wanted.version AND keys.updated_at <= wanted.moment
            ORDER BY version DESC, updated_at DESC LIMIT %s
        ) AS place ORDER BY version DESC, updated_at DESC
    ) AS place
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = %s AND updated_at = place.updated_at AND version = place.version LIMIT 1
    ) AS body
"""

# The rows of one kind in a merged timeline, marked with the index of the kind.
_SHARE = """
    (SELECT {kind} AS kind, id, version, updated_at FROM {table}
     WHERE {owner} = %s AND updated_at >= %s AND updated_at < %s AND updated_at {sign}= %s
       AND (updated_at, {kind}, id, version) {sign} (%s, %s, %s, %s) {filters}
     ORDER BY updated_at {order}, id {order}, version {order} LIMIT %s)
"""

# With the keys of all versions of what is on the page: which version comes before each of them.
_MERGED = """
    WITH page AS MATERIALIZED (
        SELECT row_number() OVER () AS place, ordered.* FROM (
            SELECT kind, id, version, updated_at FROM ({shares}) AS merged
            ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %s
        ) AS ordered
    )
    SELECT place, kind, id, version, updated_at FROM page {keys}
"""

_KEYS_OF_PAGE = """
    UNION ALL SELECT NULL, {kind}, id, version, updated_at FROM {table}
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM page WHERE kind = {kind}))
"""

# All keys of an application, and of the children that name it in any stored version.
_OF_ROOT = "SELECT {kind}, id, version, updated_at FROM {table} WHERE id = %s"
_OF_CHILD = """
    SELECT {kind}, id, version, updated_at FROM {table}
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s))
"""


def _owner(entity: Entity) -> str:
    """The column of a kind's table that names the application."""
    return "id" if entity.parent is None else APPLICATION


def _of_each_kind(text: str, **words: str) -> list[str]:
    """The statement for each kind of an application."""
    return [
        sql(text, entity, kind=str(number), owner=_owner(entity), **words)
        for number, entity in enumerate(ENTITIES)
        if not entity.alone
    ]


class Tables:
    """A history.timeline.sources.source.Source."""

    def page(self, query: Query, after: Key, limit: int) -> Read:
        entity, id, filters = query.entity, query.id, query.filters
        values = statements.conditions(filters)
        since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
        words = {
            "sign": "<" if query.order is Order.DESC else ">",
            "order": query.order.value,
            "filters": statements.FILTERS,
        }
        version, moment = Int4(after.version), after.updated_at
        if query.sort is Sort.UPDATED_AT:
            text = sql(_BY_TIME, entity, **words)
            bounds = [id, since, until, moment, moment, version, *values, Int4(limit)]
        else:
            if not filters.by_row:  # then the keys come from the index alone
                words, values = {**words, "filters": ""}, []
            text = sql(_BY_VERSION, entity, **words)
            bounds = [id, since, until, version, moment, *values, Int4(limit), id]
        return statements.read(text, bounds)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        found = statements.fetch(sql(_KEYS, entity), [list(ids), LAST.updated_at])
        return {id: its for (_, id), its in _by_entity((entity, *row) for row in found).items()}

    def documents(self, wanted: Mapping[Entity, Sequence[IdKey]]) -> dict[Entity, Documents]:
        kinds = [entity for entity, places in wanted.items() if places]
        asked = [statements.bounded(*_bodies(entity, wanted[entity])) for entity in kinds]
        found: dict[Entity, Documents] = {entity: Documents({}, []) for entity in wanted}
        for entity, rows in zip(kinds, statements.together(asked), strict=True):
            for row in map(version_row, rows):
                if row.data is None:
                    found[entity].unread.append((row.id, row.key))
                else:
                    found[entity].rows[row.id, row.key] = row
        return found

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], dict[IdKey, VersionRow]]:
        text = sql(_NEWEST, entity, bodies=around(sql(_UP_TO, entity)))
        numbers, moments = [Int4(key.version) for key in below], [key.updated_at for key in below]
        limits = [Int4(statements.READ_BYTES)] * 2
        keys: list[Key] = []
        rows: dict[IdKey, VersionRow] = {}
        for *body, versions, times in statements.fetch(
            text, [id, *limits, numbers, moments, Int4(count), id]
        ):
            if versions is not None:
                keys = sorted(map(Key, versions, times))
            elif body[0] is not None and (row := version_row(tuple(body))).data is not None:
                rows[row.id, row.key] = row
        return keys, rows

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        if not entity.alone:
            text = sql(_OWNERS, entity, owner=_owner(entity))
            for id, application in statements.fetch(text, [list(ids)]):
                found.setdefault(id, set()).add(application)
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        children = zip(PARTS, _of_each_kind(_OF_ROOT), _of_each_kind(_OF_CHILD), strict=True)
        text = " UNION ALL ".join(one if entity.root else two for entity, one, two in children)
        found = statements.fetch(text, [application] * len(PARTS))
        return _by_entity((ENTITIES[kind], *row) for kind, *row in found)

    def of_application(
        self,
        application: str,
        filters: Filters,
        order: Order,
        after: Place | None,
        limit: int,
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
        backwards = order is Order.DESC
        if after is None:
            first = Place(FIRST.updated_at, -1, "", 0)
            after = Place(LAST.updated_at, len(ENTITIES), "", 0) if backwards else first
        moment, kind, id, version = after
        place = [moment, moment, Int4(kind), id, Int4(version)]
        conditions = statements.conditions(filters)
        sign = "<" if backwards else ">"
        words = {"sign": sign, "order": order.value, "filters": statements.FILTERS}
        shares = " UNION ALL ".join(_of_each_kind(_SHARE, **words))
        keys = "".join(_of_each_kind(_KEYS_OF_PAGE))
        text = _MERGED.format(shares=shares, order=order.value, keys=keys)
        share = [application, since, until, *place, *conditions, Int4(limit)]
        found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
        page = sorted(row for row in found if row[0] is not None)
        rest = ((ENTITIES[kind], *row) for number, kind, *row in found if number is None)
        places = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]
        return places, _by_entity(rest)


def _bodies(entity: Entity, wanted: Sequence[IdKey]) -> tuple[str, list[object]]:
    """The statement that gives these versions, and its values."""
    moments = [key.updated_at for _, key in wanted]
    values = [
        [id for id, _ in wanted],
        moments,
        [Int4(key.version) for _, key in wanted],
        *(min(moments), max(moments)),
    ]
    return sql(_BODIES, entity), values


def _by_entity(rows: Iterable[tuple[Any, ...]]) -> dict[Named, list[Key]]:
    """Keys by entity, ascending. rows: kind, id, version and moment."""
    found: dict[Named, list[Key]] = {}
    for entity, id, version, at in rows:
        found.setdefault((entity, id), []).append(Key(version, at))
    for keys in found.values():
        keys.sort()
    return found
