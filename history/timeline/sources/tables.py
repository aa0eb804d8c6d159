"""The source of what this installation stores: the *_aud tables, on one server or on a cluster;
and lists of its entities."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from itertools import chain
from typing import Any, NamedTuple

from psycopg.types.numeric import Int4

from history.blocks import stored
from history.database.prepared import Values
from history.entities import CHILDREN, ENTITIES, PARTS, ROOT, Entity
from history.timeline.query import Order, Query, Sort
from history.timeline.sources import statements
from history.timeline.sources.statements import Fields, sql
from history.versions import (
    FIRST,
    LAST,
    Damaged,
    Key,
    Located,
    Named,
    Newest,
    Place,
    Read,
    VersionRow,
)


def _values(query: Query, after: Place | None, limit: int, *, by_time: bool = True) -> Values:
    """The values of a page after this place; None: of the first one."""
    filters, order = query.filters, query.order
    start = LAST if order is Order.DESC else FIRST
    after = after or Place(start.updated_at, -1, "", start.version)
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
    return {
        "id": query.id,
        "limit": Int4(limit),
        # A block is stored where its newest version is, on the day of them all.
        "since": since,
        "until": until,
        "low": low,
        "high": _next_day(high),
        **place,
        # The type as text, which has no other type than NULL.
        "author": filters.author,
        "client_id": filters.client_id,
        "type": None if filters.type is None else str(filters.type.value),
    }


@dataclass(frozen=True, slots=True)
class Tables:
    """What a source is asked: keys and rows of one kind or one application. No answer is masked,
    and no question refused. fields: if set, large documents are read only as far as these fields
    need; who asks takes them out of the others. Raises DamagedBlockError for what cannot be read;
    where `damaged` is given, that is noted there, and left out."""

    fields: Fields = None
    damaged: Damaged | None = None

    def page(self, entity: Entity, query: Query, after: Place | None, limit: int) -> Read:
        """Up to `limit` versions after a place (None to begin with), in display order; fewer where
        their documents are larger than READ_BYTES. The path filter is not applied."""
        by_time = query.sort is Sort.UPDATED_AT
        below = by_time and query.order is Order.DESC and not query.filters.by_row
        text = statements.of_entity(entity, query.sort, query.order, below)
        values = _values(query, after, limit, by_time=by_time)
        return statements.read(entity, text, values, self.fields, self.damaged)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        """The keys of all versions of these entities, ascending. One that has none is not there."""
        values = {"ids": list(ids), "last": LAST.updated_at}
        found = statements.fetch(sql(statements.KEYS, entity), values)
        keys = self._by_entity((entity, *row) for row in found)
        return {id: its for (_, id), its in keys.items()}

    def documents(self, wanted: Iterable[Located]) -> Read:
        """The first of these versions, as far as they are (still) there: of each kind at least
        one, and as many as READ_BYTES allow."""
        kinds: dict[Entity, list[Located]] = defaultdict(list)
        for place in wanted:
            kinds[place[0]].append(place)
        read = Read([], [])
        # The third time: a day may be unpacked after it was asked for plain rows.
        for blocks in (False, True, False):
            known = set(read.places)
            left = {
                entity: lacking
                for entity, places in kinds.items()
                if (lacking := [place for place in places if place not in known])
            }
            asked = [
                statements.bounded(
                    statements.documents(entity, blocks), _places(places, blocks), self.fields
                )
                for entity, places in left.items()
            ]
            for entity, found in zip(left, statements.together(asked), strict=True):
                rows, unread = statements.rows(entity, found, self.damaged)
                read.rows.extend(rows)
                read.unread.extend(unread)
        return read

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], list[VersionRow]]:
        """All keys of an entity, ascending, and its highest versions up to each of these numbers
        and moments, this many of each, as far as one statement may bring them."""
        bodies, values = statements.bounded(
            sql(statements.UP_TO, entity),
            {
                "id": id,
                "numbers": [Int4(key.version) for key in below],
                "moments": [key.updated_at for key in below],
                "count": Int4(count),
            },
            self.fields,
        )
        keys: list[Key] = []
        found: list[tuple[Any, ...]] = []
        for *body, numbers, moments, damaged_at in statements.fetch(
            sql(statements.NEWEST, entity, bodies=bodies), values
        ):
            if damaged_at is not None:
                error = stored.damaged(entity.table, id, damaged_at)
                statements.note_damage(self.damaged, (entity, id, None), error)
                return [], []
            if numbers is not None:
                keys = sorted(map(Key, numbers, moments))
            elif body[0] is not None:
                found.append(tuple(body))
        # Those of them that are asked for are read again, and are an error then.
        return keys, statements.rows(entity, found, {}).rows

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        """The applications that any version of each of these belongs to; none where the kind
        stands alone."""
        found: dict[str, set[str]] = {}
        if not entity.alone:
            text = sql(statements.OWNERS, entity)
            for id, application in statements.fetch(text, {"ids": list(ids)}):
                found.setdefault(id, set()).add(application)
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        """The application and the children that name it in any version: of each the keys of all
        versions, ascending."""
        texts = [statements.OF_ROOT if kind.root else statements.OF_CHILD for kind in PARTS]
        text = " UNION ALL ".join(map(sql, texts, PARTS))
        found = statements.fetch(text, {"id": application})
        return self._by_entity((ENTITIES[kind], *row) for kind, *row in found)

    def of_application(
        self, query: Query, after: Place | None, limit: int
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        """Up to `limit` versions of an application and its children after a place (None to begin
        with), in display order; and of each entity among them the keys of all versions."""
        below = query.order is Order.DESC and not query.filters.by_row
        text = statements.of_application(query.order, below)
        found = statements.fetch(text, _values(query, after, limit))
        page = sorted(row for row in found if row[0] is not None)
        rest = ((ENTITIES[kind], *row) for number, kind, *row in found if number is None)
        places = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at, _ in page]
        return places, self._by_entity(rest)

    def _by_entity(self, rows: Iterable[tuple[Any, ...]]) -> dict[Named, list[Key]]:
        """Keys by entity, ascending; none of an entity of which not all are known.

        Args:
            rows: kind, id, version, moment, and whether these are of a row that is not as it was
                written.
        """
        found: dict[Named, list[Key]] = {}
        broken: dict[Named, datetime] = {}
        for entity, id, version, at, damaged in rows:
            found.setdefault((entity, id), []).append(Key(version, at))
            if damaged:
                broken[entity, id] = at
        for (entity, id), at in broken.items():
            error = stored.damaged(entity.table, id, at)
            statements.note_damage(self.damaged, (entity, id, None), error)
            del found[entity, id]
        for keys in found.values():
            keys.sort()
        return found


def _next_day(moment: datetime) -> datetime:
    """The first moment of the UTC day after this one."""
    if moment >= LAST.updated_at - timedelta(days=1):
        return LAST.updated_at
    return datetime.combine(moment.astimezone(UTC) + timedelta(days=1), time(), UTC)


def _places(wanted: Sequence[Located], blocks: bool) -> Values:
    """The values of statements.documents for these versions."""
    moments = [key.updated_at for *_, key in wanted]
    values: dict[str, object] = {
        "ids": [id for _, id, _ in wanted],
        "moments": moments,
        "numbers": [Int4(key.version) for *_, key in wanted],
        "first": min(moments),
        "last": max(moments),
    }
    if blocks:
        spans: dict[tuple[str, datetime], list[datetime]] = defaultdict(list)
        for _, id, key in wanted:
            spans[id, _next_day(key.updated_at)].append(key.updated_at)
        ids, ends = zip(*spans, strict=True)
        values |= {
            "of": list(ids),
            "lows": [min(each) for each in spans.values()],
            "highs": [max(each) for each in spans.values()],
            "ends": list(ends),
            "end": max(ends),
        }
    return values


# Lists of the store alone: history.timeline.search leaves out what the reader may not see.

_NEWEST_KEYS = """
    SELECT DISTINCT ON (id) id, version, updated_at, {owner} FROM {table} WHERE id = ANY(%(ids)s)
    ORDER BY id, version DESC, updated_at DESC
