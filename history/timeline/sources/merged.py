"""One source of several: the tables, and supplements, which have what the tables lack.

A version that an earlier source has counts, and the same version of a later one does not; their
order is Reader._source. A source knows nothing of readers, masks, budgets or HTTP:
history.timeline.gate asks this module, and everybody else asks that. docs/structure.md has the
steps to add a source.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, TypeVar

from history.entities import Entity
from history.timeline.query import Filters, Order, Query, Sort
from history.timeline.sources.tables import Tables
from history.versions import Key, Located, Named, Place, Read, VersionRow

T = TypeVar("T")


class Supplement(Protocol):
    """What has versions that the tables lack, all of one document at once."""

    @property
    def by_number(self) -> bool:
        """Whether a version of the same number is the same one, whatever its time."""

    def rows(self, entity: Entity, id: str, /) -> Mapping[Key, VersionRow]:
        """All versions of an entity, each of a child with its application."""

    def of_application(self, application: str, /) -> Collection[Named]:
        """The entities that name the application in any version, or are the application."""


class Archived(Supplement, Protocol):
    """An archive: it is read where a question asks for it, and says more of what is not there."""

    def oldest_day(self, entity: Entity, /) -> date | None:
        """The oldest day of a kind that is in the archive; None where none is."""

    def may_have(self, entity: Entity, id: str, /) -> bool:
        """Whether it may have versions of an entity. No file is read."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Answers as the tables do, for all of these together. others: the one before has priority."""

    others: Sequence[Supplement]
    tables: Tables = field(default_factory=Tables)

    def page(self, entity: Entity, query: Query, after: Place | None, limit: int) -> Read:
        # Before the page of the tables: a version that they get meanwhile is in one of the two.
        theirs = self.only_others(entity, query.id)
        read = self.tables.page(entity, query, after, limit)
        if not theirs:
            return read
        stored = [key for *_, key in read.places]
        entries: dict[Key, VersionRow | None] = {
            key: row
            for key, row in self.only_others(entity, query.id, stored).items()
            if key in theirs and fits(query.filters, row)
        }
        entries |= {key: None for *_, key in read.unread} | {row.key: row for row in read.rows}
        position = itemgetter(0, 1) if query.sort is Sort.VERSION else itemgetter(1, 0)
        start = position(Key(after.version, after.updated_at)) if after else None
        ordered = _after(entries, position, start, query.order, limit)
        end = next((at for at, key in enumerate(ordered) if entries[key] is None), len(ordered))
        found = [row for key in ordered[:end] if (row := entries[key]) is not None]
        return Read(found, [(entity, query.id, key) for key in ordered[end:]])

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        found = self.tables.keys(entity, ids)
        return {id: its for id in ids if (its := self._all(entity, id, found.get(id, [])))}

    def documents(self, wanted: Collection[Located]) -> Read:
        read = self.tables.documents(wanted)
        # A key that the tables do not have is another's.
        lacking = set(wanted).difference(read.places)
        theirs: dict[Located, VersionRow] = {}
        for entity, id in {place[:2] for place in lacking}:
            for other in reversed(self.others):
                theirs |= {row.located: row for row in other.rows(entity, id).values()}
        read.rows.extend(theirs[each] for each in lacking if each in theirs)
        return read

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], list[VersionRow]]:
        keys, rows = self.tables.newest(entity, id, below, count)
        return self._all(entity, id, keys), rows

    def owners(self, entity: Entity, ids: Collection[str]) -> dict[str, set[str]]:
        found = self.tables.owners(entity, ids)
        for other in () if entity.alone else self.others:
            for id in ids:
                for row in other.rows(entity, id).values():
                    found.setdefault(id, set()).add(row.application)
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        found = self.tables.members(application)
        for entity, id in self._named(application):
            stored = found.get((entity, id)) or self.tables.keys(entity, [id]).get(id, [])
            if (entity, id, None) in (self.tables.damaged or {}):
                continue
            if its := self._all(entity, id, stored):
                found[entity, id] = its
        return found

    def of_application(
        self, query: Query, after: Place | None, limit: int
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        theirs = self._places(query)  # before the tables, as in page()
        found, keys = self.tables.of_application(query, after, limit)
        stored: dict[Named, list[Key]] = defaultdict(list)
        for entity, id, key in found:
            stored[entity, id].append(key)
        still = {
            (*named, key)
            for named in {place[:2] for place in theirs}
            for key in self.only_others(*named, stored[named])
        }
        if added := still.intersection(theirs):
            found = _after(added.union(found), Place.of, after, query.order, limit)
        every: dict[Named, list[Key]] = {}
        for entity, id in dict.fromkeys((entity, id) for entity, id, _ in found):
            its = keys.get((entity, id)) or self.tables.keys(entity, [id]).get(id, [])
            if (entity, id, None) not in (self.tables.damaged or {}):
                every[entity, id] = self._all(entity, id, its)
        return found, every

    def only_others(
        self, entity: Entity, id: str, stored: Collection[Key] | None = None
    ) -> dict[Key, VersionRow]:
        """The versions that the tables do not have, or have by the same key. stored: all keys that
        they have of the entity, if the caller knows them."""
        found: dict[Key, VersionRow] = {}
        for other in self.others:
            theirs = other.rows(entity, id)
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

    def _named(self, application: str) -> Collection[Named]:
        return dict.fromkeys(
            named for other in self.others for named in other.of_application(application)
        )

    def _places(self, query: Query) -> list[Located]:
        """What only others have of an application, as far as it fits."""
        return [
            row.located
            for named in self._named(query.id)
            for row in self.only_others(*named).values()
            if row.application == query.id and fits(query.filters, row)
        ]


Source: TypeAlias = Tables | Merged


def fits(filters: Filters, row: VersionRow) -> bool:
    """As the statements of the tables filter. The path filter is not applied."""
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


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
