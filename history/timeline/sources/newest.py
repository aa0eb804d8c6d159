"""The newest versions of many entities at once, without their documents: for the search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from psycopg.types.numeric import Int4

from history.database.apart import apart
from history.entities import BY_NAME, CHILDREN, ENTITIES, ROOT, Entity
from history.timeline import ahead
from history.timeline.sources import homes, memory, several, statements
from history.timeline.sources.statements import LAST, Key, sql


class Newest(NamedTuple):
    """The newest version of a child. application: the id of the application that it names."""

    key: Key
    application: str


_NEWEST = """
    SELECT wanted.id, newest.version, newest.updated_at FROM unnest(%s::varchar[]) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT version, updated_at FROM {table} WHERE id = wanted.id
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS newest
"""


def newest_keys(entity: Entity, ids: Collection[str]) -> dict[str, Key]:
    """The highest key of each of these entities that the store has. This and what follows is for
    lists: history.timeline.search leaves out what the reader may not see."""
    known = memory.ahead().keys
    ids = [id for id in ids if known.get((entity.name, id)) != []]
    if not ids:
        return {}
    if all((entity.name, id) in known for id in ids):
        return {id: max(known[entity.name, id]) for id in ids}
    where = homes.pinned(entity, ids)
    if where.homes is not None:
        return {id: key for id, (key, _) in several.newest(entity, ids, where).items()}
    found = statements.fetch(sql(_NEWEST, entity), [list(ids)])
    return {id: Key(version, moment) for id, version, moment in found}


# The key is found in the index alone; then one row is read.
_APPLICATIONS_OF = f"""
    SELECT newest.*, body.product_instance_id FROM ({_NEWEST}) AS newest
    CROSS JOIN LATERAL (
        SELECT product_instance_id FROM {{table}}
        WHERE id = newest.id AND updated_at = newest.updated_at AND version = newest.version
        LIMIT 1
    ) AS body
"""  # noqa: S608 - constants


def applications_of(entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
    """The newest version of each of these children that the store has, and its application."""
    if not ids:
        return {}
    where = homes.pinned(entity, ids)
    if where.homes is not None:
        return {id: Newest(*its) for id, its in several.newest(entity, ids, where).items()}
    found = statements.fetch(sql(_APPLICATIONS_OF, entity), [list(ids)])
    return {id: Newest(Key(version, at), application) for id, version, at, application in found}


# For each application the time of the newest version of a kind that names it. Unlike the other one,
# over several shards too.
_NEWEST_OF_SEVERAL = """
    SELECT product_instance_id, max(updated_at) FROM {table}
    WHERE product_instance_id = ANY(%s) GROUP BY product_instance_id
"""
_NEWEST_CHILD = """
    SELECT wanted.id, newest.updated_at FROM unnest(%s::varchar[]) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT updated_at FROM {table} WHERE product_instance_id = wanted.id
        ORDER BY updated_at DESC LIMIT 1
    ) AS newest
"""


class First(NamedTuple):
    """What a search asks first. newest: the newest version of each entity with one of the ids.
    children: of each application with one of them, the time of the newest version of a child; maybe
    only of those that are not among these themselves.
    documents: rows of search_key: value, name, kind, id."""

    newest: dict[Entity, dict[str, Key]]
    children: dict[str, datetime]
    documents: Sequence[tuple[Any, ...]]


_DOCUMENTS = """
    SELECT key.* FROM unnest(%s::varchar[]) AS wanted(value)
    CROSS JOIN LATERAL (
        SELECT value, name, entity, id FROM search_key
        WHERE value = wanted.value AND entity || ' ' || name = ANY(%s)
        ORDER BY day DESC, name, entity, id LIMIT %s
    ) AS key
"""
# The same over several shards.
_DOCUMENTS_OF_SEVERAL = """
    SELECT value, name, entity, id FROM (
        SELECT value, name, entity, id, row_number() OVER (
            PARTITION BY value ORDER BY day DESC, name, entity, id) AS place
        FROM search_key WHERE value = ANY(%s) AND entity || ' ' || name = ANY(%s)
    ) AS key WHERE place <= %s
