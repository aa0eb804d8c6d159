"""The source of what this installation stores: the *_aud tables, on one server or on a cluster."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import cache
from typing import Any

from psycopg.types.numeric import Int4

from history.blocks import stored
from history.entities import ENTITIES, PARTS, Entity
from history.timeline.query import ApplicationQuery, Filters, Order, Query, Sort
from history.timeline.row import FIRST, LAST, Key, Located, Named, Place, Read, VersionRow
from history.timeline.sources import statements
from history.timeline.sources.statements import Statement, Values, sql

# Only keys are sorted, so that only the shown bodies are read. stored_at is bounded alone, for only
# then does PostgreSQL leave partitions out.
_PAGE = """
    SELECT page.*, body.data, body.packed, body.unpacked FROM (
        SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
            stored_at, stored_version
        FROM {versions} AS stored
        WHERE id = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
          AND updated_at >= %(since)s AND updated_at < %(until)s AND ({key}) {sign} ({after})
          {filters}
        ORDER BY {ordered} LIMIT %(limit)s
    ) AS page
    CROSS JOIN LATERAL (
        SELECT data, packed, unpacked FROM {table}
        WHERE id = %(id)s AND updated_at = page.stored_at AND version = page.stored_version LIMIT 1
    ) AS body
    ORDER BY {ordered}
"""

# The rows that have the newest versions below a place, where nothing else is asked of these: as
# many rows that are below it, and the blocks of its day that only begin below it.
_BELOW = """(
    (SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(since)s
        AND updated_at <= %(after_updated_at)s AND ({key}) < ({after})
        ORDER BY {ordered} LIMIT %(limit)s)
    UNION ALL
    SELECT * FROM {table} WHERE {owner} = %(id)s AND updated_at >= %(after_updated_at)s
        AND updated_at < %(high)s AND packed IS NOT NULL AND ({key}) >= ({after})
        AND 'epoch'::timestamptz + moments[1] * interval '1 microsecond' <= %(after_updated_at)s
)"""

_KEYS = """
    SELECT id, version, updated_at FROM {versions} AS stored
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
        AND high >= 'epoch'::timestamptz + moments[1] * interval '1 microsecond'
    WHERE updated_at >= %(first)s AND updated_at < %(end)s
)"""
# All of a block together, so that it is sent once.
_BLOCK_BY_BLOCK = "min(place) OVER (PARTITION BY id, stored_at, stored_version), place"

_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%(ids)s)"

# The keys are one row: of 10,000 rows with all columns most would be empty.
_NEWEST = """
    WITH keys AS MATERIALIZED (
        SELECT version, updated_at, type, client_id, author, product, id, in_block, position,
            stored_at, stored_version
        FROM {versions} AS stored WHERE id = %(id)s
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
    (SELECT {kind} AS kind, id, version, updated_at FROM {versions} AS stored
     WHERE {whose} = %(id)s AND stored_at >= %(low)s AND stored_at < %(high)s
       AND updated_at >= %(since)s AND updated_at < %(until)s AND ({key}) {sign} ({after}) {filters}
     ORDER BY {ordered} LIMIT %(limit)s)
"""

# With the keys of all versions of what is on the page: which version comes before each of them.
_MERGED = """
    WITH page AS MATERIALIZED (
        SELECT row_number() OVER () AS place, ordered.* FROM (
            SELECT kind, id, version, updated_at FROM ({shares}) AS merged
            ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %(limit)s
        ) AS ordered
    )
    SELECT place, kind, id, version, updated_at FROM page {keys}
"""

_KEYS_OF_PAGE = """
    UNION ALL SELECT NULL, {kind}, id, version, updated_at FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM page WHERE kind = {kind}))
