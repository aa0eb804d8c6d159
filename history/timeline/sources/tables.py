"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any

from psycopg.types.numeric import Int4

from history.blocks import stored
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
from history.timeline.sources.statements import around, sql

# Only keys are sorted, so that only the shown bodies are read. stored_at is bounded alone, for only
# then does PostgreSQL leave partitions out.
_PAGE = """
    SELECT page.*, body.data, body.packed, body.unpacked FROM (
        SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
            stored_at, stored_version
        FROM {versions} AS stored
        WHERE id = %s AND stored_at >= %s AND stored_at < %s
          AND updated_at >= %s AND updated_at < %s AND ({by}) {sign} (%s, %s) {filters}
        ORDER BY {ordered} LIMIT %s
    ) AS page
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {table}
        WHERE id = %s AND updated_at = page.stored_at AND version = page.stored_version LIMIT 1
    ) AS body
    ORDER BY {ordered}
"""

# The rows that have the newest versions below a place, where nothing else is asked of these: as
# many rows that are below it, and the blocks of its day that only begin below it.
_BELOW = """(
    (SELECT * FROM {table} WHERE {of} = %s AND updated_at >= %s AND updated_at <= %s
        AND {key} < ({place}) ORDER BY {ordered} LIMIT %s)
    UNION ALL
    SELECT * FROM {table} WHERE {of} = %s AND updated_at >= %s AND updated_at < %s
        AND packed IS NOT NULL AND {key} >= ({place})
        AND 'epoch'::timestamptz + moments[1] * interval '1 microsecond' <= %s
)"""

_KEYS = """
    SELECT id, version, updated_at FROM {versions} AS stored WHERE id = ANY(%s) AND stored_at <= %s
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

# The blocks that have versions of these keys, in the order of the keys; of each document and day
# those between two moments are looked at. Who asks goes on after the first ones.
_BLOCKS = """
    SELECT id, version, (extract(epoch FROM updated_at) * 1000000)::bigint, client_id, author, type,
        {product}, NULL, moments, versions, source, sources::varchar,
        CASE WHEN total <= %s OR total = unpacked THEN packed END, unpacked
    FROM (
        SELECT stored.*, place,
            sum(unpacked) OVER (ORDER BY place, id, updated_at, version) AS total
        FROM unnest(%s::varchar[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[])
            AS wanted(of, low, high, next_day)
        JOIN {table} AS stored ON id = of AND updated_at >= low AND updated_at < next_day
            AND packed IS NOT NULL
            AND high >= 'epoch'::timestamptz + moments[1] * interval '1 microsecond'
        CROSS JOIN LATERAL (
            SELECT min(key.place) AS place
            FROM unnest(moments, versions) WITH ORDINALITY AS one(moment, number, position)
            JOIN unnest(%s::varchar[], %s::int8[], %s::int4[])
                WITH ORDINALITY AS key(of, moment, number, place)
                ON key.of = stored.id AND key.moment = one.moment AND key.number
                    = coalesce(one.number, stored.version - cardinality(moments) + position::int)
        ) AS first
        WHERE updated_at >= %s AND updated_at < %s AND place IS NOT NULL
    ) AS found ORDER BY place, id, updated_at, version
"""

_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%s)"

# The keys are one row: of 10,000 rows with all columns most would be empty.
_NEWEST = """
    WITH keys AS MATERIALIZED (
        SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
            stored_at, stored_version
        FROM {versions} AS stored WHERE id = %s
    )
    SELECT bodies.*, NULL::int4[], NULL::timestamptz[] FROM ({bodies}) AS bodies
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL,
        array_agg(version), array_agg(updated_at) FROM keys
"""
_UP_TO = """
    SELECT place.*, body.data, body.packed, body.unpacked FROM (
        SELECT DISTINCT place.*
        FROM unnest(%s::int4[], %s::timestamptz[]) AS wanted(version, moment)
        CROSS JOIN LATERAL (
            SELECT * FROM keys
            WHERE keys.version <= wanted.version AND keys.updated_at <= wanted.moment
            ORDER BY version DESC, updated_at DESC LIMIT %s
        ) AS place ORDER BY version DESC, updated_at DESC
    ) AS place
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {table}
        WHERE id = %s AND updated_at = place.stored_at AND version = place.stored_version LIMIT 1
    ) AS body
"""

# The rows of one kind in a merged timeline, marked with the index of the kind.
_SHARE = """
    (SELECT {kind} AS kind, id, version, updated_at FROM {versions} AS stored
     WHERE {owner} = %s AND stored_at >= %s AND stored_at < %s
       AND updated_at >= %s AND updated_at < %s
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
    UNION ALL SELECT NULL, {kind}, id, version, updated_at FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM page WHERE kind = {kind}))
