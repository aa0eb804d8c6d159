"""The SQL that reads the *_aud tables; that of a whole application is in members, that of the
search in newest, and that of several applications at once in several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from psycopg.types.numeric import Int4

from history import looks, masking, need_to_know
from history.documents.exactjson import Json
from history.entities import Entity, root
from history.need_to_know import Unknown
from history.timeline.query import Filters, Order, Sort
from history.timeline.sources import homes, memory, old, several, statements
from history.timeline.sources.homes import Within
from history.timeline.sources.statements import (
    FIRST,
    LAST,
    FirstBodies,
    Key,
    Place,
    Read,
    VersionRow,
    sql,
)
from history.timeline.versions import Version, parse

# updated_at is bounded a second time, alone: only then does PostgreSQL leave partitions out.
_BY_TIME = """
    SELECT {columns} FROM {table}
    WHERE id = %s {within} AND updated_at >= %s AND updated_at < %s AND updated_at {sign}= %s
      AND (updated_at, version) {sign} (%s, %s) {filters}
    ORDER BY updated_at {order}, version {order} LIMIT %s
"""
# No index has this order. Only keys are sorted, so that only the shown bodies are read.
_BY_VERSION = """
    SELECT body.* FROM (
        SELECT version, updated_at FROM {table}
        WHERE id = %s {within} AND updated_at >= %s AND updated_at < %s
          AND (version, updated_at) {sign} (%s, %s) {filters}
        ORDER BY version {order}, updated_at {order} LIMIT %s
    ) AS page
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = %s {within} AND updated_at = page.updated_at AND version = page.version LIMIT 1
    ) AS body
    ORDER BY page.version {order}, page.updated_at {order}
"""


def page(
    entity: Entity, id: str, filters: Filters, sort: Sort, order: Order, after: Key, limit: int
) -> Read:
    """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order; fewer
    where their documents are larger than READ_BYTES. The path filter is not applied here."""
    found = _page(entity, id, filters, sort, order, after, limit)
    if not found.rows:
        confine(entity, [id])
    return Read(for_reader(entity, found.rows), found.unread)


def _page(
    entity: Entity, id: str, filters: Filters, sort: Sort, order: Order, after: Key, limit: int
) -> Read:
    """The same, whoever reads."""
    where = homes.within(entity, [id])
    if where.several:
        keys = several.page(entity, id, where, filters, sort, order, after, limit)
        return several.first_bodies(entity, [(id, key) for key in keys], where)
    values = statements.conditions(filters)
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    sign = "<" if order is Order.DESC else ">"
    words = {
        "sign": sign,
        "order": order.value,
        "filters": statements.FILTERS,
        "within": where.text,
    }
    version, moment = Int4(after.version), after.updated_at
    named = [id, *where.values]
    if sort is Sort.UPDATED_AT:
        text = sql(_BY_TIME, entity, **words)
        bounds = [*named, since, until, moment, moment, version, *values, Int4(limit)]
    else:
        if not filters.by_row:  # the keys come from the index alone, as long as nothing else counts
            words, values = {**words, "filters": ""}, []
        text = sql(_BY_VERSION, entity, **words)
        bounds = [*named, since, until, version, moment, *values, Int4(limit), *named]
    return statements.read(entity, text, bounds)


_KEYS = """
    SELECT id, version, updated_at FROM {table} WHERE id = ANY(%s) {within} AND updated_at <= %s
