"""The SQL that reads the versions of one application and its children."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.numeric import Float8, Int4

from history import need_to_know
from history.database.apart import apart
from history.entities import ENTITIES, PARTS, Entity, root
from history.timeline.query import Filters, Order
from history.timeline.sources import homes, memory, rows, statements
from history.timeline.sources.memory import Ahead
from history.timeline.sources.statements import FIRST, LAST, Key, VersionRow, sql

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
_KEYS = """
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
_MOVED = """
    UNION ALL SELECT NULL, -1, id, NULL, NULL, entity, other_application FROM child_moved
    WHERE product_instance_id = %s
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
    sign = "<" if backwards else ">"
    place = [moment, moment, Int4(kind), id, Int4(version)]
    conditions = statements.conditions(filters)
    if apart():
        words = {"sign": sign, "order": order.value, "filters": statements.FILTERS}
        parts = " UNION ALL ".join(_each(_ALL_OF_PART))
        text = _MERGED_APART.format(parts=parts, **words) + _MOVED
        bounds = [since, until, *place[1:], *conditions, Int4(limit)]
        found = statements.fetch(text, [*[application] * len(PARTS), *bounds, application])
    else:
        words = {"sign": sign, "order": order.value, "filters": statements.FILTERS}
        shares = " UNION ALL ".join(_each(_SHARE, **words))
        text = _MERGED.format(shares=shares, order=order.value, keys="".join(_each(_KEYS)))
        share = [application, since, until, *place, *conditions, Int4(limit)]
        found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
    page = sorted(row[:5] for row in found if row[0] is not None)
    _confine(application if page else None)
    versions = [(ENTITIES[kind], id, Key(version, at)) for _, kind, id, version, at in page]
    _keep(
        application,
        [row for row in found if row[0] is None],
        {(entity, id) for entity, id, _ in versions},
    )
    return versions


def _each(text: str, **words: str) -> list[str]:
    """The statement for each kind of an application."""
    return [
        sql(text, entity, kind=str(number), owner=homes.column(entity), **words)
        for number, entity in enumerate(ENTITIES)
        if not entity.alone
    ]


def _keep(
    application: str, found: Sequence[tuple[Any, ...]], ids: Collection[tuple[Entity, str]]
) -> None:
    """Note the keys of these entities, and which children moved."""
    known = memory.present()
    if known is None:
        return
    if apart():
        homes.moved(application, [(row[5], row[2], row[6]) for row in found if row[1] == -1])
        homes.seen(application, ids)
    keys: dict[memory.Named, list[Key]] = {}
    for _, kind, id, version, at, *_ in found:
        if kind != -1:
            keys.setdefault((ENTITIES[kind].name, id), []).append(Key(version, at))
    elsewhere = known.moved.get(application, {})
    known.ahead = Ahead(keys={name: its for name, its in keys.items() if name not in elsewhere})


_CHILDREN = "SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s"


def children(entity: Entity, application: str) -> list[str]:
    """The ids of the children of one kind that name the application in any stored version."""
    known = memory.present()
    found = None if known is None else known.ahead.children.get((entity.name, application))
    if found is None:
        rows = statements.fetch(sql(_CHILDREN, entity), [application])
        found = [id for (id,) in rows]
    _confine(application if found else None)
    homes.seen(application, ((entity, id) for id in found))
    return found


# All keys of an application, and of the children that name it in any stored version.
_OF_ROOT = "SELECT NULL::int8, {kind}, id, version, updated_at FROM {table} WHERE id = %s"
_OF_CHILD = """
    SELECT NULL::int8, {kind}, id, version, updated_at FROM {table}
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s))
"""
_APART = """
    SELECT NULL::int8, {kind}, id, version, updated_at, NULL::varchar, NULL::varchar FROM {table}
    WHERE {owner} = %s
"""


def read_ahead(application: str) -> None:
    """Read at once what children() and rows.keys() will be asked for an application."""
    known = memory.present()
    if known is None:
        return
    if apart():
        text = " UNION ALL ".join(_each(_APART)) + _MOVED
        found = statements.fetch(text, [application] * (len(PARTS) + 1))
    else:
        children = zip(PARTS, _each(_OF_ROOT), _each(_OF_CHILD), strict=True)
        text = " UNION ALL ".join(one if entity.root else two for entity, one, two in children)
        found = statements.fetch(text, [application] * len(PARTS))
    ids = {(ENTITIES[kind], id) for _, kind, id, *_ in found if kind != -1}
    _keep(application, found, ids)
    for entity in PARTS:
        if not entity.root:
            its = [id for kind, id in ids if kind is entity]
            known.ahead.children[entity.name, application] = its


_ANY = "SELECT 1 FROM {table} WHERE {owner} = %s LIMIT 1"


def belongs(entity: Entity, application: str) -> bool:
    """Whether the store has any version of this kind that is the application or a child of it."""
    text = sql(_ANY, entity, owner=homes.column(entity))
    found = bool(statements.fetch(text, [application]))
    _confine(application if found else None)
    return found


def _confine(id: str | None) -> None:
    """As rows.confine, for an application of which the store has something; None: it has
    nothing."""
    if id is not None:
        need_to_know.permit([id], rows.root_documents)


# SYSTEM reads whole blocks, so that a sample costs little; REPEATABLE gives the same rows again.
_SAMPLE = """
    SELECT DISTINCT id FROM {table} TABLESAMPLE SYSTEM (%s) REPEATABLE (%s) ORDER BY id
"""
_FIRST_PERCENT = 0.05


def applications(number: int, seed: int) -> list[str]:
    """The ids of up to this many applications, the same ones again for one seed as long as the
    store is the same. Fewer where the store has fewer."""
    percent = _FIRST_PERCENT
    while True:
        found = statements.fetch(statements.sql(_SAMPLE, root()), [Float8(percent), Int4(seed)])
        if len(found) >= number or percent >= 100:
            ids = [id for (id,) in found]
            return random.Random(seed).sample(ids, min(number, len(ids)))  # noqa: S311 - no secret
        percent = min(100.0, percent * 8)


def versions(application: str) -> dict[tuple[Entity, str, int], list[VersionRow]]:
    """All stored versions of an application and its children, by kind, id and number; more than one
    where a producer gave the number twice. As the present reader may see them."""
    found: dict[tuple[Entity, str, int], list[VersionRow]] = defaultdict(list)
    for entity in PARTS:
        ids = [application] if entity.root else children(entity, application)
        if not ids:
            continue
        keys = rows.keys(entity, ids)
        wanted: list[tuple[str, Key]] = [(id, key) for id in keys for key in keys[id]]
        for (id, key), row in sorted(rows.bodies(entity, wanted).items()):
            if row.product_instance_id in (None, application):
                found[entity, id, key.version].append(row)
    return found
