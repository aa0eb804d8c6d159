"""Merges the sources of one request: the tables, and supplements with versions that they lack.

Begin with `MergedSource.fetch_page`. If two supplements have the same version, the earlier one
counts; HistoryReader decides their order. A source knows nothing about viewers, masks, budgets or
HTTP. Its answers are closed, and history.policy opens them. docs/structure.md has the steps to add
a source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from history.kinds.entities import EntityKind
from history.store.blocks.codec import DamagedBlockError
from history.store.versions import (
    ApplicationPage,
    EntityRef,
    FetchedVersions,
    NewestVersions,
    SourceAnswer,
    SourceRow,
    TimelinePosition,
    VersionKey,
    VersionRef,
    get_entity_ref,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort, VersionFilters
from history.timeline.sources.statements import keep_fields
from history.timeline.sources.tables import TableSource

Entry = TypeVar("Entry")
# All version keys of each document, in number order.
KeysByEntity: TypeAlias = dict[EntityRef, list[VersionKey]]


class SupplementSource(Protocol):
    """A source with versions that the tables lack. It gives all versions of a document at once."""

    @property
    def by_number(self) -> bool:
        """Whether two versions of the same number are the same, even if their moments differ."""

    def load_rows(self, entity: EntityKind, id: str, /) -> Mapping[VersionKey, SourceRow]:
        """Return all versions of a document by key, those of a child with their application."""

    def list_members(self, application: str, /) -> Collection[EntityRef]:
        """Return the application itself, and the documents that name it in any version."""

    def may_hide_owners(self, entity: EntityKind, id: str, /) -> bool:
        """Return whether a document may belong to applications that its rows do not name."""


class ArchivedSource(SupplementSource, Protocol):
    """An archive as a supplement. It is read only if somebody asks for it."""

    def find_oldest_day(self, entity: EntityKind, /) -> date | None:
        """Return the oldest archived day of a kind, or None if there is none."""

    def may_have(self, entity: EntityKind, id: str, /) -> bool:
        """Return whether the archive may have versions of a document. Reads no file."""


@dataclass(frozen=True, slots=True)
class MergedSource:
    """The tables and their supplements as one source. An earlier supplement wins."""

    supplements: Sequence[SupplementSource]
    tables: TableSource = field(default_factory=TableSource)

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> SourceAnswer[FetchedVersions]:
        """Return one page of versions of a document. See TableSource.fetch_page.

        Usually the policy judges each row by its application. If there is no row, or a row may
        lack its application, the answer itself says that it tells of the document.
        """
        entity_ref = (entity, query.id)
        try:
            fetched = self._merge_page(entity, query, after, limit)
        except DamagedBlockError as error:
            return SourceAnswer(error, tells_of=[entity_ref])
        is_owner_unsure = any(
            supplement.may_hide_owners(*entity_ref) for supplement in self.supplements
        )
        tells_of = [entity_ref] if not fetched.rows or is_owner_unsure else []
        return SourceAnswer(self._keep_fields(fetched), tells_of)

    def fetch_keys(
        self, entity: EntityKind, ids: Collection[str]
    ) -> SourceAnswer[dict[str, list[VersionKey]]]:
        """Return the keys of all versions of these documents. See TableSource.fetch_keys."""
        try:
            stored_keys = self.tables.fetch_keys(entity, ids)
            keys = {
                id: merged
                for id in ids
                if (merged := self._merge_keys(entity, id, stored_keys.get(id, [])))
            }
        except DamagedBlockError as error:
            return SourceAnswer(error, tells_of=[(entity, id) for id in ids])
        return SourceAnswer(keys, tells_of=[(entity, id) for id in keys])

    def fetch_versions(self, refs: Collection[VersionRef]) -> SourceAnswer[FetchedVersions]:
        """Return versions by key, as many as READ_BYTES allow. See TableSource.fetch_versions."""
        try:
            fetched = self.tables.fetch_versions(refs)
        except DamagedBlockError as error:
            return SourceAnswer(error, tells_of=[get_entity_ref(ref) for ref in refs])
        if self.supplements:
            # The supplements have the versions that the tables do not have.
            missing_refs = set(refs).difference(fetched.refs)
            supplied: dict[VersionRef, SourceRow] = {}
            for entity, id in {get_entity_ref(ref) for ref in missing_refs}:
                for supplement in reversed(self.supplements):
                    supplied |= {row.ref: row for row in supplement.load_rows(entity, id).values()}
            fetched.rows.extend(supplied[ref] for ref in missing_refs if ref in supplied)
        return SourceAnswer(self._keep_fields(fetched))

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> SourceAnswer[NewestVersions]:
        """Return all keys of a document, and its newest versions. See TableSource.fetch_newest."""
        entity_ref = (entity, id)
        try:
            keys, rows = self.tables.fetch_newest(entity, id, limits, count)
        except DamagedBlockError as error:
            return SourceAnswer(error, tells_of=[entity_ref])
        newest = NewestVersions(
            self._merge_keys(entity, id, keys), keep_fields(rows, self.tables.fields)
        )
        return SourceAnswer(newest, tells_of=[entity_ref])

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        """Return the applications that any version of each document names. For the policy."""
        owners = self.tables.fetch_owners(entity, ids)
        for supplement in () if entity.alone else self.supplements:
            for id in ids:
                for row in supplement.load_rows(entity, id).values():
                    owners.setdefault(id, set()).add(row.application)
        return owners

    def fetch_members(self, application: str) -> SourceAnswer[KeysByEntity]:
        """Return the application and its children with their keys. See TableSource.fetch_members.

        What cannot be read is left out, and noted in `tables.damaged`.
        """
        members = self.tables.fetch_members(application)
        for entity, id in self._list_supplied_members(application):
            stored = members.get((entity, id)) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if (entity, id, None) in (self.tables.damaged or {}):
                continue
            if keys := self._merge_keys(entity, id, stored):
                members[entity, id] = keys
        exists = bool(members) or bool(self.tables.damaged)
        return SourceAnswer(
            members,
            tells_of=[*members, *self._list_damaged()],
            applications=[application] if exists else [],
        )

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> SourceAnswer[ApplicationPage]:
        """Return one page of an application and its children.

        Documents that cannot be read have no keys; they are noted in `tables.damaged`. See
        TableSource.fetch_application_page.
        """
        page = self._merge_application_page(query, after, limit)
        exists = bool(page.refs) or bool(self._list_supplied_members(query.id))
        return SourceAnswer(
            page,
            tells_of=[*page.keys, *self._list_damaged()],
            applications=[query.id] if exists else [],
        )

    def _keep_fields(self, fetched: FetchedVersions) -> FetchedVersions:
        return fetched._replace(rows=keep_fields(fetched.rows, self.tables.fields))

    def _list_damaged(self) -> list[EntityRef]:
        return [get_entity_ref(place) for place in self.tables.damaged or ()]

    # How the tables and the supplements become one.

    def _merge_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        # The supplements are read first, so that a version that enters the tables meanwhile is in
        # one of the two.
        supplied = self.load_supplied_rows(entity, query.id)
        fetched = self.tables.fetch_page(entity, query, after, limit)
        if not supplied:
            return fetched
        stored = [key for *_, key in fetched.refs]
        entries: dict[VersionKey, SourceRow | None] = {
            key: row
            for key, row in self.load_supplied_rows(entity, query.id, stored).items()
            if key in supplied and is_selected(query.filters, row)
        }
        entries |= {key: None for *_, key in fetched.unread}
        entries |= {row.key: row for row in fetched.rows}
        get_place = _get_key_by_number if query.sort is TimelineSort.VERSION else _get_key_by_moment
        start = get_place(VersionKey(after.version, after.updated_at)) if after else None
        ordered = _select_after(entries, get_place, start, query.order, limit)
        end = next(
            (index for index, key in enumerate(ordered) if entries[key] is None), len(ordered)
        )
        rows = [row for key in ordered[:end] if (row := entries[key]) is not None]
        return FetchedVersions(rows, [(entity, query.id, key) for key in ordered[end:]])

    def _merge_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> ApplicationPage:
        supplied = self._list_supplied_refs(query)  # first, as in _merge_page
        refs, keys = self.tables.fetch_application_page(
            query, after, limit, need_all_keys=bool(self.supplements)
        )
        if not self.supplements:
            return ApplicationPage(refs, keys)
        stored: KeysByEntity = defaultdict(list)
        for entity, id, key in refs:
            stored[entity, id].append(key)
        still_supplied = {
            (*entity_ref, key)
            for entity_ref in {get_entity_ref(ref) for ref in supplied}
            for key in self.load_supplied_rows(*entity_ref, stored[entity_ref])
        }
        if added := still_supplied.intersection(supplied):
            refs = _select_after(
                added.union(refs), TimelinePosition.from_ref, after, query.order, limit
            )
        all_keys: KeysByEntity = {}
        for entity, id in dict.fromkeys((entity, id) for entity, id, _ in refs):
            stored_keys = keys.get((entity, id)) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if (entity, id, None) not in (self.tables.damaged or {}):
                all_keys[entity, id] = self._merge_keys(entity, id, stored_keys)
        return ApplicationPage(refs, all_keys)

    def load_supplied_rows(
        self, entity: EntityKind, id: str, stored: Collection[VersionKey] | None = None
    ) -> dict[VersionKey, SourceRow]:
        """Return the versions of a document that the supplements have and the tables lack.

        A version that the tables have with the same key may be among them.

        Args:
            stored: All keys of the document in the tables, if the caller knows them.
        """
        rows: dict[VersionKey, SourceRow] = {}
        for supplement in self.supplements:
            supplied = supplement.load_rows(entity, id)
            if supplied and supplement.by_number and stored is None:
                stored = self.tables.fetch_keys(entity, [id]).get(id, [])
            numbers = {key.version for key in (*(stored or ()), *rows)}
            # A version that the tables have too may stay in: with the same key it is the same row.
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
        """Return all keys of a document.

        Args:
            stored: The keys in the tables.
        """
        added = self.load_supplied_rows(entity, id, stored)
        return sorted({*stored, *added}) if added else stored

    def _list_supplied_members(self, application: str) -> Collection[EntityRef]:
        return dict.fromkeys(
            entity_ref
            for supplement in self.supplements
            for entity_ref in supplement.list_members(application)
        )

    def _list_supplied_refs(self, query: TimelineQuery) -> list[VersionRef]:
        """Return the versions of an application that only supplements have and filters select."""
        return [
            row.ref
            for entity_ref in self._list_supplied_members(query.id)
            for row in self.load_supplied_rows(*entity_ref).values()
            if row.application == query.id and is_selected(query.filters, row)
        ]


def is_selected(filters: VersionFilters, row: SourceRow) -> bool:
    """Return whether the filters select a row, as the SQL of the tables does.

    The path filter is not applied.
    """
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


class _KeyByMoment(NamedTuple):
    """The place of a version in a timeline that is ordered by time."""

    updated_at: datetime
    version: int


def _get_key_by_moment(key: VersionKey) -> _KeyByMoment:
    return _KeyByMoment(key.updated_at, key.version)


def _get_key_by_number(key: VersionKey) -> VersionKey:
    return key


def _select_after(
    entries: Iterable[Entry],
    get_place: Callable[[Entry], Any],
    start: object | None,
    order: TimelineOrder,
    limit: int,
) -> list[Entry]:
    """Return up to `limit` of the entries that come after `start`, in order.

    Args:
        get_place: Gives what the entries are ordered by.
        start: The place to begin after; None for the beginning.
    """
    backwards = order is TimelineOrder.DESC
    entries_after = (
        entry
        for entry in entries
        if start is None or (get_place(entry) < start if backwards else get_place(entry) > start)
    )
    return sorted(entries_after, key=get_place, reverse=backwards)[:limit]
