"""The SQL that reads the *_aud tables; that of the search is in newest.

Every statement is prepared and keeps one shape whatever is filtered, because planning a query
over a hundred partitions costs more than running it. A bound that is not given is infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from psycopg.types.numeric import Int4

from history import looks, masking, need_to_know, prepared
from history.entities import ENTITIES, PARTS, Entity, root
from history.exactjson import Json
from history.need_to_know import Unknown
from history.record import MAX_VERSION
from history.timeline import old
from history.timeline.bounded import around
from history.timeline.cursor import cursor
from history.timeline.query import Filters, Order, Sort
from history.timeline.recovered import Recovered
from history.timeline.versions import parse


class Key(NamedTuple):
    """Identifies a version of one entity; ordered by version number. Two keys with one number
    exist only where a producer gave the number twice."""

    version: int
    updated_at: datetime


# Before and after every version. Real moments and not infinity: a parameter of one type all the
# time means one prepared statement.
FIRST = Key(-1, datetime.min.replace(tzinfo=UTC))
LAST = Key(MAX_VERSION, datetime.max.replace(tzinfo=UTC))


class VersionRow(NamedTuple):
    """One version. `data` is the snapshot as JSON text in UTF-8. old: of the old service.
    recovered: None for one that came from Kafka."""

    version: int
    updated_at: datetime
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    data: bytes
    id: str
    old: bool = False
    recovered: Recovered | None = None

    @property
    def key(self) -> Key:
        return Key(self.version, self.updated_at)


# Identifies a version of any entity of one kind.
Place: TypeAlias = tuple[str, Key]
# Reads as first_bodies does.
FirstBodies: TypeAlias = Callable[
    [Entity, Sequence[Place]], tuple[dict[Place, VersionRow], Sequence[Place]]
]


class Read(NamedTuple):
    """The rows that a statement found. unread: the places of those whose documents are too large to
    be read together with these."""

    rows: list[VersionRow]
    unread: list[Place]


# Documents that one statement brings; the first one may be larger.
READ_BYTES = 4 * 1024 * 1024


def fetch(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
    """All rows of a prepared statement."""
    with cursor() as opened:
        return prepared.run(opened, statement, values)


def _read(entity: Entity, statement: str, values: Sequence[object]) -> Read:
    """The rows of a statement, from the first one on, of which the documents may be read now."""
    text = around(statement, entity.table)
    found = fetch(text, [Int4(READ_BYTES), Int4(READ_BYTES), *values])
    rows = [
        VersionRow._make([*row, False, None if source is None else Recovered(source, at)])
        for *row, source, at in found
    ]
    read = [row for row in rows if row.data is not None]
    unread = [(row.id, row.key) for row in rows if row.data is None]
    return Read(read, unread)


@cache
def sql(text: str, entity: Entity, **parts: str) -> str:
    """A statement with the entity's table and columns and the given words put in."""
    product = "NULL::varchar" if entity.parent is None else "product_instance_id"
    columns = f"version, updated_at, type, client_id, author, {product} AS product, data, id"
    return text.format(table=entity.table, columns=columns, **parts)


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
# In every statement: otherwise each combination of filters is one more prepared statement.
_FILTERS = "AND (%s OR author = %s) AND (%s OR client_id = %s) AND (%s OR type = %s)"


def page(
    entity: Entity, id: str, filters: Filters, sort: Sort, order: Order, after: Key, limit: int
) -> Read:
    """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order; fewer
    where their documents are larger than READ_BYTES. The path filter is not applied here."""
    values = _conditions(filters)
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    sign = "<" if order is Order.DESC else ">"
    words = {"sign": sign, "order": order.value, "filters": _FILTERS}
    version, moment = Int4(after.version), after.updated_at
    if sort is Sort.UPDATED_AT:
        text = sql(_BY_TIME, entity, **words)
        bounds = [id, since, until, moment, moment, version, *values, Int4(limit)]
    else:
        if not filters.by_row:  # the keys come from the index alone, as long as nothing else counts
            words, values = {**words, "filters": ""}, []
        text = sql(_BY_VERSION, entity, **words)
        bounds = [id, since, until, version, moment, *values, Int4(limit), id]
    found = _read(entity, text, bounds)
    if not found.rows:
        confine(entity, [id])
    return Read(for_reader(entity, found.rows), found.unread)


def _conditions(filters: Filters) -> list[object]:
    """The values for FILTERS."""
    author, client_id, type = filters.author, filters.client_id, filters.type
    return [
        *(author is None, author or ""),
        *(client_id is None, client_id or ""),
        *(type is None, Int4(type or 0)),
    ]


_KEYS = "SELECT id, version, updated_at FROM {table} WHERE id = ANY(%s) AND updated_at <= %s"


def keys(
    entity: Entity, ids: Collection[str], until: datetime | None = None
) -> dict[str, list[Key]]:
    """The keys of all versions of these entities (up to a moment, which is included), ascending.
    An entity that has none is not among the answers."""
    text = sql(_KEYS, entity)
    found: dict[str, list[Key]] = {}
    for id, *key in fetch(text, [list(ids), until or LAST.updated_at]):
        found.setdefault(id, []).append(Key(*key))
    if need_to_know.applies():
        confine(entity, found)
    for versions in found.values():
        versions.sort()
    return found