"""


def keys(
    entity: Entity, ids: Collection[str], until: datetime | None = None
) -> dict[str, list[Key]]:
    """The keys of all versions of these entities (up to a moment, which is included), ascending.
    An entity that has none is not among the answers."""
    ahead = memory.ahead().keys
    if until is None and all((entity.name, id) in ahead for id in ids):
        found = {id: ahead[entity.name, id] for id in ids if ahead[entity.name, id]}
    else:
        found = _keys(entity, ids, until or LAST.updated_at)
    if need_to_know.applies():
        confine(entity, found)
    return {id: sorted(its) for id, its in found.items()}


def _keys(entity: Entity, ids: Collection[str], until: datetime) -> dict[str, list[Key]]:
    where = homes.within(entity, ids)
    text = sql(_KEYS, entity, within=where.text)
    found: dict[str, list[Key]] = {}
    for id, *key in homes.fetch(where, text, [list(ids), *where.values, until]):
        found.setdefault(id, []).append(Key(*key))
    return {id: list(set(its)) for id, its in found.items()} if where.several else found


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


def first_bodies(
    entity: Entity, wanted: Sequence[Place]
) -> tuple[dict[Place, VersionRow], Sequence[Place]]:
    """The first of the versions with these ids and keys, as far as they are (still) in the store:
    at least one, and as many as READ_BYTES allow. The second part: those that were not read yet."""
    found, unread = _stored(entity, wanted)
    return _by_place(for_reader(entity, list(found.values()))), unread


def _stored(
    entity: Entity, wanted: Sequence[Place]
) -> tuple[dict[Place, VersionRow], Sequence[Place]]:
    """The same, whoever reads."""
    read, unread = _first_bodies(entity, wanted)
    return _by_place(read), unread


def _by_place(found: Iterable[VersionRow]) -> dict[Place, VersionRow]:
    return {(row.id, row.key): row for row in found}


def _first_bodies(entity: Entity, wanted: Sequence[Place]) -> Read:
    ahead = memory.ahead().rows
    known = [row for place in wanted if (row := ahead.get((entity.name, place))) is not None]
    left = [place for place in wanted if (entity.name, place) not in ahead]
    if not left:
        return Read(known, [])
    where = homes.pinned(entity, {id for id, _ in left})
    if where.several:
        found = several.first_bodies(entity, left, where)
    else:
        found = statements.read(entity, *statement_of_bodies(entity, left, where))
    return Read([*known, *found.rows], found.unread)


def statement_of_bodies(
    entity: Entity, wanted: Sequence[Place], where: Within
) -> tuple[str, list[object]]:
    """The statement that gives these versions, for statements.read, and its values."""
    moments = [key.updated_at for _, key in wanted]
    values = [*statements.places(wanted), min(moments), max(moments), *where.values]
    return sql(_BODIES, entity, within=where.text), values


def bodies(
    entity: Entity, wanted: Iterable[Place], first: FirstBodies = first_bodies
) -> dict[Place, VersionRow]:
    """All versions with these ids and keys that are (still) where `first` reads."""
    found: dict[Place, VersionRow] = {}
    left = list(wanted)
    most = len(left)
    while left:
        read, unread = first(entity, left[:most])
        left = [*unread, *left[most:]]
        most = max(1, 2 * len(read))
        found |= read
    return found


def for_reader(entity: Entity, found: list[VersionRow]) -> list[VersionRow]:
    """The rows as the present reader may see them. Every document passes through here before
    anything is computed from it. Raises what need_to_know.permit raises."""
    if not entity.alone:
        applications = dict.fromkeys(row.product_instance_id or row.id for row in found)
        looks.read(applications)
        need_to_know.permit(applications, root_documents)
    mask = masking.mask_of(entity)
    if mask is None:
        return found
    return [row._replace(data=mask(row.id, row.data)) for row in found]


# The type first: PostgreSQL need not read the document where it is no DELETE.
_DOCUMENTS = """
    SELECT body.* FROM unnest(%s::varchar[]) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = wanted.id {within} AND (type <> 2 OR data <> 'null'::jsonb)
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS body
"""


def newest_documents(entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """Of each of these entities the newest version that has a document: a DELETE may have none."""
    return for_reader(entity, _newest_documents(entity, ids))


def _newest_documents(entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """The same, whoever reads."""
    where = homes.pinned(entity, ids)
    if where.several:
        keys = several.newest(entity, ids, where, with_document=True)
        return list(bodies(entity, [(id, key) for id, (key, _) in keys.items()], _stored).values())
    found: list[VersionRow] = []
    left = list(ids)
    while left:
        text = sql(_DOCUMENTS, entity, within=where.text)
        read = statements.read(entity, text, [left, *where.values])
        found += read.rows
        left = [id for id, _ in read.unread]
    return found


def root_documents(applications: Collection[str]) -> Mapping[str, Json | Unknown]:
    """The newest document of each of these applications, not masked: for the rule of need-to-know,
    which decides before anything is shown. Without those of which neither the store nor the old
    service has one."""
    found: dict[str, Json | Unknown] = {
        row.id: parse(row.data) for row in _newest_documents(root(), applications)
    }
    return {**old.root_documents(set(applications) - found.keys()), **found}


_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%s) {within}"


def owners(entity: Entity, ids: Iterable[str]) -> dict[str, set[str]]:
    """The applications that any stored version of each of these entities belongs to: none where the
    kind stands alone."""
    found: dict[str, set[str]] = {}
    if entity.alone:
        return found
    ids = list(ids)
    where = homes.within(entity, ids)
    text = sql(_OWNERS, entity, owner=homes.column(entity), within=where.text)
    for id, application in homes.fetch(where, text, [ids, *where.values]):
        found.setdefault(id, set()).add(application)
    return found


def confine(entity: Entity, ids: Iterable[str]) -> set[str]:
    """Refuse an answer about these entities, as far as they exist, unless the present reader may
    open them: how many versions there are, or that none fits, says something of a document too.
    Returns the applications that they belong to."""
    ids = list(ids)
    of = [*owners(entity, ids).values(), old.owners(entity, ids)]
    found = {each for theirs in of for each in theirs}
    need_to_know.permit(found, root_documents)
    return found


_ANY = "SELECT 1 FROM {table} WHERE id = %s {within} LIMIT 1"


def exists(entity: Entity, id: str) -> bool:
    """Whether the store has any version of this entity."""
    confine(entity, [id])
    where = homes.within(entity, [id])
    text = sql(_ANY, entity, within=where.text)
    return bool(homes.fetch(where, text, [id, *where.values]))


# Entity, id and number of a version.
Numbered = tuple[Entity, str, int]

_TWICE = """
    SELECT id, version, array_agg(updated_at ORDER BY updated_at) FROM {table}
    WHERE id = ANY(%s) {within} AND version = ANY(%s) GROUP BY id, version HAVING count(*) > 1
