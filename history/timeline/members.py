"""The SQL that reads the versions of one application and its children."""

from __future__ import annotations

from datetime import datetime

from psycopg.types.numeric import Int4

from history import need_to_know
from history.entities import ENTITIES, PARTS, Entity
from history.timeline import homes, rows, statements
from history.timeline.query import Filters, Order
from history.timeline.statements import FIRST, LAST, Key, sql

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
    values = statements.conditions(filters)
    words = {"sign": "<" if backwards else ">", "order": order.value, "filters": statements.FILTERS}
    place = [moment, moment, Int4(kind), id, Int4(version)]
    share = [application, since, until, *place, *values, Int4(limit)]
    shares = " UNION ALL ".join(
        sql(_SHARE, entity, kind=str(number), owner=homes.column(entity), **words)
        for number, entity in enumerate(ENTITIES)
        if not entity.alone
    )
    text = _MERGED.format(shares=shares, order=order.value)
    found = statements.fetch(text, [*share * len(PARTS), Int4(limit)])
    _confine(application if found else None)
    versions = [(ENTITIES[kind], id, Key(version, at)) for kind, id, version, at in found]
    homes.seen(application, ((entity, id) for entity, id, _ in versions))
    return versions


_CHILDREN = "SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s"


def children(entity: Entity, application: str) -> list[str]:
    """The ids of the children of one kind that name the application in any stored version."""
    found = [id for (id,) in statements.fetch(sql(_CHILDREN, entity), [application])]
    _confine(application if found else None)
    homes.seen(application, ((entity, id) for id in found))
    return found


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
