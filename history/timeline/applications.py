"""An application with its children: the merged timeline, and the state at a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from history.entities import CHILDREN, ENTITIES, ROOT, Entity
from history.record import ChangeType
from history.timeline import compose, neighbours, pages, paging, retention, rows
from history.timeline.neighbours import Pair, Place
from history.timeline.paging import Slice
from history.timeline.query import ApplicationQuery, NoVersionError, OlderThanRetentionError
from history.timeline.rows import Key, Row
from history.timeline.versions import Page, Version


def timeline(query: ApplicationQuery) -> Page:
    """A page of the versions of the application and all its children, by time; versions of one
    moment in the order of ENTITIES, id, version.

    One query for the places of the versions and two for each kind on the page. Raises as
    pages.page does.
    """

    def read(after: Place | None, size: int, _: Sequence[Row]) -> Slice:
        return _read(query, after, size)

    found = paging.find(query, read)
    if not found.pairs and query.page_token is None:
        if not any(rows.belongs(entity, query.id) for entity in ENTITIES):
            raise NoVersionError(f"the store has nothing of application {query.id}")
        pages.check_retention(query.filters)
    return paging.page(query, found)


def _read(query: ApplicationQuery, after: Place | None, size: int) -> Slice:
    found = rows.merged(query.id, query.filters, query.order, after, size + 1)
    shown, more = found[:size], len(found) > size
    pairs: dict[tuple[Entity, str, Key], Pair] = {}
    for entity in ENTITIES:
        wanted = [(id, key) for kind, id, key in shown if kind is entity]
        for pair in _pairs(entity, wanted):
            pairs[entity, pair.row.id, pair.row.key] = pair
    kept = [pairs[place] for place in shown if place in pairs]
    kind, id, key = shown[-1] if shown else (ROOT, "", rows.FIRST)
    end = Place(key.updated_at, ENTITIES.index(kind), id, key.version)
    return Slice(kept, end if more else None)


def _pairs(entity: Entity, wanted: Sequence[tuple[str, Key]]) -> list[Pair]:
    if not wanted:
        return []
    keys = neighbours.all_keys(entity, {id for id, _ in wanted})
    return neighbours.fetch(entity, [place for place in wanted if place[0] in keys], keys)


@dataclass(frozen=True, slots=True)
class Application:
    """An application as it was at a moment. application: None where only children are known.
    children: those that were there, by kind in the order of ENTITIES, then by id. deleted: those
    that had been deleted by then. Patches and changes are left out."""

    application: Version | None
    children: tuple[Version, ...]
    deleted: tuple[Version, ...]


def at(id: str, moment: datetime) -> Application:
    """The whole application as of a moment: of each part the highest version that was there.

    A child counts where its version of that moment names the application. Three queries for each
    kind. Raises NoVersionError, and OlderThanRetentionError for a moment before retention.
    """
    found = [*_current(ROOT, [id], moment)] if paging.storable(id) else []
    if paging.storable(id):
        for entity in CHILDREN:
            ids = rows.children(entity, id, moment)
            found += [
                pair
                for pair in _current(entity, sorted(ids), moment)
                if pair.row.product_instance_id == id
            ]
    if not found:
        if moment < retention.start():
            raise OlderThanRetentionError("that moment is older than what is kept")
        raise NoVersionError(f"the store has nothing of application {id} at that moment")
    parts = compose.versions(found, frozenset())
    children = [part for part in parts if not part.entity.root]
    return Application(
        application=next((part for part in parts if part.entity.root), None),
        children=tuple(part for part in children if part.type is not ChangeType.DELETE),
        deleted=tuple(part for part in children if part.type is ChangeType.DELETE),
    )


def _current(entity: Entity, ids: Sequence[str], moment: datetime) -> list[Pair]:
    keys = neighbours.all_keys(entity, ids) if ids else {}
    current = [(id, keys[id].current(moment)) for id in ids if id in keys]
    return neighbours.fetch(entity, [(id, key) for id, key in current if key], keys)
