"""Reading in one round trip what a call will ask for in several: it is put where rows finds it.

Nothing is decided here. What is not there, or is not what is needed after all, is asked for as
always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg.types.numeric import Int4

from history.entities import Entity
from history.timeline.sources import homes, memory, rows, statements
from history.timeline.sources.memory import Ahead
from history.timeline.sources.statements import Key, Place, around, sql, version_row

# The keys are one row: of 10,000 rows with all columns most would be empty.
_ENTITY = """
    WITH keys AS MATERIALIZED (
        SELECT version, updated_at FROM {table} WHERE id = %s {within}
    )
    SELECT bodies.*, NULL::int4[], NULL::timestamptz[] FROM ({bodies}) AS bodies
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
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
        WHERE id = %s {within} AND updated_at = place.updated_at AND version = place.version LIMIT 1
    ) AS body
"""


def entity(entity: Entity, id: str, below: Sequence[Key], count: int) -> None:
    """The keys of an entity, and the documents of its highest versions up to each of these numbers
    and moments, this many of each."""
    found = memory.present()
    if found is None:
        return
    where = homes.within(entity, [id])
    if where.several:
        return
    bodies = around(sql(_UP_TO, entity, within=where.text), entity.table)
    text = sql(_ENTITY, entity, within=where.text, bodies=bodies)
    named = [id, *where.values]
    places = [[Int4(key.version) for key in below], [key.updated_at for key in below], Int4(count)]
    limits = [Int4(statements.READ_BYTES)] * 2
    ahead = Ahead(keys={(entity.name, id): []})
    for *row, versions, moments in statements.fetch(text, [*named, *limits, *places, *named]):
        if row[0] is not None:
            _take(ahead, entity, tuple(row))
        elif versions is not None:
            ahead.keys[entity.name, id] = [*map(Key, versions, moments)]
    found.ahead = ahead


def _take(ahead: Ahead, entity: Entity, found: tuple[Any, ...]) -> None:
    row = version_row(found)
    if row.data is not None:
        ahead.rows[entity.name, (row.id, row.key)] = row


def documents(wanted: Mapping[Entity, Iterable[Place]]) -> None:
    """The documents of these versions of an application and its children, the first of each kind
    that one statement may bring."""
    found = memory.present()
    if found is None:
        return
    found.ahead.rows.clear()
    kinds: list[Entity] = []
    asked: list[tuple[str, Sequence[object]]] = []
    together: set[frozenset[str] | None] = set()
    for entity, places in wanted.items():
        its = list(dict.fromkeys(places))
        where = homes.pinned(entity, {id for id, _ in its})
        if its and not where.several:
            together.add(where.homes)
            kinds.append(entity)
            asked.append(statements.bounded(entity, *rows.statement_of_bodies(entity, its, where)))
    if len(asked) < 2 or len(together) > 1:
        return
    parts = statements.together(asked, one_shard=together != {None})
    for entity, part in zip(kinds, parts, strict=True):
        for row in part:
            _take(found.ahead, entity, row)