"""


def first(texts: Sequence[str], ids: Sequence[str], keys: Sequence[str], limit: int) -> First:
    """Ask what has these ids, and which documents these values, at most `limit` for each. ids:
    those of the texts that can be one. keys: names of business keys, each with its kind."""
    if apart():
        if len(texts) == 1 and memory.present() is not None:
            return _first_of_one(texts[0], ids, keys, limit)
        children = [
            statements.fetch(sql(_NEWEST_OF_SEVERAL, entity), [list(ids)]) for entity in CHILDREN
        ]
        values = [list(texts), list(keys), Int4(limit)]
        documents = statements.fetch(_DOCUMENTS_OF_SEVERAL, values)
        newest = {entity: newest_keys(entity, ids) for entity in ENTITIES}
        return First(newest, _latest(children), documents)
    found = statements.together(
        [
            *((sql(_NEWEST, entity), [list(ids)]) for entity in ENTITIES),
            (_DOCUMENTS, [list(texts), list(keys), Int4(limit)]),
        ],
        one_shard=False,
    )
    newest = {
        entity: {id: Key(version, moment) for id, version, moment in rows}
        for entity, rows in zip(ENTITIES, found, strict=False)
    }
    absent = [id for id in ids if ROOT is not None and id not in newest[ROOT]]
    if not absent or not CHILDREN:
        return First(newest, {}, found[-1])
    asked = [(sql(_NEWEST_CHILD, entity), [absent]) for entity in CHILDREN]
    return First(newest, _latest(statements.together(asked, one_shard=False)), found[-1])


def _latest(found: Iterable[Iterable[tuple[Any, ...]]]) -> dict[str, datetime]:
    latest: dict[str, datetime] = {}
    for id, moment in chain.from_iterable(found):
        latest[id] = max(moment, latest.get(id, moment))
    return latest


# All that one text may be is on the shard of its hash: an application and its children, a document
# that stands alone, the applications of a child, the documents with a value. OFFSET 0: to plan for
# an order that indexes may have takes longer than to read these rows.
_DOCUMENTS_OF_ONE = """
    SELECT * FROM (
        SELECT 1, value, name, entity, id, NULL::int4 AS version, NULL::timestamptz AS moment
        FROM search_key WHERE value = %s AND entity || ' ' || name = ANY(%s)
        ORDER BY day DESC, name, entity, id LIMIT %s
    ) AS document
"""
_HOMES = """
    SELECT 0, entity, id, product_instance_id, NULL::varchar, NULL::int4, NULL::timestamptz
    FROM child_home WHERE entity = ANY(%s) AND id = %s
"""
_NEWEST_OF_ONE = """
    UNION ALL SELECT * FROM (
        SELECT 2, '{name}'::varchar, id, NULL::varchar, NULL::varchar, version, updated_at
        FROM (SELECT id, version, updated_at FROM {table} WHERE id = %s OFFSET 0) AS own
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS newest
"""
_NEWEST_CHILD_OF_ONE = """
    UNION ALL SELECT 3, NULL, NULL, NULL, NULL, NULL, max(updated_at)
    FROM (SELECT updated_at FROM {table} WHERE product_instance_id = %s OFFSET 0) AS its
"""


def _first_of_one(text: str, ids: Sequence[str], keys: Sequence[str], limit: int) -> First:
    """The same for one text where the tables are distributed."""
    statement = _DOCUMENTS_OF_ONE
    values: list[object] = [text, list(keys), Int4(limit)]
    if ids:  # otherwise it is too long for the columns that the rest compares it with
        statement += " UNION ALL " + _HOMES
        values += [[kind.name for kind in CHILDREN], text]
        for entity in ENTITIES:
            part = _NEWEST_OF_ONE if entity.parent is None else _NEWEST_CHILD_OF_ONE
            statement += sql(part, entity, name=entity.name)
            values.append(text)
    found = statements.fetch(statement, values)
    homes.note(text, [(kind, home) for part, kind, _, home, *_ in found if part == 0])
    newest: dict[Entity, dict[str, Key]] = {entity: {} for entity in ENTITIES}
    for part, kind, id, _, _, version, moment in found:
        if part == 2:
            newest[BY_NAME[kind]][id] = Key(version, moment)
    for entity in CHILDREN if ids else ():
        if homes.of(entity, ids):
            ahead.entity(entity, text, [LAST], 1)
            newest[entity] = newest_keys(entity, ids)
    moments = [row[-1] for row in found if row[0] == 3 and row[-1] is not None]
    children = {text: max(moments)} if ids and moments else {}
    return First(newest, children, [row[1:5] for row in found if row[0] == 1])