"""
# A version that a child has in two applications is one.
_SEVERAL = """
    SELECT id, version, array_agg(DISTINCT updated_at ORDER BY updated_at) FROM {table}
    WHERE id = ANY(%s) {within} AND version = ANY(%s)
    GROUP BY id, version HAVING count(DISTINCT updated_at) > 1
"""


def given_twice(
    versions: Iterable[Version], *, whole: bool
) -> Mapping[Numbered, tuple[datetime, ...]]:
    """Those numbers of these versions that a producer gave more than once, with the times of all
    versions that have them, the oldest first. whole: these are all versions; otherwise one query
    for each kind."""
    if whole:
        return _among(versions)
    ids: defaultdict[Entity, set[str]] = defaultdict(set)
    numbers: defaultdict[Entity, set[int]] = defaultdict(set)
    for version in versions:
        ids[version.entity].add(version.id)
        numbers[version.entity].add(version.version)
    found: dict[Numbered, tuple[datetime, ...]] = {}
    for entity in ids:
        where = homes.within(entity, ids[entity])
        text = sql(_SEVERAL if where.several else _TWICE, entity, within=where.text)
        values = [sorted(ids[entity]), *where.values, sorted(numbers[entity])]
        found |= {
            (entity, id, number): tuple(times)
            for id, number, times in homes.fetch(where, text, values)
        }
    return found


def _among(versions: Iterable[Version]) -> Mapping[Numbered, tuple[datetime, ...]]:
    times: defaultdict[Numbered, list[datetime]] = defaultdict(list)
    for each in versions:
        times[each.entity, each.id, each.version].append(each.updated_at)
    return {number: tuple(sorted(found)) for number, found in times.items() if len(found) > 1}