"""


def newest_keys(entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
    """The newest version of each of these entities that the store has."""
    if not ids:
        return {}
    found = statements.fetch(sql(_NEWEST_KEYS, entity), {"ids": list(ids)})
    return {id: Newest(Key(version, moment), whose) for id, version, moment, whose in found}


# For each application the time of the newest version of a kind that names it.
_NEWEST_CHILD = """
    SELECT product_instance_id, max(updated_at) FROM {table}
    WHERE product_instance_id = ANY(%(ids)s) GROUP BY product_instance_id
"""


class First(NamedTuple):
    """What a search asks first. newest: the newest version of each entity with one of the ids.
    children: of each application with one of them that is not among these itself, the time of the
    newest version of a child.
    documents: rows of search_key: value, name, kind, id."""

    newest: dict[Entity, dict[str, Key]]
    children: dict[str, datetime]
    documents: Sequence[tuple[Any, ...]]


_WITH_VALUE = """
    SELECT value, name, entity, id FROM (
        SELECT value, name, entity, id, row_number() OVER (
            PARTITION BY value ORDER BY day DESC, name, entity, id) AS place
        FROM search_key WHERE value = ANY(%(texts)s) AND entity || ' ' || name = ANY(%(keys)s)
    ) AS key WHERE place <= %(limit)s
