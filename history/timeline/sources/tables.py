"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.types.numeric import Int4

from history.database.distributed import apart
from history.entities import ENTITIES, PARTS, Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import FIRST, LAST, FirstBodies, IdKey, Key, Position, Read, VersionRow
from history.timeline.sources import homes, several, statements
from history.timeline.sources.homes import Homes, Named, Within
from history.timeline.sources.statements import sql

# No index has this order. Only keys are sorted, so that only the shown bodies are read.
_BY_VERSION = f"""
    SELECT body.* FROM ({several.BY_VERSION}) AS page
    CROSS JOIN LATERAL (
        SELECT {{columns}} FROM {{table}}
        WHERE id = %s {{within}} AND updated_at = page.updated_at AND version = page.version LIMIT 1
    ) AS body
    ORDER BY page.version {{order}}, page.updated_at {{order}}
"""  # noqa: S608 - constants

_KEYS = """
    SELECT id, version, updated_at FROM {table} WHERE id = ANY(%s) {within} AND updated_at <= %s
"""

# The bounds leave out the days of none of them, before anything is planned or prepared for them.
_BODIES = """
    SELECT body.* FROM unnest(%s::varchar[], %s::timestamptz[], %s::int4[])
        AS wanted(id, updated_at, version)
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = wanted.id AND updated_at = wanted.updated_at AND version = wanted.version
            AND updated_at BETWEEN %s AND %s {within} LIMIT 1
    ) AS body
"""

_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%s) {within}"

_ANY = "SELECT 1 FROM {table} WHERE id = %s {within} LIMIT 1"

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

# Where every statement is planned anew, which costs more than to read all keys of an application:
# each table is there once, with no order. Then its children that are in other applications, too:
# the keys of these are not all here.
_MERGED_APART = """
    WITH part AS MATERIALIZED ({parts}), page AS MATERIALIZED (
        SELECT row_number() OVER () AS place, ordered.* FROM (
            SELECT kind, id, version, updated_at FROM part
            WHERE updated_at >= %s AND updated_at < %s
                AND (updated_at, kind, id, version) {sign} (%s, %s, %s, %s) {filters}
            ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %s
        ) AS ordered
    )
    SELECT place, kind, id, version, updated_at, NULL::varchar, NULL::varchar FROM page
    UNION ALL
    SELECT NULL, kind, id, version, updated_at, NULL, NULL FROM part
    WHERE (kind, id) IN (SELECT kind, id FROM page)
"""

_ALL_OF_PART = """
    SELECT {kind} AS kind, id, version, updated_at, author, client_id, type FROM {table}
    WHERE {owner} = %s
"""

MOVED = """
    UNION ALL SELECT NULL, -1, id, NULL, NULL, entity, other_application FROM child_moved
    WHERE product_instance_id = %s
"""

_CHILDREN = "SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s"

_ANY_OF_APPLICATION = "SELECT 1 FROM {table} WHERE {owner} = %s LIMIT 1"


def statement_of_bodies(
    entity: Entity, wanted: Sequence[IdKey], where: Within
) -> tuple[str, list[object]]:
    """The statement that gives these versions, for statements.read, and its values."""
    moments = [key.updated_at for _, key in wanted]
    values = [*statements.places(wanted), min(moments), max(moments), *where.values]
    return sql(_BODIES, entity, within=where.text), values


def all_of(entity: Entity, wanted: Iterable[IdKey], first: FirstBodies) -> dict[IdKey, VersionRow]:
    """All versions with these ids and keys that are (still) where `first` reads."""
    found: dict[IdKey, VersionRow] = {}
    left = list(wanted)
    most = len(left)
    while left:
        read, unread = first(entity, left[:most])
        left = [*unread, *left[most:]]
        most = max(1, 2 * len(read))
        found |= read
    return found


def of_each_kind(text: str, **words: str) -> list[str]:
    """The statement for each kind of an application."""
    return [
        sql(text, entity, kind=str(number), owner=homes.column(entity), **words)
        for number, entity in enumerate(ENTITIES)
        if not entity.alone
    ]


@dataclass(slots=True)
class Ahead:
    """What a statement brought that later ones would ask for, by kind and id. keys: all of these
    entities; empty where the store has none. children: of an application, by kind and its id. rows:
    as stored, by kind and place."""

    keys: dict[Named, list[Key]] = field(default_factory=dict)
    children: dict[Named, list[str]] = field(default_factory=dict)
    rows: dict[tuple[str, IdKey], VersionRow] = field(default_factory=dict)


