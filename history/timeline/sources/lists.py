"""Lists of entities: what a search finds, newest documents, numbers given twice."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from psycopg.types.numeric import Int4

from history.entities import CHILDREN, ENTITIES, ROOT, Entity
from history.timeline.row import Key, Newest, Numbered, VersionRow
from history.timeline.sources import statements
from history.timeline.sources.statements import sql

_NEWEST = """
    SELECT DISTINCT ON (id) id, version, updated_at, {owner} FROM {table} WHERE id = ANY(%(ids)s)
    ORDER BY id, version DESC, updated_at DESC
"""


def newest_keys(entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
    """The newest version of each of these entities that the store has. This and what follows is for
    lists: history.timeline.search leaves out what the reader may not see."""
    if not ids:
        return {}
    found = statements.fetch(sql(_NEWEST, entity), {"ids": list(ids)})
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


_DOCUMENTS = """
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
            *((sql(_NEWEST, entity, owner="id"), {"ids": list(ids)}) for entity in ENTITIES),
            (_DOCUMENTS, {"texts": list(texts), "keys": list(keys), "limit": Int4(limit)}),
        ]
    )
    newest = {
        entity: {id: Key(version, moment) for id, version, moment, _ in rows}
        for entity, rows in zip(ENTITIES, found, strict=False)
    }
    absent = [id for id in ids if ROOT is not None and id not in newest[ROOT]]
    if not absent or not CHILDREN:
        return First(newest, {}, found[-1])
    latest: dict[str, datetime] = {}
    asked = [(sql(_NEWEST_CHILD, entity), {"ids": absent}) for entity in CHILDREN]
    for id, moment in chain.from_iterable(statements.together(asked)):
        latest[id] = max(moment, latest.get(id, moment))
    return First(newest, latest, found[-1])


# Only keys are sorted. The type first: PostgreSQL need not read the document where it is no DELETE.
# The newest version of a block is its row, and has a document.
_NEWEST_DOCUMENTS = """
    SELECT {columns} FROM {table} JOIN (
        SELECT DISTINCT ON (id) id, version, updated_at FROM {table}
        WHERE id = ANY(%(ids)s) AND (packed IS NOT NULL OR type <> 2 OR data <> 'null'::jsonb)
        ORDER BY id, version DESC, updated_at DESC
    ) AS newest USING (id, updated_at, version) OFFSET 0
"""


def newest_documents(entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """Of each of these entities the newest version that has a document: a DELETE may have none."""
    found: list[VersionRow] = []
    left = list(ids)
    while left:
        read = statements.read(entity, sql(_NEWEST_DOCUMENTS, entity), {"ids": left})
        found += read.rows
        left = [id for _, id, _ in read.unread]
    return found


_TWICE = """
    SELECT id, version, array_agg(updated_at ORDER BY updated_at)
    FROM {versions} AS stored WHERE id = ANY(%(ids)s) AND version = ANY(%(numbers)s)
    GROUP BY id, version HAVING count(*) > 1
"""


def given_twice(wanted: Iterable[Numbered]) -> Mapping[Numbered, tuple[datetime, ...]]:
    """Those of these numbers that a producer gave more than once, with the times of all versions
    that have them, the oldest first. One query for each kind."""
    kinds: defaultdict[Entity, list[Numbered]] = defaultdict(list)
    for each in wanted:
        kinds[each[0]].append(each)
    found: dict[Numbered, tuple[datetime, ...]] = {}
    for entity, its in kinds.items():
        values = {"ids": sorted({id for _, id, _ in its}), "numbers": [*{n for _, _, n in its}]}
        for id, number, times in statements.fetch(sql(_TWICE, entity), values):
            found[entity, id, number] = tuple(times)
    return found