"""

# All keys of an application, and of the children that name it in any stored version.
_OF_ROOT = "SELECT {kind}, id, version, updated_at FROM {versions} AS stored WHERE id = %s"
_OF_CHILD = """
    SELECT {kind}, id, version, updated_at FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s))
"""


def _of_each_kind(text: str, *, below: bool = False, **words: str) -> list[str]:
    """The statement for each kind of an application. owner: of a version, its application. below:
    of the rows of _BELOW, whose values come first."""
    found = []
    for number, entity in enumerate(ENTITIES):
        if not entity.alone:
            words |= {"kind": str(number), "owner": "product" if entity.parent else "id"}
            if below:
                of = APPLICATION if entity.parent else "id"
                words["versions"] = _below(entity, of, ("updated_at", str(number), "id", "version"))
            found.append(sql(text, entity, **words))
    return found


def _below(entity: Entity, of: str, key: Sequence[str]) -> str:
    """The versions of _BELOW, by this key."""
    ordered = ", ".join(f"{name} DESC" for name in key if not name.isdecimal())
    place = ", ".join(["%s"] * len(key))
    rows = _BELOW.format(
        table=entity.table, of=of, key=f"({', '.join(key)})", place=place, ordered=ordered
    )
    return stored.versions(entity, rows)


def _values_below(of: str, since: datetime, place: Sequence[Any], limit: int) -> list[object]:
    """The values of _BELOW. place: begins with its moment."""
    moment = place[0]
    blocks = [of, moment, _next_day(moment), *place, moment]
    return [of, since, moment, *place, Int4(limit), *blocks]


def _values(place: Place) -> list[Any]:
    moment, kind, id, version = place
    return [moment, Int4(kind), id, Int4(version)]


class Tables:
    """A history.timeline.sources.source.Source."""

    def page(self, query: Query, after: Key, limit: int) -> Read:
        entity, id, filters = query.entity, query.id, query.filters
        since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
        place: tuple[str, ...] = ("updated_at", "version")
        position: list[object] = [after.updated_at, Int4(after.version)]
        moment: datetime | None = after.updated_at
        if query.sort is Sort.VERSION:
            place, position, moment = place[::-1], position[::-1], None
        key = ", ".join(place)
        ordered = ", ".join(f"{name} {query.order.value}" for name in place)
        words = {"by": key, "ordered": ordered, "filters": statements.FILTERS}
        rows: list[object] = []
        if moment and query.order is Order.DESC and not filters.by_row:
            words["versions"] = _below(entity, "id", place)
            below = min(after, Key(-1, until), key=_by_time)
            rows = _values_below(id, since, [below.updated_at, Int4(below.version)], limit)
        sign = "<" if query.order is Order.DESC else ">"
        text = sql(_PAGE, entity, sign=sign, **words)
        bounds = [*_days(since, until, query.order, moment), since, until]
        values = [*bounds, *position, *statements.conditions(filters), Int4(limit)]
        return statements.read(entity, text, [*rows, id, *values, id])

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        found = statements.fetch(sql(_KEYS, entity), [list(ids), LAST.updated_at])
        return {id: its for (_, id), its in _by_entity((entity, *row) for row in found).items()}

    def documents(self, wanted: Mapping[Entity, Sequence[IdKey]]) -> dict[Entity, Documents]:
        kinds = [entity for entity, places in wanted.items() if places]
        asked = [statements.bounded(*_bodies(entity, wanted[entity])) for entity in kinds]
        found: dict[Entity, Documents] = {entity: Documents({}, []) for entity in wanted}
        for entity, each in zip(kinds, statements.together(asked), strict=True):
            read, unread = statements.rows(entity, each)
            found[entity] = Documents({(row.id, row.key): row for row in read}, unread)
        for entity in kinds:
            rows, unread = found[entity]
            known = rows.keys() | set(unread)
            if lacking := [place for place in wanted[entity] if place not in known]:
                more = _from_blocks(entity, lacking)
                rows.update(more.rows)
                unread.extend(place for place in wanted[entity] if place in more.unread)
        return found

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], dict[IdKey, VersionRow]]:
        text = sql(_NEWEST, entity, bodies=around(sql(_UP_TO, entity)))
        numbers, moments = [Int4(key.version) for key in below], [key.updated_at for key in below]
        limits = [Int4(statements.READ_BYTES)] * 2
        keys: list[Key] = []
        found: list[tuple[Any, ...]] = []
        for *body, versions, times in statements.fetch(
            text, [id, *limits, numbers, moments, Int4(count), id]
        ):
            if versions is not None:
                keys = sorted(map(Key, versions, times))
            elif body[0] is not None:
                found.append(tuple(body))
        return keys, {(row.id, row.key): row for row in statements.rows(entity, found).rows}

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        if not entity.alone:
            text = sql(_OWNERS, entity, owner="id" if entity.root else APPLICATION)
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
        sign = "<" if backwards else ">"
        words = {"sign": sign, "order": order.value, "filters": statements.FILTERS}
        rows: list[object] = []
        below = backwards and not filters.by_row
        if below:
            rows = _values_below(
                application, since, _values(min(after, Place(until, -1, "", 0))), limit
            )
        shares = " UNION ALL ".join(_of_each_kind(_SHARE, below=below, **words))
        keys = "".join(_of_each_kind(_KEYS_OF_PAGE))
        text = _MERGED.format(shares=shares, order=order.value, keys=keys)
        bounds = [*_days(since, until, order, after[0]), since, until]
        share = [*rows, application, *bounds, *_values(after)]
        share += [*statements.conditions(filters), Int4(limit)]
        found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
        page = sorted(row for row in found if row[0] is not None)
        rest = ((ENTITIES[kind], *row) for number, kind, *row in found if number is None)
        places = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]
        return places, _by_entity(rest)


def _days(
    since: datetime, until: datetime, order: Order, moment: datetime | None
) -> tuple[datetime, datetime]:
    """The bounds of the rows that have versions from `since` to `until`, and after the moment in
    the order. A block is stored where its newest version is, on the day of them all."""
    if moment is not None:
        if order is Order.DESC:
            until = min(until, moment)
        else:
            since = max(since, moment)
    return since, _next_day(until)


def _next_day(moment: datetime) -> datetime:
    """The first moment of the UTC day after this one."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


