"""The newest versions of many entities at once, without their documents: for the search."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from history.database.apart import apart
from history.entities import Entity
from history.timeline import homes, several, statements
from history.timeline.statements import Key, sql


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
    lists: history.timeline.hits leaves out what the reader may not see."""
    if not ids:
        return {}
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


# Unlike the other one, over several shards too.
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


def newest_child(entity: Entity, applications: Collection[str]) -> dict[str, datetime]:
    """For each of these applications the time of the newest version of this kind that names it."""
    if not applications:
        return {}
    text = _NEWEST_OF_SEVERAL if apart() else _NEWEST_CHILD
    return dict(statements.fetch(sql(text, entity), [list(applications)]))
