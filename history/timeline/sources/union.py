"""The versions of the store and of the old service together: of one number the store's row counts.

As history.timeline.sources.rows, which it asks first; without an old service it adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

from history import fallback, need_to_know
from history.entities import ENTITIES, Entity
from history.fallback import OldVersion
from history.timeline.query import Filters, Order, Sort
from history.timeline.sources import members, old, rows
from history.timeline.sources.rows import for_reader
from history.timeline.sources.statements import Key, Place, Read, VersionRow

# A version in a merged timeline: updated_at, index of the kind, id, version.
Position: TypeAlias = tuple[datetime, int, str, int]


def page(
    entity: Entity, id: str, filters: Filters, sort: Sort, order: Order, after: Key, limit: int
) -> Read:
    """As rows.page."""
    # Before the store's page: a version that the store gets meanwhile is in one of the two.
    theirs = [row for row in only_old(entity, id).values() if fits(filters, row)]
    read = rows.page(entity, id, filters, sort, order, after, limit)
    numbers = {row.version for row in read.rows} | {key.version for _, key in read.unread}
    added = [row for row in theirs if row.version not in numbers]
    if not added:
        return read

    def position(key: Key) -> tuple[object, ...]:
        return key if sort is Sort.VERSION else (key.updated_at, key.version)

    start, backwards = position(after), order is Order.DESC
    entries: dict[Key, VersionRow | None] = {
        row.key: row
        for row in added
        if (position(row.key) < start if backwards else position(row.key) > start)
    }
    entries |= {row.key: row for row in read.rows}
    entries |= {key: None for _, key in read.unread}
    ordered = sorted(entries, key=position, reverse=backwards)[:limit]
    end = next((at for at, key in enumerate(ordered) if entries[key] is None), len(ordered))
    found = [row for key in ordered[:end] if (row := entries[key]) is not None]
    return Read(_shown(entity, found, read.rows), [(id, key) for key in ordered[end:]])


def _shown(
    entity: Entity, found: Sequence[VersionRow], stored: Sequence[VersionRow]
) -> list[VersionRow]:
    """These rows as the present reader may see them; those of the store are so already."""
    ready = {row.key: row for row in stored}
    late = for_reader(entity, [row for row in found if row.key not in ready])
    ready |= {row.key: row for row in late}
    return [ready[row.key] for row in found]


def keys(entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
    """As rows.keys."""
    found = rows.keys(entity, ids)
    for id in ids:
        added = only_old(entity, id, found.get(id, ()))
        if added:
            if need_to_know.applies():
                rows.confine(entity, [id])
            found[id] = sorted([*found.get(id, ()), *added])
    return found


def first_bodies(
    entity: Entity, wanted: Sequence[Place]
) -> tuple[dict[Place, VersionRow], Sequence[Place]]:
    """As rows.first_bodies. A key that the store does not have is one of the old service's."""
    found, left = rows.first_bodies(entity, wanted)
    unread = set(left)
    known: dict[str, dict[Key, VersionRow]] = {}
    for place in wanted:
        id, key = place
        if place not in found and place not in unread:
            if id not in known:
                known[id] = _rows(entity, id)
            if key in known[id]:
                [found[place]] = for_reader(entity, [known[id][key]])
    return found, left


def bodies(entity: Entity, wanted: Iterable[Place]) -> dict[Place, VersionRow]:
    """As rows.bodies."""
    return rows.bodies(entity, wanted, first_bodies)


def exists(entity: Entity, id: str) -> bool:
    """As rows.exists."""
    return rows.exists(entity, id) or bool(_rows(entity, id))


def belongs(entity: Entity, application: str) -> bool:
    """As members.belongs."""
    theirs = any(kind is entity for kind, _ in _of_application(application))
    return members.belongs(entity, application) or theirs


def children(entity: Entity, application: str) -> list[str]:
    """As members.children."""
    found = dict.fromkeys(members.children(entity, application))
    theirs = (id for kind, id in _of_application(application) if kind is entity)
    return list(found | dict.fromkeys(theirs))


