"""Lists of entities, with the keys of their newest versions and no documents: for the search."""

import random
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, NamedTuple

from psycopg.types.numeric import Float8, Int4

from history.database.distributed import apart
from history.entities import BY_NAME, CHILDREN, ENTITIES, ROOT, Entity, root
from history.timeline.row import LAST, Key, Newest, Numbered, VersionRow
from history.timeline.sources import ahead, homes, several, statements
from history.timeline.sources.statements import sql
from history.timeline.sources.tables import Tables, all_of
from history.timeline.versions import Version

_NEWEST = """
    SELECT wanted.id, newest.version, newest.updated_at FROM unnest(%s::varchar[]) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT version, updated_at FROM {table} WHERE id = wanted.id
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS newest
"""


def newest_keys(tables: Tables, entity: Entity, ids: Collection[str]) -> dict[str, Key]:
    """The highest key of each of these entities that the store has. This and what follows is for
    lists: history.timeline.search leaves out what the reader may not see."""
    known = tables.ahead.keys
    ids = [id for id in ids if known.get((entity.name, id)) != []]
    if not ids:
        return {}
    if all((entity.name, id) in known for id in ids):
        return {id: max(known[entity.name, id]) for id in ids}
    where = tables.homes.pinned(entity, ids)
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


def applications_of(tables: Tables, entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
    """The newest version of each of these children that the store has, and its application."""
    if not ids:
        return {}
    where = tables.homes.pinned(entity, ids)
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


def first(
    tables: Tables, texts: Sequence[str], ids: Sequence[str], keys: Sequence[str], limit: int
) -> First:
    """Ask what has these ids, and which documents these values, at most `limit` for each. ids:
    those of the texts that can be one. keys: names of business keys, each with its kind."""
    if apart():
        if len(texts) == 1:
            return _first_of_one(tables, texts[0], ids, keys, limit)
        children = [
            statements.fetch(sql(_NEWEST_OF_SEVERAL, entity), [list(ids)]) for entity in CHILDREN
        ]
        values = [list(texts), list(keys), Int4(limit)]
        documents = statements.fetch(_DOCUMENTS_OF_SEVERAL, values)
        newest = {entity: newest_keys(tables, entity, ids) for entity in ENTITIES}
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


def _first_of_one(
    tables: Tables, text: str, ids: Sequence[str], keys: Sequence[str], limit: int
) -> First:
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
    tables.homes.note(text, [(kind, home) for part, kind, _, home, *_ in found if part == 0])
    newest: dict[Entity, dict[str, Key]] = {entity: {} for entity in ENTITIES}
    for part, kind, id, _, _, version, moment in found:
        if part == 2:
            newest[BY_NAME[kind]][id] = Key(version, moment)
    for entity in CHILDREN if ids else ():
        if tables.homes.of(entity, ids):
            ahead.entity(tables, entity, text, [LAST], 1)
            newest[entity] = newest_keys(tables, entity, ids)
    moments = [row[-1] for row in found if row[0] == 3 and row[-1] is not None]
    children = {text: max(moments)} if ids and moments else {}
    return First(newest, children, [row[1:5] for row in found if row[0] == 1])


# The type first: PostgreSQL need not read the document where it is no DELETE.
_NEWEST_DOCUMENTS = """
    SELECT body.* FROM unnest(%s::varchar[]) AS wanted(id)
    CROSS JOIN LATERAL (
        SELECT {columns} FROM {table}
        WHERE id = wanted.id {within} AND (type <> 2 OR data <> 'null'::jsonb)
        ORDER BY version DESC, updated_at DESC LIMIT 1
    ) AS body
"""


def newest_documents(tables: Tables, entity: Entity, ids: Collection[str]) -> list[VersionRow]:
    """Of each of these entities the newest version that has a document: a DELETE may have none."""
    where = tables.homes.pinned(entity, ids)
    if where.several:
        keys = several.newest(entity, ids, where, with_document=True)
        return list(
            all_of(
                entity, [(id, key) for id, (key, _) in keys.items()], tables.first_bodies
            ).values()
        )
    found: list[VersionRow] = []
    left = list(ids)
    while left:
        text = sql(_NEWEST_DOCUMENTS, entity, within=where.text)
        read = statements.read(text, [left, *where.values])
        found += read.rows
        left = [id for id, _ in read.unread]
    return found


# A version that a child has in two applications is one.
_TWICE = """
    SELECT id, version, array_agg(DISTINCT updated_at ORDER BY updated_at) FROM {table}
    WHERE id = ANY(%s) {within} AND version = ANY(%s)
    GROUP BY id, version HAVING count(DISTINCT updated_at) > 1
"""


def given_twice(
    tables: Tables, versions: Iterable[Version], *, whole: bool
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
        where = tables.homes.within(entity, ids[entity])
        text = sql(_TWICE, entity, within=where.text)
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
        found = statements.fetch(sql(_SAMPLE, root()), [Float8(percent), Int4(seed)])
        if len(found) >= number or percent >= 100:
            ids = [id for (id,) in found]
            return random.Random(seed).sample(ids, min(number, len(ids)))  # noqa: S311 - no secret
        percent = min(100.0, percent * 8)
