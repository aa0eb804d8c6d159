"""One source of two: the tables and the old service. Of one number the store's row counts.

Nothing here knows who reads: history.timeline.reading asks this module, and everybody else asks it.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from history.entities import ENTITIES, Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import IdKey, Key, Position, Read, VersionRow
from history.timeline.sources.old import OldService
from history.timeline.sources.statements import fits
from history.timeline.sources.tables import Tables, all_of


def _position(entity: Entity, id: str, key: Key) -> Position:
    return (key.updated_at, ENTITIES.index(entity), id, key.version)


@dataclass(frozen=True, slots=True)
class Merged:
    """A history.timeline.sources.source.Source."""

    tables: Tables
    old: OldService

    def page(self, query: Query, after: Key, limit: int) -> Read:
        entity, id, filters = query.entity, query.id, query.filters
        # Before the store's page: a version that the store gets meanwhile is in one of the two.
        theirs = [row for row in self.only_old(entity, id).values() if fits(filters, row)]
        read = self.tables.page(query, after, limit)
        numbers = {row.version for row in read.rows} | {key.version for _, key in read.unread}
        added = [row for row in theirs if row.version not in numbers]
        if not added:
            return read

        def position(key: Key) -> tuple[object, ...]:
            return key if query.sort is Sort.VERSION else (key.updated_at, key.version)

        start, backwards = position(after), query.order is Order.DESC
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
        return Read(found, [(id, key) for key in ordered[end:]])

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        found = self.tables.keys(entity, ids)
        for id in ids:
            added = self.only_old(entity, id, found.get(id, ()))
            if added:
                found[id] = sorted([*found.get(id, ()), *added])
        return found

    def first_bodies(
        self, entity: Entity, wanted: Sequence[IdKey]
    ) -> tuple[dict[IdKey, VersionRow], Sequence[IdKey]]:
        # A key that the store does not have is one of the old service's.
        found, left = self.tables.first_bodies(entity, wanted)
        unread = set(left)
        known: dict[str, dict[Key, VersionRow]] = {}
        for place in wanted:
            id, key = place
            if place not in found and place not in unread:
                if id not in known:
                    known[id] = self._rows(entity, id)
                if key in known[id]:
                    found[place] = known[id][key]
        return found, left

    def bodies(self, entity: Entity, wanted: Iterable[IdKey]) -> dict[IdKey, VersionRow]:
        """All versions with these ids and keys that are still there."""
        return all_of(entity, wanted, self.first_bodies)

    def exists(self, entity: Entity, id: str) -> bool:
        return self.tables.exists(entity, id) or bool(self._rows(entity, id))

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found = self.tables.owners(entity, ids)
        for id in ids:
            if theirs := self.old.owners(entity, [id]):
                found[id] = found.get(id, set()) | theirs
        return found

    def belongs(self, entity: Entity, application: str) -> bool:
        theirs = any(kind is entity for kind, _ in self.old.of_application(application))
        return self.tables.belongs(entity, application) or theirs

    def children(self, entity: Entity, application: str) -> list[str]:
        found = dict.fromkeys(self.tables.children(entity, application))
        theirs = (id for kind, id in self.old.of_application(application) if kind is entity)
        return list(found | dict.fromkeys(theirs))

    def of_application(
        self, application: str, filters: Filters, order: Order, after: Position | None, limit: int
    ) -> list[tuple[Entity, str, Key]]:
        theirs = self._merged_old(application, filters)  # before the store's page, as in page()
        found = self.tables.of_application(application, filters, order, after, limit)
        numbers = {(kind, id, key.version) for kind, id, key in found}
        backwards = order is Order.DESC
        added = [
            (kind, id, key)
            for kind, id, key in theirs
            if (kind, id, key.version) not in numbers
            and (
                after is None
                or (
                    _position(kind, id, key) < after
                    if backwards
                    else _position(kind, id, key) > after
                )
            )
        ]
        if not added:
            return found

        def place(entry: tuple[Entity, str, Key]) -> Position:
            return _position(*entry)

        return sorted({*found, *added}, key=place, reverse=backwards)[:limit]

    def twins(self, entity: Entity, id: str, version: int, stored: Collection[Key]) -> list[Key]:
        """The key that the old service has of a version of which the store has these, with other
        times: one or none. The old service's clock gave the version another time."""
        theirs = [key for key in self._rows(entity, id) if key.version == version]
        return [key for key in theirs if stored and key not in stored]

    def only_old(
        self, entity: Entity, id: str, stored: Collection[Key] | None = None
    ) -> dict[Key, VersionRow]:
        """The old service's versions with numbers that the store does not have. stored: all keys
        that it has of the entity, if the caller knows them."""
        theirs = self._rows(entity, id)
        if not theirs:
            return {}
        if stored is None:
            stored = self.tables.keys(entity, [id]).get(id, [])
        numbers = {key.version for key in stored}
        return {key: row for key, row in theirs.items() if key.version not in numbers}

    def _merged_old(self, application: str, filters: Filters) -> list[tuple[Entity, str, Key]]:
        """What only the old service has of an application, as far as it fits."""
        theirs = self.old.of_application(application)
        found: list[tuple[Entity, str, Key]] = []
        for entity in dict.fromkeys(kind for kind, _ in theirs):
            ids = [id for kind, id in theirs if kind is entity]
            stored = self.tables.keys(entity, ids)
            for id in ids:
                numbers = theirs[entity, id]
                found += [
                    (entity, id, key)
                    for key, row in self.only_old(entity, id, stored.get(id, ())).items()
                    if key.version in numbers and fits(filters, row)
                ]
        return found

    def _rows(self, entity: Entity, id: str) -> dict[Key, VersionRow]:
        """The old service's versions of an entity in the form of the store, not masked."""
        theirs = self.old.of(entity, id).values()
        application: str | None = None
        if entity.parent is not None and any(each.product_instance_id is None for each in theirs):
            known = self.tables.owners(entity, [id]).get(id, set()) | {
                each.product_instance_id for each in theirs if each.product_instance_id
            }
            application = known.pop() if len(known) == 1 else None
        found: dict[Key, VersionRow] = {}
        for each in theirs:
            owner = each.product_instance_id or application
            if owner is None and entity.parent is not None:
                # Whose it is decides who may see it.
                self.old.asked.missed()
                continue
            key = Key(each.version, each.updated_at)
            found[key] = VersionRow(
                *(each.version, each.updated_at, each.type, each.client_id, each.author),
                *(owner, each.data, each.id, True),
            )
        return found