def merged(
    application: str, filters: Filters, order: Order, after: Position | None, limit: int
) -> list[tuple[Entity, str, Key]]:
    """As members.merged."""
    theirs = _merged_old(application, filters)  # before the store's page, as in page()
    found = members.merged(application, filters, order, after, limit)
    numbers = {(kind, id, key.version) for kind, id, key in found}
    backwards = order is Order.DESC
    added = [
        (kind, id, key)
        for kind, id, key in theirs
        if (kind, id, key.version) not in numbers
        and (
            after is None
            or (_position(kind, id, key) < after if backwards else _position(kind, id, key) > after)
        )
    ]
    if not added:
        return found

    def place(entry: tuple[Entity, str, Key]) -> Position:
        return _position(*entry)

    return sorted({*found, *added}, key=place, reverse=backwards)[:limit]


def following(kinds: Sequence[Entity], id: str, filters: Filters) -> list[Position]:
    """The positions of the old service's versions in a timeline, in no order. kinds: one, or all
    for an application with its children."""
    if len(kinds) > 1:
        return [_position(*entry) for entry in _merged_old(id, filters)]
    theirs = only_old(kinds[0], id)
    return [_position(kinds[0], id, row.key) for row in theirs.values() if fits(filters, row)]


def twins(entity: Entity, id: str, version: int, stored: Collection[Key]) -> list[Key]:
    """The key that the old service has of a version of which the store has these, with other
    times: one or none. The old service's clock gave the version another time."""
    theirs = [key for key in _rows(entity, id) if key.version == version]
    return [key for key in theirs if stored and key not in stored]


def only_old(
    entity: Entity, id: str, stored: Collection[Key] | None = None
) -> dict[Key, VersionRow]:
    """The old service's versions with numbers that the store does not have. stored: all keys that
    it has of the entity, if the caller knows them."""
    theirs = _rows(entity, id)
    if not theirs:
        return {}
    if stored is None:
        stored = rows.keys(entity, [id]).get(id, [])
    numbers = {key.version for key in stored}
    return {key: row for key, row in theirs.items() if key.version not in numbers}


def fits(filters: Filters, row: VersionRow) -> bool:
    """The filters as the database applies them; the path filter is not applied here."""
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


def _position(entity: Entity, id: str, key: Key) -> Position:
    return (key.updated_at, ENTITIES.index(entity), id, key.version)


def _of_application(id: str) -> Mapping[tuple[Entity, str], Mapping[int, OldVersion]]:
    """The old service's part of an application, which the present reader may see."""
    found = old.of_application(id)
    if found:
        need_to_know.permit([id], rows.root_documents)
    return found


def _merged_old(application: str, filters: Filters) -> list[tuple[Entity, str, Key]]:
    """What only the old service has of an application, as far as it fits."""
    theirs = _of_application(application)
    found: list[tuple[Entity, str, Key]] = []
    for entity in dict.fromkeys(kind for kind, _ in theirs):
        ids = [id for kind, id in theirs if kind is entity]
        stored = rows.keys(entity, ids)
        for id in ids:
            numbers = theirs[entity, id]
            found += [
                (entity, id, key)
                for key, row in only_old(entity, id, stored.get(id, ())).items()
                if key.version in numbers and fits(filters, row)
            ]
    return found


def _rows(entity: Entity, id: str) -> dict[Key, VersionRow]:
    """The old service's versions of an entity in the form of the store, not masked."""
    theirs = old.of(entity, id).values()
    application: str | None = None
    if entity.parent is not None and any(each.product_instance_id is None for each in theirs):
        known = rows.owners(entity, [id]).get(id, set()) | {
            each.product_instance_id for each in theirs if each.product_instance_id
        }
        application = known.pop() if len(known) == 1 else None
    found: dict[Key, VersionRow] = {}
    for each in theirs:
        owner = each.product_instance_id or application
        if owner is None and entity.parent is not None:
            # Whose it is decides who may see it.
            asked = fallback.present()
            if asked is not None:
                asked.missed()
            continue
        key = Key(each.version, each.updated_at)
        found[key] = VersionRow(
            *(each.version, each.updated_at, each.type, each.client_id, each.author),
            *(owner, each.data, each.id, True),
        )
    return found
