"""Finding entities by their id or by a business key that any of their versions had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.types.numeric import Int4

from history.entities import BY_NAME, ENTITIES, Entity
from history.record import ChangeType
from history.search_keys import SEARCH_VALUE_LENGTH
from history.timeline import paging, rows, token
from history.timeline.query import DEFAULT_PAGE_SIZE, BadParameterError
from history.timeline.rows import Row

ID = "id"


@dataclass(frozen=True, slots=True)
class Found:
    """An entity that fits. key: by which business key it was found, or `id`. application: the id
    of its application, its own for an application. The rest is of its newest version."""

    entity: Entity
    id: str
    application: str
    key: str
    version: int
    type: ChangeType
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Results:
    """By id first, then by key name, kind and id. next_token: None at the end."""

    found: tuple[Found, ...]
    next_token: str | None


_KEYS = """
    SELECT name, entity, id FROM search_key
    WHERE value = %s AND (name, entity, id) > (%s, %s, %s) ORDER BY name, entity, id LIMIT %s
"""


def search(text: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None) -> Results:
    """All entities with this id, in any of the kinds, or with a business key of this value, letter
    for letter. One query for each kind and one for the keys. Raises BadParameterError."""
    paging.check_size(size)
    text = text.strip()
    if not text or len(text) > SEARCH_VALUE_LENGTH or "\0" in text:
        raise BadParameterError("q", f"must have 1 to {SEARCH_VALUE_LENGTH} characters")
    binding = ("search", text)
    after = ("", "", "")
    if page_token is not None:
        name, kind, id = token.read(binding, page_token)
        after = (name, kind, id)
    hits = rows.fetch(_KEYS, [text, *after, Int4(size + 1)])
    shown, more = hits[:size], len(hits) > size
    by_id = page_token is None and paging.storable(text)
    newest = _newest(shown, text if by_id else None)
    found = [_found(ID, entity, newest, text) for entity in ENTITIES] if by_id else []
    found += [_found(name, BY_NAME[kind], newest, id) for name, kind, id in shown]
    return Results(
        found=tuple(each for each in found if each is not None),
        next_token=token.issue(binding, shown[-1]) if more else None,
    )


def _newest(hits: Sequence[tuple[str, ...]], id: str | None) -> dict[tuple[Entity, str], Row]:
    """The newest row of every entity that a hit names, and of those of any kind with this id."""
    read = {}
    for entity in ENTITIES:
        ids = {hit_id for _, kind, hit_id in hits if kind == entity.name}
        if id is not None:
            ids.add(id)
        for row in rows.newest(entity, ids).values():
            read[entity, row.id] = row
    return read


def _found(
    key: str, entity: Entity, newest: dict[tuple[Entity, str], Row], id: str
) -> Found | None:
    """None where retention has removed the entity and its key still stands."""
    row = newest.get((entity, id))
    if row is None:
        return None
    return Found(
        entity=entity,
        id=id,
        application=row.product_instance_id or id,
        key=key,
        version=row.version,
        type=ChangeType(row.type),
        updated_at=row.updated_at,
    )
