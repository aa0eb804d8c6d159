"""Several sources as one: the tables, and supplements, which have what the tables lack.

If two sources have the same version, the earlier one wins; HistoryReader has their order. A source
knows nothing about readers, masks, budgets or HTTP: only history.timeline.gate asks this module.
docs/structure.md has the steps to add a source.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from operator import itemgetter
from typing import Any, Protocol, TypeAlias, TypeVar

from history.kinds.entities import EntityKind
from history.store.versions import (
    EntityRef,
    FetchedVersions,
    TimelinePosition,
    VersionKey,
    VersionRef,
    VersionRow,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort, VersionFilters
from history.timeline.sources.tables import TableSource

T = TypeVar("T")


class SupplementSource(Protocol):
    """A source with versions that the tables lack. It gives all versions of a document at once."""

    @property
    def by_number(self) -> bool:
        """Whether a version with the same number is the same one, even with another moment."""

    def load_rows(self, entity: EntityKind, id: str, /) -> Mapping[VersionKey, VersionRow]:
        """Return all versions of an entity by key, those of a child with their application."""

    def list_members(self, application: str, /) -> Collection[EntityRef]:
        """Return the entities that are the application, or name it in any version."""


class ArchivedSource(SupplementSource, Protocol):
    """An archive as a supplement. It is read only if asked for, and knows what it may have."""

    def find_oldest_day(self, entity: EntityKind, /) -> date | None:
        """Return the oldest archived day of a kind; None if there is none."""

    def may_have(self, entity: EntityKind, id: str, /) -> bool:
        """Return whether it may have versions of an entity, without reading a file."""


@dataclass(frozen=True, slots=True)
class MergedSource:
    """The tables and their supplements, asked as one source. An earlier supplement wins."""

    supplements: Sequence[SupplementSource]
    tables: TableSource = field(default_factory=TableSource)

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        # Before the page of the tables: a version that they get meanwhile is in one of the two.
        supplied = self.load_supplied_rows(entity, query.id)
        read = self.tables.fetch_page(entity, query, after, limit)
        if not supplied:
            return read
        stored = [key for *_, key in read.refs]
        entries: dict[VersionKey, VersionRow | None] = {
            key: row
            for key, row in self.load_supplied_rows(entity, query.id, stored).items()
            if key in supplied and is_selected(query.filters, row)
        }
        entries |= {key: None for *_, key in read.unread} | {row.key: row for row in read.rows}
        position = itemgetter(0, 1) if query.sort is TimelineSort.VERSION else itemgetter(1, 0)
        start = position(VersionKey(after.version, after.updated_at)) if after else None
        ordered = _select_after(entries, position, start, query.order, limit)
        end = next(
            (index for index, key in enumerate(ordered) if entries[key] is None), len(ordered)
        )
        rows = [row for key in ordered[:end] if (row := entries[key]) is not None]
        return FetchedVersions(rows, [(entity, query.id, key) for key in ordered[end:]])

    def fetch_keys(self, entity: EntityKind, ids: Collection[str]) -> dict[str, list[VersionKey]]:
        stored_keys = self.tables.fetch_keys(entity, ids)
        return {
            id: keys
            for id in ids
            if (keys := self._merge_keys(entity, id, stored_keys.get(id, [])))
        }

    def fetch_versions(self, refs: Collection[VersionRef]) -> FetchedVersions:
        fetched = self.tables.fetch_versions(refs)
        # A key that the tables do not have is another's.
        missing_refs = set(refs).difference(fetched.refs)
        supplied: dict[VersionRef, VersionRow] = {}
        for entity, id in {ref[:2] for ref in missing_refs}:
            for supplement in reversed(self.supplements):
                supplied |= {row.ref: row for row in supplement.load_rows(entity, id).values()}
        fetched.rows.extend(supplied[ref] for ref in missing_refs if ref in supplied)
        return fetched

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> tuple[list[VersionKey], list[VersionRow]]:
        keys, rows = self.tables.fetch_newest(entity, id, limits, count)
        return self._merge_keys(entity, id, keys), rows

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        owners = self.tables.fetch_owners(entity, ids)
        for supplement in () if entity.alone else self.supplements:
            for id in ids:
                for row in supplement.load_rows(entity, id).values():
                    owners.setdefault(id, set()).add(row.application)
        return owners

    def fetch_members(self, application: str) -> dict[EntityRef, list[VersionKey]]:
        members = self.tables.fetch_members(application)
        for entity, id in self._list_supplied_members(application):
            stored = members.get((entity, id)) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if (entity, id, None) in (self.tables.damaged or {}):
                continue
            if keys := self._merge_keys(entity, id, stored):
                members[entity, id] = keys
        return members

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> tuple[list[VersionRef], dict[EntityRef, list[VersionKey]]]:
        supplied = self._list_supplied_refs(query)  # before the tables, as in page()
        refs, keys = self.tables.fetch_application_page(query, after, limit)
        stored: dict[EntityRef, list[VersionKey]] = defaultdict(list)
        for entity, id, key in refs:
            stored[entity, id].append(key)
        still_supplied = {
            (*entity_ref, key)
            for entity_ref in {ref[:2] for ref in supplied}
            for key in self.load_supplied_rows(*entity_ref, stored[entity_ref])
        }
        if added := still_supplied.intersection(supplied):
            refs = _select_after(
                added.union(refs), TimelinePosition.from_ref, after, query.order, limit
            )
        all_keys: dict[EntityRef, list[VersionKey]] = {}
        for entity, id in dict.fromkeys((entity, id) for entity, id, _ in refs):
            stored_keys = keys.get((entity, id)) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if (entity, id, None) not in (self.tables.damaged or {}):
                all_keys[entity, id] = self._merge_keys(entity, id, stored_keys)
        return refs, all_keys

    def load_supplied_rows(
        self, entity: EntityKind, id: str, stored: Collection[VersionKey] | None = None
    ) -> dict[VersionKey, VersionRow]:
        """Return the versions of an entity that the supplements have and the tables do not.

        A version that both have by the same key may be among them.

        Args:
            stored: All keys of the entity that the tables have, if the caller knows them.
        """
        rows: dict[VersionKey, VersionRow] = {}
        for supplement in self.supplements:
            supplied = supplement.load_rows(entity, id)
            if supplied and supplement.by_number and stored is None:
                stored = self.tables.fetch_keys(entity, [id]).get(id, [])
            numbers = {key.version for key in (*(stored or ()), *rows)}
            # The same key is the same row, so a day may leave the tables meanwhile.
            added = {
                key: row
                for key, row in supplied.items()
                if not supplement.by_number or key.version not in numbers
            }
            rows = added | rows
        return rows

    def _merge_keys(
        self, entity: EntityKind, id: str, stored: list[VersionKey]
    ) -> list[VersionKey]:
        """Return all keys of an entity, given those that the tables have."""
        added = self.load_supplied_rows(entity, id, stored)
        return sorted({*stored, *added}) if added else stored

    def _list_supplied_members(self, application: str) -> Collection[EntityRef]:
        return dict.fromkeys(
            entity_ref
            for supplement in self.supplements
            for entity_ref in supplement.list_members(application)
        )

    def _list_supplied_refs(self, query: TimelineQuery) -> list[VersionRef]:
        """Return the versions of an application that only supplements have, if the filters select
        them.
        """
        return [
            row.ref
            for entity_ref in self._list_supplied_members(query.id)
            for row in self.load_supplied_rows(*entity_ref).values()
            if row.application == query.id and is_selected(query.filters, row)
        ]


VersionSource: TypeAlias = TableSource | MergedSource


def is_selected(filters: VersionFilters, row: VersionRow) -> bool:
    """Return whether the filters select a row, as the SQL does it. The path filter is not
    applied.
    """
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


def _select_after(
    entries: Iterable[T],
    position: Callable[[T], tuple[Any, ...]],
    start: tuple[Any, ...] | None,
    order: TimelineOrder,
    limit: int,
) -> list[T]:
    """Return up to `limit` of the entries that come after `start`, in order.

    Args:
        start: None for the beginning.
    """
    backwards = order is TimelineOrder.DESC
    entries_after = (
        entry
        for entry in entries
        if start is None or (position(entry) < start if backwards else position(entry) > start)
    )
    return sorted(entries_after, key=position, reverse=backwards)[:limit]
