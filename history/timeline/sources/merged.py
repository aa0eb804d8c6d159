"""Merges the sources of one request: the tables, and the supplements.

A supplement is a source with versions that the tables lack: the archive or the old service. Begin
with `MergedSource.fetch_page`. HistoryReader decides the order of the supplements: if two
supplements have the same version, the first supplement wins. A source does not know about viewers,
masks, limits of pages or HTTP. The answers of a source are closed: only history.policy can read
them. docs/structure.md has the steps to add a source.
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
    DamagedRef,
    EntityRef,
    FetchedVersions,
    NewestVersions,
    SourceAnswer,
    SourceRow,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import TimelineOrder, TimelineQuery, TimelineSort, VersionFilters
from history.timeline.sources.statements import keep_fields
from history.timeline.sources.tables import TableSource

Entry = TypeVar("Entry")
# All version keys of each document, in number order.
KeysByEntity: TypeAlias = dict[EntityRef, list[VersionKey]]


class SupplementSource(Protocol):
    """A source with versions that the tables lack: the archive or the old service.

    It loads all versions of a document at once.
    """

    @property
    def by_number(self) -> bool:
        """Whether rows of the same number are one version, even if their moments differ."""

    def load_rows(self, entity: EntityKind, id: str, /) -> Mapping[VersionKey, SourceRow]:
        """Return all versions of a document by key.

        If the document is a child, each row has the id of the child's application.
        """

    def list_members(self, application: str, /) -> Collection[EntityRef]:
        """Return the application if the source has it, and the children that ever named it."""

    def may_hide_owners(self, entity: EntityKind, id: str, /) -> bool:
        """Return whether a document might belong to applications that its rows do not name.

        Only the rows of this source count.
        """


class ArchivedSource(SupplementSource, Protocol):
    """The archive as a source of versions that the tables lack.

    It is read only if the viewer asks for archived versions.
    """

    def find_oldest_day(self, entity: EntityKind, /) -> date | None:
        """Return the oldest archived day of a kind, or None if there is none."""

    def may_have(self, entity: EntityKind, id: str, /) -> bool:
        """Return whether the archive may have versions of a document. Reads no file."""


@dataclass(frozen=True, slots=True)
class MergedSource:
    """The tables and the supplements (archive, old service), read as one source."""

    supplements: Sequence[SupplementSource]  # if two have the same version, the first one wins
    tables: TableSource = field(default_factory=TableSource)

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> SourceAnswer[FetchedVersions]:
        """Return one page of versions of a document. See TableSource.fetch_page.

        Usually the policy decides about each row, by the application that the row names. In two
        cases the policy must decide about the whole document: the page has no row, or the document
        might belong to applications that no row of the document names. Then the answer has the
        document in `revealed_documents`, so that the policy checks it.
        """
        entity_ref = EntityRef(entity, query.id)
        try:
            fetched = self._merge_page(entity, query, after, limit)
        except DamagedBlockError as error:
            return SourceAnswer(error, revealed_documents=[entity_ref])
        is_owner_unsure = any(
            supplement.may_hide_owners(*entity_ref) for supplement in self.supplements
        )
        revealed_documents = [entity_ref] if not fetched.rows or is_owner_unsure else []
        return SourceAnswer(self._keep_fields(fetched), revealed_documents)

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
            return SourceAnswer(error, revealed_documents=[EntityRef(entity, id) for id in ids])
        return SourceAnswer(keys, revealed_documents=[EntityRef(entity, id) for id in keys])

    def fetch_versions(self, refs: Collection[VersionRef]) -> SourceAnswer[FetchedVersions]:
        """Return versions by key, as many as READ_BYTES allows. See TableSource.fetch_versions."""
        try:
            fetched = self.tables.fetch_versions(refs)
        except DamagedBlockError as error:
            return SourceAnswer(error, revealed_documents=[ref.entity_ref for ref in refs])
        if self.supplements:
            missing_refs = set(refs).difference(fetched.refs)
            supplied: dict[VersionRef, SourceRow] = {}
            for entity, id in {ref.entity_ref for ref in missing_refs}:
                for supplement in reversed(self.supplements):  # so that the earlier one wins
                    supplied |= {row.ref: row for row in supplement.load_rows(entity, id).values()}
            fetched.rows.extend(supplied[ref] for ref in missing_refs if ref in supplied)
        return SourceAnswer(self._keep_fields(fetched))

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> SourceAnswer[NewestVersions]:
        """Return all version keys of a document, and its newest versions from the tables.

        See TableSource.fetch_newest.
        """
        entity_ref = EntityRef(entity, id)
        try:
            keys, rows = self.tables.fetch_newest(entity, id, limits, count)
        except DamagedBlockError as error:
            return SourceAnswer(error, revealed_documents=[entity_ref])
        newest = NewestVersions(
            self._merge_keys(entity, id, keys), keep_fields(rows, self.tables.fields)
        )
        return SourceAnswer(newest, revealed_documents=[entity_ref])

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> dict[str, set[str]]:
        """Return for each document the applications that any of its versions names.

        Use the result only to decide whether a viewer may see the document.
        """
        owners = self.tables.fetch_owners(entity, ids)
        if entity.is_standalone:
            return owners
        for supplement in self.supplements:
            for id in ids:
                for row in supplement.load_rows(entity, id).values():
                    owners.setdefault(id, set()).add(row.application)
        return owners

    def fetch_members(self, application: str) -> SourceAnswer[KeysByEntity]:
        """Return all version keys of an application, and of each of its children.

        Documents that cannot be read are left out, and recorded in `tables.damaged`. See
        TableSource.fetch_members.
        """
        members = self.tables.fetch_members(application)
        for entity_ref in self._list_supplied_members(application):
            entity, id = entity_ref
            stored = members.get(entity_ref) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if self._is_damaged(entity_ref):
                continue
            if keys := self._merge_keys(entity, id, stored):
                members[entity_ref] = keys
        exists = bool(members) or bool(self.tables.damaged)
        return SourceAnswer(
            members,
            revealed_documents=[*members, *self._list_damaged()],
            revealed_applications=[application] if exists else [],
        )

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> SourceAnswer[ApplicationPage]:
        """Return one page of the versions of an application and its children.

        Documents that cannot be read are left out of the page's `keys`, and recorded in
        `tables.damaged`. See TableSource.fetch_application_page.
        """
        page = self._merge_application_page(query, after, limit)
        exists = bool(page.refs) or bool(self._list_supplied_members(query.id))
        return SourceAnswer(
            page,
            revealed_documents=[*page.keys, *self._list_damaged()],
            revealed_applications=[query.id] if exists else [],
        )

    def _keep_fields(self, fetched: FetchedVersions) -> FetchedVersions:
        return fetched._replace(rows=keep_fields(fetched.rows, self.tables.fields))

    def _list_damaged(self) -> list[EntityRef]:
        return [place.entity_ref for place in self.tables.damaged or ()]

    def _is_damaged(self, entity_ref: EntityRef) -> bool:
        """Return whether reading the document's version keys from the tables has failed."""
        return DamagedRef(*entity_ref, None) in (self.tables.damaged or {})

    # Merging the tables and the supplements.

    def _merge_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        """Return one page of a document's versions, in display order.

        The versions are from the tables and from the supplements (archive, old service).
        """
        # Read the supplements before the tables. Then a version that is moved to the tables between
        # the two reads is found at least once.
        supplied = self.load_supplied_rows(entity, query.id)
        fetched = self.tables.fetch_page(entity, query, after, limit)
        if not supplied:
            return fetched
        # `supplied` has only versions that the tables lacked. A consumer may have stored some of
        # them since then: the keys of this page show which.
        page_keys = [ref.key for ref in fetched.refs]
        rows_by_key: dict[VersionKey, SourceRow | None] = {  # None: the row was not read
            key: row
            for key, row in self.load_supplied_rows(entity, query.id, page_keys).items()
            if key in supplied and is_selected(query.filters, row)
        }
        rows_by_key |= {ref.key: None for ref in fetched.unread}
        rows_by_key |= {row.key: row for row in fetched.rows}
        sort_by_number = query.sort is TimelineSort.VERSION
        get_position = _get_key_by_number if sort_by_number else _get_key_by_moment
        start = get_position(VersionKey(after.version, after.updated_at)) if after else None
        keys = _select_after(rows_by_key, get_position, start, query.order, limit)
        # The page ends before the first row that was not read.
        rows: list[SourceRow] = []
        for key in keys:
            row = rows_by_key[key]
            if row is None:
                break
            rows.append(row)
        unread = [VersionRef(entity, query.id, key) for key in keys[len(rows) :]]
        return FetchedVersions(rows, unread)

    def _merge_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> ApplicationPage:
        """Return one page of the versions of an application and its children, in display order.

        The supplements (archive, old service) are read before the tables. So a version that is
        moved to the tables between the two reads is found in the tables, and not missed.
        """
        supplied = self._list_supplied_refs(query)
        refs, keys = self.tables.fetch_application_page(
            query, after, limit, need_all_keys=bool(self.supplements)
        )
        if not self.supplements:
            return ApplicationPage(refs, keys)
        page_keys: KeysByEntity = defaultdict(list)
        for ref in refs:
            page_keys[ref.entity_ref].append(ref.key)
        still_supplied = {
            VersionRef(*entity_ref, key)
            for entity_ref in {ref.entity_ref for ref in supplied}
            for key in self.load_supplied_rows(*entity_ref, page_keys[entity_ref])
        }
        if added := still_supplied.intersection(supplied):
            refs = _select_after(
                added.union(refs), TimelinePosition.from_ref, after, query.order, limit
            )
        all_keys: KeysByEntity = {}
        for entity_ref in dict.fromkeys(ref.entity_ref for ref in refs):
            entity, id = entity_ref
            stored_keys = keys.get(entity_ref) or self.tables.fetch_keys(entity, [id]).get(id, [])
            if not self._is_damaged(entity_ref):
                all_keys[entity_ref] = self._merge_keys(entity, id, stored_keys)
        return ApplicationPage(refs, all_keys)

    def load_supplied_rows(
        self, entity: EntityKind, id: str, stored: Collection[VersionKey] | None = None
    ) -> dict[VersionKey, SourceRow]:
        """Return the versions of a document that the supplements have and the tables lack.

        The result can also have versions that the tables have with the same key and content.

        Args:
            stored: The document's version keys in the tables. None: this method loads all of them
                if it needs them.
        """
        rows: dict[VersionKey, SourceRow] = {}
        for supplement in self.supplements:
            supplied = supplement.load_rows(entity, id)
            if supplied and supplement.by_number and stored is None:
                stored = self.tables.fetch_keys(entity, [id]).get(id, [])
            numbers = {key.version for key in (*(stored or ()), *rows)}
            added = {
                key: row
                for key, row in supplied.items()
                if not supplement.by_number or key.version not in numbers
            }
            rows = added | rows  # the row of an earlier supplement wins
        return rows

    def _merge_keys(
        self, entity: EntityKind, id: str, stored: list[VersionKey]
    ) -> list[VersionKey]:
        """Return all version keys of a document: in the tables, the archive and the old service.

        Args:
            stored: All version keys of the document in the tables.
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
        """Return the versions of an application and its children that the tables lack.

        These are the versions in the archive or the old service that the filters of the query
        select. Versions of a child that name a different application are left out.
        """
        return [
            row.ref
            for entity_ref in self._list_supplied_members(query.id)
            for row in self.load_supplied_rows(*entity_ref).values()
            if row.application == query.id and is_selected(query.filters, row)
        ]


def is_selected(filters: VersionFilters, row: SourceRow) -> bool:
    """Return whether the filters select a row. The path filter is not applied.

    For rows of the tables, the SQL does the same.
    """
    return (
        (filters.since is None or row.updated_at >= filters.since)
        and (filters.until is None or row.updated_at < filters.until)
        and filters.author in (None, row.author)
        and filters.client_id in (None, row.client_id)
        and filters.type in (None, row.type)
    )


class _KeyByMoment(NamedTuple):
    """The sort key of a version in a timeline that is ordered by time."""

    updated_at: datetime
    version: int


def _get_key_by_moment(key: VersionKey) -> _KeyByMoment:
    return _KeyByMoment(key.updated_at, key.version)


def _get_key_by_number(key: VersionKey) -> VersionKey:
    return key


def _select_after(
    entries: Iterable[Entry],
    get_position: Callable[[Entry], Any],
    start: object | None,
    order: TimelineOrder,
    limit: int,
) -> list[Entry]:
    """Return the first `limit` entries after `start`, in order.

    Args:
        get_position: Returns the position of an entry in the order.
        start: A position. None: begin with the first entry.
    """
    is_descending = order is TimelineOrder.DESC

    def is_after_start(entry: Entry) -> bool:
        if start is None:
            return True
        position = get_position(entry)
        return bool(position < start if is_descending else position > start)

    return sorted(filter(is_after_start, entries), key=get_position, reverse=is_descending)[:limit]