"""

# All keys of an application, and of the children that name it in any stored version.
_OF_ROOT = "SELECT {kind}, id, version, updated_at FROM {versions} AS stored WHERE id = %(id)s"
_OF_CHILD = """
    SELECT {kind}, id, version, updated_at FROM {versions} AS stored
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %(id)s))
"""


@cache
def _of_entity(entity: Entity, sort: Sort, order: Order, below: bool) -> str:
    """The statement of a page. below: of the rows of _BELOW."""
    names = ["updated_at", "version"] if sort is Sort.UPDATED_AT else ["version", "updated_at"]
    words = _order(names, order)
    if below:
        rows = sql(_BELOW, entity, **words | {"owner": "id"})
        words["versions"] = stored.versions(entity, rows)
    return sql(_PAGE, entity, filters=statements.FILTERS, **words)


@cache
def _of_application(order: Order, below: bool) -> str:
    """The statement of a page of an application. below: as above."""
    shares, keys = [], []
    for entity in PARTS:
        kind, whose = str(ENTITIES.index(entity)), "product" if entity.parent else "id"
        words = _order(Place._fields, order, kind)
        if below:
            words["versions"] = stored.versions(entity, sql(_BELOW, entity, **words))
        filters = statements.FILTERS
        shares.append(sql(_SHARE, entity, kind=kind, whose=whose, filters=filters, **words))
        keys.append(sql(_KEYS_OF_PAGE, entity, kind=kind))
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


def _values(
    id: str, filters: Filters, order: Order, after: Place, limit: int, *, by_time: bool = True
) -> Values:
    """The values of a page after this place."""
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    low, high = since, until
    if by_time and order is Order.DESC:
        after = min(after, Place(until, -1, "", -1))
        high = after.updated_at
    elif by_time:
        low = max(since, after.updated_at)
    place = {
        f"after_{name}": Int4(value) if isinstance(value, int) else value
        for name, value in after._asdict().items()
    }
    # A block is stored where its newest version is, on the day of them all.
    bounds = {"since": since, "until": until, "low": low, "high": _next_day(high)}
    return {"id": id, "limit": Int4(limit), **bounds, **place, **statements.conditions(filters)}


class Tables:
    """What a source is asked: keys and rows of one kind or one application. No answer is masked,
    and no question refused."""

    def page(self, query: Query, after: Key, limit: int) -> Read:
        """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order;
        fewer where their documents are larger than READ_BYTES. The path filter is not applied."""
        filters, order, by_time = query.filters, query.order, query.sort is Sort.UPDATED_AT
        below = by_time and order is Order.DESC and not filters.by_row
        text = _of_entity(query.entity, query.sort, order, below)
        place = Place(after.updated_at, 0, "", after.version)
        values = _values(query.id, filters, order, place, limit, by_time=by_time)
        return statements.read(query.entity, text, values)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        """The keys of all versions of these entities, ascending. One that has none is not there."""
        values = {"ids": list(ids), "last": LAST.updated_at}
        found = statements.fetch(sql(_KEYS, entity), values)
        return {id: its for (_, id), its in _by_entity((entity, *row) for row in found).items()}

    def documents(self, wanted: Iterable[Located]) -> Read:
        """The first of these versions, as far as they are (still) there: of each kind at least
        one, and as many as READ_BYTES allow."""
        kinds: dict[Entity, list[Located]] = defaultdict(list)
        for place in wanted:
            kinds[place[0]].append(place)
        read = Read([], [])
        for some in (_by_row, _by_block):
            known = set(read.places)
            left = {
                entity: lacking
                for entity, places in kinds.items()
                if (lacking := [place for place in places if place not in known])
            }
            asked = [statements.bounded(*some(*each)) for each in left.items()]
            for entity, found in zip(left, statements.together(asked), strict=True):
                rows, unread = statements.rows(entity, found)
                read.rows.extend(rows)
                read.unread.extend(unread)
        return read

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], list[VersionRow]]:
        """All keys of an entity, ascending, and its highest versions up to each of these numbers
        and moments, this many of each, as far as one statement may bring them."""
        bodies, values = statements.bounded(
            sql(_UP_TO, entity),
            {
                "id": id,
                "numbers": [Int4(key.version) for key in below],
                "moments": [key.updated_at for key in below],
                "count": Int4(count),
            },
        )
        keys: list[Key] = []
        found: list[tuple[Any, ...]] = []
        for *body, numbers, moments in statements.fetch(
            sql(_NEWEST, entity, bodies=bodies), values
        ):
            if numbers is not None:
                keys = sorted(map(Key, numbers, moments))
            elif body[0] is not None:
                found.append(tuple(body))
        return keys, statements.rows(entity, found).rows

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        """The applications that any version of each of these belongs to; none where the kind
        stands alone."""
        found: dict[str, set[str]] = {}
        if not entity.alone:
            for id, application in statements.fetch(sql(_OWNERS, entity), {"ids": list(ids)}):
                found.setdefault(id, set()).add(application)
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        """The application and the children that name it in any version: of each the keys of all
        versions, ascending."""
        texts = [
            sql(_OF_ROOT if entity.root else _OF_CHILD, entity, kind=str(ENTITIES.index(entity)))
            for entity in PARTS
        ]
        found = statements.fetch(" UNION ALL ".join(texts), {"id": application})
        return _by_entity((ENTITIES[kind], *row) for kind, *row in found)

    def of_application(
        self, query: ApplicationQuery, after: Place | None, limit: int
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        """Up to `limit` versions of an application and its children after a place (None to begin
        with), in display order; and of each entity among them the keys of all versions."""
        filters, order = query.filters, query.order
        backwards = order is Order.DESC
        start = LAST.updated_at if backwards else FIRST.updated_at
        values = _values(query.id, filters, order, after or Place(start, -1, "", -1), limit)
        text = _of_application(order, backwards and not filters.by_row)
        found = statements.fetch(text, values)
        page = sorted(row for row in found if row[0] is not None)
        rest = ((ENTITIES[kind], *row) for number, kind, *row in found if number is None)
        places = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]
        return places, _by_entity(rest)


def _next_day(moment: datetime) -> datetime:
    """The first moment of the UTC day after this one."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


