"""One source of several: the tables, and others that have what the tables lack.

A version that an earlier source has counts, and the same version of a later one does not. Nothing
here knows who reads: history.timeline.reading asks this module, and everybody else asks that.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from history.entities import ENTITIES, Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.row import Documents, IdKey, Key, Located, Named, Place, Read, VersionRow
from history.timeline.sources.source import Supplement
from history.timeline.sources.tables import Tables

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Merged:
    """A history.timeline.sources.source.Source."""

    others: Sequence[Supplement] = ()
    tables: Tables = field(default_factory=Tables)

    def page(self, query: Query, after: Key, limit: int) -> Read:
        # Before the page of the tables: a version that they get meanwhile is in one of the two.
        theirs = self.only_others(query.entity, query.id)
        read = self.tables.page(query, after, limit)
        stored = [*(row.key for row in read.rows), *(key for _, key in read.unread)]
        entries: dict[Key, VersionRow | None] = {
            key: row
            for key, row in self.only_others(query.entity, query.id, stored).items()
            if key in theirs and fits(query.filters, row)
        }
        if not entries:
            return read
        entries |= {row.key: row for row in read.rows}
        entries |= {key: None for _, key in read.unread}
        position = itemgetter(0, 1) if query.sort is Sort.VERSION else itemgetter(1, 0)
        ordered = _after(entries, position, position(after), query.order, limit)
        end = next((at for at, key in enumerate(ordered) if entries[key] is None), len(ordered))
        found = [row for key in ordered[:end] if (row := entries[key]) is not None]
        return Read(found, [(query.id, key) for key in ordered[end:]])

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        found = self.tables.keys(entity, ids)
        return {id: its for id in ids if (its := self._all(entity, id, found.get(id, [])))}

    def documents(self, wanted: Mapping[Entity, Sequence[IdKey]]) -> dict[Entity, Documents]:
        found = self.tables.documents(wanted)
        for entity, places in wanted.items() if self.others else ():
            read, unread = found[entity]
            # A key that the tables do not have is another's.
            lacking = set(places) - read.keys() - set(unread)
            for id in {id for id, _ in lacking}:
                for other in reversed(self.others):
                    theirs = self.of(other, entity, id).items()
                    read.update({(id, key): row for key, row in theirs if (id, key) in lacking})
        return found

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], dict[IdKey, VersionRow]]:
        keys, rows = self.tables.newest(entity, id, below, count)
        return self._all(entity, id, keys), rows

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found = self.tables.owners(entity, ids)
        for other in () if entity.alone else self.others:
            for id in ids:
                for row in self.of(other, entity, id).values():
                    found.setdefault(id, set()).add(row.product_instance_id or row.id)
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        found = self.tables.members(application)
        for entity, id in self._named(application):
            stored = found.get((entity, id)) or self.tables.keys(entity, [id]).get(id, [])
            if its := self._all(entity, id, stored):
                found[entity, id] = its
        return found

    def of_application(
        self, application: str, filters: Filters, order: Order, after: Place | None, limit: int
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        theirs = self._places(application, filters)  # before the tables, as in page()
        found, keys = self.tables.of_application(application, filters, order, after, limit)
        stored: dict[Named, list[Key]] = defaultdict(list)
        for entity, id, key in found:
            stored[entity, id].append(key)
        still = {
            named: self.only_others(*named, stored[named])
            for named in {(entity, id) for entity, id, _ in theirs}
        }
        added = [place for place in theirs if place[2] in still[place[:2]]]
        if added:
            found = _after({*found, *added}, _position, after, order, limit)
        if not self.others:
            return found, keys
        every: dict[Named, list[Key]] = {}
        for entity, id in dict.fromkeys((entity, id) for entity, id, _ in found):
            its = keys.get((entity, id)) or self.tables.keys(entity, [id]).get(id, [])
            every[entity, id] = self._all(entity, id, its)
        return found, every

    def only_others(
        self, entity: Entity, id: str, stored: Collection[Key] | None = None
    ) -> dict[Key, VersionRow]:
        """The versions that the tables do not have, or have by the same key. stored: all keys that
        they have of the entity, if the caller knows them."""
        found: dict[Key, VersionRow] = {}
        for other in self.others:
            theirs = self.of(other, entity, id)
            if theirs and other.by_number and stored is None:
                stored = self.tables.keys(entity, [id]).get(id, [])
            numbers = {key.version for key in (*(stored or ()), *found)}
            # The same key is the same row, so a day may leave the tables meanwhile.
            added = {
                key: row
                for key, row in theirs.items()
                if not other.by_number or key.version not in numbers
            }
            found = added | found
        return found

    def _all(self, entity: Entity, id: str, stored: list[Key]) -> list[Key]:
        """All keys of an entity of which the tables have these."""
        added = self.only_others(entity, id, stored)
        return sorted({*stored, *added}) if added else stored

    def of(self, other: Supplement, entity: Entity, id: str) -> Mapping[Key, VersionRow]:
        """All versions that one of the others has of an entity."""
        return other.rows(entity, id, lambda: self.tables.owners(entity, [id]).get(id, ()))

    def _named(self, application: str) -> Collection[Named]:
        return dict.fromkeys(
            named for other in self.others for named in other.of_application(application)
        )

    def _places(self, application: str, filters: Filters) -> list[Located]:
        """What only others have of an application, as far as it fits."""
        return [
            (entity, id, key)
            for entity, id in self._named(application)
            for key, row in self.only_others(entity, id).items()
            if application == (row.product_instance_id or row.id) and fits(filters, row)
        ]


def fits(filters: Filters, row: VersionRow) -> bool:
    """As the statements of the tables filter. The path filter is not applied."""
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


def _position(place: Located) -> Place:
    entity, id, key = place
    return Place(key.updated_at, ENTITIES.index(entity), id, key.version)


def _after(
    found: Iterable[T],
    position: Callable[[T], tuple[Any, ...]],
    start: tuple[Any, ...] | None,
    order: Order,
    limit: int,
) -> list[T]:
    """Up to `limit` of these that come after the start (None: from the first one), in order."""
    backwards = order is Order.DESC
    rest = (
        each
        for each in found
        if start is None or (position(each) < start if backwards else position(each) > start)
    )
    return sorted(rest, key=position, reverse=backwards)[:limit]