_BODIES = """
    SELECT body.* FROM unnest(%s::varchar[], %s::timestamptz[], %s::int4[])
        AS wanted(id, updated_at, version)
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = wanted.id AND updated_at = wanted.updated_at AND version = wanted.version
        LIMIT 1
    ) AS body
"""


def first_bodies(
    entity: Entity, wanted: Sequence[Place]
) -> tuple[dict[Place, VersionRow], Sequence[Place]]:
    """The first of the versions with these ids and keys, as far as they are (still) in the store:
    at least one, and as many as READ_BYTES allow. The second part: those that were not read yet."""
    if not wanted:
        return {}, ()
    values = [
        [id for id, _ in wanted],
        [key.updated_at for _, key in wanted],
        [Int4(key.version) for _, key in wanted],
    ]
    read, unread = _read(entity, sql(_BODIES, entity), values)
    return {(row.id, row.key): row for row in for_reader(entity, read)}, unread


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
        WHERE id = wanted.id AND (type <> 2 OR data <> 'null'::jsonb)
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS body
"""


def newest_documents(entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """Of each of these entities the newest version that has a document: a DELETE may have none."""
    return for_reader(entity, _newest_documents(entity, ids))


def _newest_documents(entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """The same, whoever reads."""
    found: list[VersionRow] = []
    left = list(ids)
    while left:
        read = _read(entity, sql(_DOCUMENTS, entity), [left])
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


_OWNERS = "SELECT DISTINCT id, {owner} FROM {table} WHERE id = ANY(%s)"


def owners(entity: Entity, ids: Iterable[str]) -> dict[str, set[str]]:
    """The applications that any stored version of each of these entities belongs to: none where the
    kind stands alone."""
    found: dict[str, set[str]] = {}
    if entity.alone:
        return found
    for id, application in fetch(sql(_OWNERS, entity, owner=_owner(entity)), [list(ids)]):
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


_ANY = "SELECT 1 FROM {table} WHERE {owner} = %s LIMIT 1"


def exists(entity: Entity, id: str) -> bool:
    """Whether the store has any version of this entity."""
    confine(entity, [id])
    return bool(fetch(sql(_ANY, entity, owner="id"), [id]))


def belongs(entity: Entity, application: str) -> bool:
    """Whether the store has any version of this kind that is the application or a child of it."""
    found = bool(fetch(sql(_ANY, entity, owner=_owner(entity)), [application]))
    _confine_application(application if found else None)
    return found


def _confine_application(id: str | None) -> None:
    """As confine, for an application of which the store has something; None: it has nothing."""
    if id is not None:
        need_to_know.permit([id], root_documents)


# The rows of one kind in a merged timeline, marked with the index of the kind.
_SHARE = """
    (SELECT {kind} AS kind, id, version, updated_at FROM {table}
     WHERE {owner} = %s AND updated_at >= %s AND updated_at < %s AND updated_at {sign}= %s
       AND (updated_at, {kind}, id, version) {sign} (%s, %s, %s, %s) {filters}
     ORDER BY updated_at {order}, id {order}, version {order} LIMIT %s)
"""
_MERGED = """
    SELECT kind, id, version, updated_at FROM ({shares}) AS merged
    ORDER BY updated_at {order}, kind {order}, id {order}, version {order} LIMIT %s
"""


def merged(
    application: str,
    filters: Filters,
    order: Order,
    after: tuple[datetime, int, str, int] | None,
    limit: int,
) -> list[tuple[Entity, str, Key]]:
    """Up to `limit` versions of an application and its children after a place (updated_at, index of
    the kind, id, version; None to begin with), in display order: kind, id, key."""
    since, until = filters.since or FIRST.updated_at, filters.until or LAST.updated_at
    backwards = order is Order.DESC
    if after is None:
        after = (LAST.updated_at, 99, "", 0) if backwards else (FIRST.updated_at, -1, "", 0)
    moment, kind, id, version = after
    values = _conditions(filters)
    words = {"sign": "<" if backwards else ">", "order": order.value, "filters": _FILTERS}
    place = [moment, moment, Int4(kind), id, Int4(version)]
    share = [application, since, until, *place, *values, Int4(limit)]
    shares = " UNION ALL ".join(
        sql(_SHARE, entity, kind=str(number), owner=_owner(entity), **words)
        for number, entity in enumerate(ENTITIES)
        if not entity.alone
    )
    text = _MERGED.format(shares=shares, order=order.value)
    found = fetch(text, [*share * len(PARTS), Int4(limit)])
    _confine_application(application if found else None)
    return [(ENTITIES[kind], id, Key(version, at)) for kind, id, version, at in found]


def _owner(entity: Entity) -> str:
    return "id" if entity.parent is None else "product_instance_id"


_CHILDREN = "SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s"


def children(entity: Entity, application: str) -> list[str]:
    """The ids of the children of one kind that name the application in any stored version."""
    found = [id for (id,) in fetch(sql(_CHILDREN, entity), [application])]
    _confine_application(application if found else None)
    return found