@cache
def _documents(entity: Entity, blocks: bool) -> str:
    rows, ordered = sql(_BY_ROW, entity), "place"
    if blocks:
        rows, ordered = stored.versions(entity, sql(_BY_BLOCK, entity)), _BLOCK_BY_BLOCK
    return sql(_DOCUMENTS, entity, rows=rows, ordered=ordered)


def _by_row(entity: Entity, wanted: Sequence[Located]) -> Statement:
    """The statement that gives these versions as far as a row has their key."""
    values = _keys(wanted)
    moments = [key.updated_at for *_, key in wanted]
    values |= {"first": min(moments), "last": max(moments)}
    return _documents(entity, blocks=False), values


def _by_block(entity: Entity, wanted: Sequence[Located]) -> Statement:
    """The statement that gives those of these versions that are in blocks."""
    spans: dict[tuple[str, datetime], list[datetime]] = defaultdict(list)
    for _, id, key in wanted:
        spans[id, _next_day(key.updated_at)].append(key.updated_at)
    ids, ends = zip(*spans, strict=True)
    lows = [min(moments) for moments in spans.values()]
    values = _keys(wanted) | {
        "of": list(ids),
        "lows": lows,
        "highs": [max(moments) for moments in spans.values()],
        "ends": list(ends),
        "first": min(lows),
        "end": max(ends),
    }
    return _documents(entity, blocks=True), values


def _keys(wanted: Sequence[Located]) -> dict[str, object]:
    return {
        "ids": [id for _, id, _ in wanted],
        "moments": [key.updated_at for *_, key in wanted],
        "numbers": [Int4(key.version) for *_, key in wanted],
    }


def _by_entity(rows: Iterable[tuple[Any, ...]]) -> dict[Named, list[Key]]:
    """Keys by entity, ascending. rows: kind, id, version and moment."""
    found: dict[Named, list[Key]] = {}
    for entity, id, version, at in rows:
        found.setdefault((entity, id), []).append(Key(version, at))
    for keys in found.values():
        keys.sort()
    return found
