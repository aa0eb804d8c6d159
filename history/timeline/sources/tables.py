"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from psycopg.types.numeric import Int4

from history.distribution import APPLICATION
from history.entities import ENTITIES, PARTS, Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import FIRST, LAST, FirstBodies, IdKey, Key, Position, Read, VersionRow
from history.timeline.sources import statements
from history.timeline.sources.statements import sql

# Kind and id.
Named: TypeAlias = tuple[str, str]

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

_ANY = "SELECT 1 FROM {table} WHERE id = %s LIMIT 1"

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

_CHILDREN = "SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s"

_ANY_OF_APPLICATION = "SELECT 1 FROM {table} WHERE {owner} = %s LIMIT 1"


def statement_of_bodies(entity: Entity, wanted: Sequence[IdKey]) -> tuple[str, list[object]]:
    """The statement that gives these versions, for statements.read, and its values."""
    moments = [key.updated_at for _, key in wanted]
    return sql(_BODIES, entity), [*statements.places(wanted), min(moments), max(moments)]


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


def _owner(entity: Entity) -> str:
    """The column of a kind's table that names the application."""
    return "id" if entity.parent is None else APPLICATION


def of_each_kind(text: str, **words: str) -> list[str]:
    """The statement for each kind of an application."""
    return [
        sql(text, entity, kind=str(number), owner=_owner(entity), **words)
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
    """A history.timeline.sources.source.Source. ahead: what it has found already, and does not ask
    for again."""

    ahead: Ahead = field(default_factory=Ahead)

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
            if (
                not filters.by_row
            ):  # the keys come from the index alone, as long as nothing else counts
                words, values = {**words, "filters": ""}, []
            text = sql(_BY_VERSION, entity, **words)
            bounds = [id, since, until, version, moment, *values, Int4(limit), id]
        return statements.read(text, bounds)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        ahead = self.ahead.keys
        if all((entity.name, id) in ahead for id in ids):
            return {id: sorted(its) for id in ids if (its := ahead[entity.name, id])}
        found: dict[str, list[Key]] = {}
        for id, *key in statements.fetch(sql(_KEYS, entity), [list(ids), LAST.updated_at]):
            found.setdefault(id, []).append(Key(*key))
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
        found = statements.read(*statement_of_bodies(entity, left))
        return Read([*known, *found.rows], found.unread)

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        if entity.alone:
            return found
        text = sql(_OWNERS, entity, owner=_owner(entity))
        for id, application in statements.fetch(text, [list(ids)]):
            found.setdefault(id, set()).add(application)
        return found

    def exists(self, entity: Entity, id: str) -> bool:
        return bool(statements.fetch(sql(_ANY, entity), [id]))

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
        shares = " UNION ALL ".join(of_each_kind(_SHARE, **words))
        keys = "".join(of_each_kind(_KEYS_OF_PAGE))
        text = _MERGED.format(shares=shares, order=order.value, keys=keys)
        share = [application, since, until, *place, *conditions, Int4(limit)]
        found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
        self.keep(row for row in found if row[0] is None)
        page = sorted(row for row in found if row[0] is not None)
        return [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]

    def keep(self, found: Iterable[tuple[Any, ...]]) -> None:
        """Note the keys of these entities: all of them."""
        keys: dict[Named, list[Key]] = {}
        for _, kind, id, version, at in found:
            keys.setdefault((ENTITIES[kind].name, id), []).append(Key(version, at))
        self.ahead = Ahead(keys=keys)

    def children(self, entity: Entity, application: str) -> list[str]:
        found = self.ahead.children.get((entity.name, application))
        if found is None:
            found = [id for (id,) in statements.fetch(sql(_CHILDREN, entity), [application])]
        return found

    def belongs(self, entity: Entity, application: str) -> bool:
        text = sql(_ANY_OF_APPLICATION, entity, owner=_owner(entity))
        return bool(statements.fetch(text, [application]))