def _bodies(entity: Entity, wanted: Sequence[IdKey]) -> tuple[str, list[object]]:
    """The statement that gives these versions as far as a row has their key, and its values."""
    moments = [key.updated_at for _, key in wanted]
    values = [
        [id for id, _ in wanted],
        moments,
        [Int4(key.version) for _, key in wanted],
        *(min(moments), max(moments)),
    ]
    return sql(_BODIES, entity), values


def _from_blocks(entity: Entity, lacking: Sequence[IdKey]) -> Documents:
    """Those of these versions that are in blocks."""
    spans: dict[tuple[str, datetime], list[datetime]] = defaultdict(list)
    for id, key in lacking:
        spans[id, _next_day(key.updated_at)].append(key.updated_at)
    lows = [min(moments) for moments in spans.values()]
    highs = [max(moments) for moments in spans.values()]
    ids, ends = [id for id, _ in spans], [end for _, end in spans]
    limit = Int4(statements.READ_BYTES)
    keys = [
        [id for id, _ in lacking],
        [_microseconds(key.updated_at) for _, key in lacking],
        [Int4(key.version) for _, key in lacking],
    ]
    values: list[object] = [limit, ids, lows, highs, ends, *keys, min(lows), max(ends)]
    found, wanted = Documents({}, []), set(lacking)
    product = "product_instance_id" if entity.parent else "NULL::varchar"
    for *own, moments, versions, source, sources, packed, size in statements.fetch(
        sql(_BLOCKS, entity, product=product), values
    ):
        block = (moments, versions, source, sources, packed, size)
        if packed is None:
            first, last = (moments or own[2:3])[0], own[2]
            found.unread.extend(
                (id, key)
                for id, key in lacking
                if id == own[0] and first <= _microseconds(key.updated_at) <= last
            )
            continue
        for row in statements.unpacked(entity, own, block):
            if (row.id, row.key) in wanted:
                found.rows[row.id, row.key] = row
    return Documents(found.rows, [place for place in found.unread if place not in found.rows])


def _by_time(key: Key) -> tuple[datetime, int]:
    return key.updated_at, key.version


def _microseconds(moment: datetime) -> int:
    return (moment - stored.EPOCH) // timedelta(microseconds=1)


def _by_entity(rows: Iterable[tuple[Any, ...]]) -> dict[Named, list[Key]]:
    """Keys by entity, ascending. rows: kind, id, version and moment."""
    found: dict[Named, list[Key]] = {}
    for entity, id, version, at in rows:
        found.setdefault((entity, id), []).append(Key(version, at))
    for keys in found.values():
        keys.sort()
    return found