"""


def first(texts: Sequence[str], ids: Sequence[str], keys: Sequence[str], limit: int) -> First:
    """Ask what has these ids, and which documents these values, at most `limit` for each. ids:
    those of the texts that can be one. keys: names of business keys, each with its kind."""
    found = statements.together(
        [
            *((sql(_NEWEST_KEYS, entity, owner="id"), {"ids": list(ids)}) for entity in ENTITIES),
            (_WITH_VALUE, {"texts": list(texts), "keys": list(keys), "limit": Int4(limit)}),
        ]
    )
    newest = {
        entity: {id: Key(version, moment) for id, version, moment, _ in rows}
        for entity, rows in zip(ENTITIES, found, strict=False)
    }
    absent = [id for id in ids if ROOT is not None and id not in newest[ROOT]]
    return First(newest, newest_children(absent), found[-1])


def newest_children(applications: Collection[str]) -> dict[str, datetime]:
    """Of each application that has children the time of their newest version."""
    if not applications or not CHILDREN:
        return {}
    latest: dict[str, datetime] = {}
    asked = [(sql(_NEWEST_CHILD, entity), {"ids": list(applications)}) for entity in CHILDREN]
    for id, moment in chain.from_iterable(statements.together(asked)):
        latest[id] = max(moment, latest.get(id, moment))
    return latest


_CHILDREN = """
    SELECT DISTINCT id, product_instance_id FROM {table} WHERE product_instance_id = ANY(%(ids)s)
"""


def children(applications: Collection[str]) -> dict[Named, set[str]]:
    """Return every child that names one of these applications in any version, with the applications
    of these that it names."""
    found: dict[Named, set[str]] = {}
    asked = [(sql(_CHILDREN, entity), {"ids": list(applications)}) for entity in CHILDREN]
    for entity, rows in zip(CHILDREN, statements.together(asked), strict=True):
        for id, application in rows:
            found.setdefault((entity, id), set()).add(application)
    return found


# Only keys are sorted. The type first: PostgreSQL need not read the document where it is no DELETE.
# The newest version of a block is its row, and has a document.
_NEWEST_DOCUMENTS = """
    SELECT {columns} FROM {table} JOIN (
        SELECT DISTINCT ON (id) id, version, updated_at FROM {table}
        WHERE id = ANY(%(ids)s) AND (packed IS NOT NULL OR type <> 2 OR data <> 'null'::jsonb)
        ORDER BY id, version DESC, updated_at DESC
    ) AS newest USING (id, updated_at, version) OFFSET 0
"""


def newest_documents(
    entity: Entity,
    ids: Collection[str],
    fields: Fields = None,
    damaged: Damaged | None = None,
) -> list[VersionRow]:
    """Of each of these entities the newest version that has a document: a DELETE may have none.
    fields, damaged: as in Tables."""
    found: list[VersionRow] = []
    left = list(ids)
    while left:
        text, values = sql(_NEWEST_DOCUMENTS, entity), {"ids": left}
        read = statements.read(entity, text, values, fields, damaged)
        found += read.rows
        left = [id for _, id, _ in read.unread]
    return found


# Of the two rows that were written last. What is compressed to little is measured whole.
_NEWEST_BYTES = """
    SELECT coalesce(max(coalesce(unpacked, CASE WHEN stored > %(most)s THEN stored
        ELSE octet_length(data::text) END)), 0)
    FROM (
        SELECT unpacked, data, pg_column_size(data) AS stored FROM {table} WHERE id = %(id)s
        ORDER BY updated_at DESC LIMIT 2
    ) AS newest
"""


def newest_bytes(named: Collection[Named], most: int) -> dict[Named, int]:
    """Return how large the documents of the newest versions of each of these entities are; for one
    that has larger ones than `most`, any number above it. No large document is read."""
    asked = [(sql(_NEWEST_BYTES, entity), {"id": id, "most": Int4(most)}) for entity, id in named]
    found = statements.together(asked)
    return {entity: int(size) for entity, [(size,)] in zip(named, found, strict=True)}
