"""Reading in one round trip what a call will ask for in several: it is put where rows finds it.

Nothing is decided here. What is not there, or is not what is needed after all, is asked for as
always.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg.types.numeric import Int4

from history.entities import ENTITIES, PARTS, Entity
from history.timeline.row import IdKey, Key
from history.timeline.sources import statements
from history.timeline.sources.statements import around, sql, version_row
from history.timeline.sources.tables import Ahead, Tables, of_each_kind, statement_of_bodies

# The keys are one row: of 10,000 rows with all columns most would be empty.
_ENTITY = """
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


def entity(tables: Tables, entity: Entity, id: str, below: Sequence[Key], count: int) -> None:
    """The keys of an entity, and the documents of its highest versions up to each of these numbers
    and moments, this many of each."""
    text = sql(_ENTITY, entity, bodies=around(sql(_UP_TO, entity)))
    places = [[Int4(key.version) for key in below], [key.updated_at for key in below], Int4(count)]
    limits = [Int4(statements.READ_BYTES)] * 2
    ahead = Ahead(keys={(entity.name, id): []})
    for *row, versions, moments in statements.fetch(text, [id, *limits, *places, id]):
        if row[0] is not None:
            _take(ahead, entity, tuple(row))
        elif versions is not None:
            ahead.keys[entity.name, id] = [*map(Key, versions, moments)]
    tables.ahead = ahead


def _take(ahead: Ahead, entity: Entity, found: tuple[Any, ...]) -> None:
    row = version_row(found)
    if row.data is not None:
        ahead.rows[entity.name, (row.id, row.key)] = row


def documents(tables: Tables, wanted: Mapping[Entity, Iterable[IdKey]]) -> None:
    """The documents of these versions of an application and its children, the first of each kind
    that one statement may bring."""
    tables.ahead.rows.clear()
    kinds: list[Entity] = []
    asked: list[tuple[str, Sequence[object]]] = []
    for entity, places in wanted.items():
        its = list(dict.fromkeys(places))
        if its:
            kinds.append(entity)
            asked.append(statements.bounded(*statement_of_bodies(entity, its)))
    if len(asked) < 2:
        return
    for entity, part in zip(kinds, statements.together(asked), strict=True):
        for row in part:
            _take(tables.ahead, entity, row)


# All keys of an application, and of the children that name it in any stored version.
_OF_ROOT = "SELECT NULL::int8, {kind}, id, version, updated_at FROM {table} WHERE id = %s"
_OF_CHILD = """
    SELECT NULL::int8, {kind}, id, version, updated_at FROM {table}
    WHERE id = ANY(ARRAY(SELECT DISTINCT id FROM {table} WHERE product_instance_id = %s))
"""


def application(tables: Tables, application: str) -> None:
    """The keys of an application and of all its children."""
    children = zip(PARTS, of_each_kind(_OF_ROOT), of_each_kind(_OF_CHILD), strict=True)
    text = " UNION ALL ".join(one if entity.root else two for entity, one, two in children)
    found = statements.fetch(text, [application] * len(PARTS))
    tables.keep(found)
    ids = {(ENTITIES[kind], id) for _, kind, id, *_ in found}
    for entity in PARTS:
        if not entity.root:
            its = [id for kind, id in ids if kind is entity]
            tables.ahead.children[entity.name, application] = its