@dataclass(slots=True)
class Tables:
    """A history.timeline.sources.source.Source. homes, ahead: what it has found already, and does
    not ask for again."""

    homes: Homes = field(default_factory=Homes)
    ahead: Ahead = field(default_factory=Ahead)

    def page(self, query: Query, after: Key, limit: int) -> Read:
        entity, id, filters = query.entity, query.id, query.filters
        where = self.homes.within(entity, [id])
        if where.several:
            keys = several.page(query, where, after, limit)
            return several.first_bodies(entity, [(id, key) for key in keys], where)
        values = statements.conditions(filters)
        since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
        words = {
            "sign": "<" if query.order is Order.DESC else ">",
            "order": query.order.value,
            "filters": statements.FILTERS,
            "within": where.text,
        }
        version, moment = Int4(after.version), after.updated_at
        named = [id, *where.values]
        if query.sort is Sort.UPDATED_AT:
            text = sql(several.BY_TIME, entity, **words)
            bounds = [*named, since, until, moment, moment, version, *values, Int4(limit)]
        else:
            if (
                not filters.by_row
            ):  # the keys come from the index alone, as long as nothing else counts
                words, values = {**words, "filters": ""}, []
            text = sql(_BY_VERSION, entity, **words)
            bounds = [*named, since, until, version, moment, *values, Int4(limit), *named]
        return statements.read(text, bounds)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        ahead = self.ahead.keys
        if all((entity.name, id) in ahead for id in ids):
            return {id: sorted(its) for id in ids if (its := ahead[entity.name, id])}
        where = self.homes.within(entity, ids)
        text = sql(_KEYS, entity, within=where.text)
        found: dict[str, set[Key]] = {}
        for id, *key in homes.fetch(where, text, [list(ids), *where.values, LAST.updated_at]):
            found.setdefault(id, set()).add(Key(*key))
        return {id: sorted(its) for id, its in found.items()}

    def first_bodies(
        self, entity: Entity, wanted: Sequence[IdKey]
    ) -> tuple[dict[IdKey, VersionRow], Sequence[IdKey]]:
        read, unread = self._first_bodies(entity, wanted)
        return {(row.id, row.key): row for row in read}, unread

    def _first_bodies(self, entity: Entity, wanted: Sequence[IdKey]) -> Read:
        ahead = self.ahead.rows
        known = [row for place in wanted if (row := ahead.get((entity.name, place))) is not None]
        left = [place for place in wanted if (entity.name, place) not in ahead]
        if not left:
            return Read(known, [])
        where = self.homes.pinned(entity, {id for id, _ in left})
        if where.several:
            found = several.first_bodies(entity, left, where)
        else:
            found = statements.read(*statement_of_bodies(entity, left, where))
        return Read([*known, *found.rows], found.unread)

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        if entity.alone:
            return found
        ids = list(ids)
        where = self.homes.within(entity, ids)
        text = sql(_OWNERS, entity, owner=homes.column(entity), within=where.text)
        for id, application in homes.fetch(where, text, [ids, *where.values]):
            found.setdefault(id, set()).add(application)
        return found

    def exists(self, entity: Entity, id: str) -> bool:
        where = self.homes.within(entity, [id])
        text = sql(_ANY, entity, within=where.text)
        return bool(homes.fetch(where, text, [id, *where.values]))

    def of_application(
        self,
        application: str,
        filters: Filters,
        order: Order,
        after: Position | None,
        limit: int,
    ) -> list[tuple[Entity, str, Key]]:
        since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
        backwards = order is Order.DESC
        if after is None:
            after = (LAST.updated_at, 99, "", 0) if backwards else (FIRST.updated_at, -1, "", 0)
        moment, kind, id, version = after
        sign = "<" if backwards else ">"
        place = [moment, moment, Int4(kind), id, Int4(version)]
        conditions = statements.conditions(filters)
        words = {"sign": sign, "order": order.value, "filters": statements.FILTERS}
        if apart():
            parts = " UNION ALL ".join(of_each_kind(_ALL_OF_PART))
            text = _MERGED_APART.format(parts=parts, **words) + MOVED
            bounds = [since, until, *place[1:], *conditions, Int4(limit)]
            found = statements.fetch(text, [*[application] * len(PARTS), *bounds, application])
        else:
            shares = " UNION ALL ".join(of_each_kind(_SHARE, **words))
            text = _MERGED.format(
                shares=shares, order=order.value, keys="".join(of_each_kind(_KEYS_OF_PAGE))
            )
            share = [application, since, until, *place, *conditions, Int4(limit)]
            found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
        page = sorted(row[:5] for row in found if row[0] is not None)
        versions = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]
        self.keep(
            application,
            [row for row in found if row[0] is None],
            {(entity, id) for entity, id, _ in versions},
        )
        return versions

    def keep(
        self,
        application: str,
        found: Sequence[tuple[Any, ...]],
        ids: Collection[tuple[Entity, str]],
    ) -> None:
        """Note the keys of these entities, and which children moved."""
        if apart():
            self.homes.moved(
                application, [(row[5], row[2], row[6]) for row in found if row[1] == -1]
            )
            self.homes.seen(application, ids)
        keys: dict[Named, list[Key]] = {}
        for _, kind, id, version, at, *_ in found:
            if kind != -1:
                keys.setdefault((ENTITIES[kind].name, id), []).append(Key(version, at))
        elsewhere = self.homes.elsewhere(application)
        self.ahead = Ahead(keys={name: its for name, its in keys.items() if name not in elsewhere})

    def children(self, entity: Entity, application: str) -> list[str]:
        found = self.ahead.children.get((entity.name, application))
        if found is None:
            rows = statements.fetch(sql(_CHILDREN, entity), [application])
            found = [id for (id,) in rows]
        self.homes.seen(application, ((entity, id) for id in found))
        return found

    def belongs(self, entity: Entity, application: str) -> bool:
        text = sql(_ANY_OF_APPLICATION, entity, owner=homes.column(entity))
        return bool(statements.fetch(text, [application]))
