"""The gate: every document and every key of the sources passes here on its way to a reader.

It asks the rule of need-to-know, notes for the access journal whose data was read, and masks. The
sources know nothing of readers; the questions of this package ask no source themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from history import masking, need_to_know
from history.documents.exactjson import Json
from history.entities import PARTS, Entity, root
from history.fallback import Asked
from history.fallback import client as old_service
from history.masking.reader import Caller, Viewer
from history.need_to_know import Unknown
from history.requests.accesses import Look
from history.timeline.query import Filters, Order, Query
from history.timeline.row import IdKey, Key, Newest, Numbered, Position, Read, VersionRow
from history.timeline.sources import ahead, archive, newest
from history.timeline.sources.merged import Merged
from history.timeline.sources.newest import First
from history.timeline.sources.old import OldService
from history.timeline.sources.statements import fits
from history.timeline.sources.tables import Tables
from history.timeline.versions import Version, parse

__all__ = ["Reader", "fits"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks, and where the answer is read. Made once for a request and passed to every question.

    viewer: for whom the documents are. old: the old service, with what it was asked."""

    viewer: Viewer
    old: OldService = field(default_factory=OldService)
    _tables: Tables = field(default_factory=Tables)

    @classmethod
    def of(cls, user: Caller, look: Look) -> Reader:
        """The reader of a request."""
        return cls(Viewer(user, look), OldService(Asked(old_service.service())))

    @classmethod
    def on_host(cls, *, in_clear: bool = False) -> Reader:
        """A program on the host, which reads every application, of the store alone. in_clear: not
        masked; for one that compares documents and shows none."""
        return cls(Viewer(None, in_clear=in_clear))

    def anew(self) -> Reader:
        """The same reader at the next question: what the one before found does not count, because
        versions may have come since."""
        return replace(self, _tables=Tables())

    def in_clear(self) -> Reader:
        """The same reader, who sees masked values too: for one that is unmasked."""
        return replace(self, viewer=replace(self.viewer, in_clear=True))

    def of_store(self) -> Reader:
        """The same reader of the store alone."""
        return replace(self, old=replace(self.old, hidden=True))

    @property
    def _source(self) -> Merged:
        return Merged(self._tables, self.old)

    # What a question will ask for in several statements is read in one, before it asks.

    def expect(self, entity: Entity, id: str, below: Sequence[Key], count: int) -> None:
        """As ahead.entity."""
        ahead.entity(self._tables, entity, id, below, count)

    def expect_documents(self, wanted: Mapping[Entity, Iterable[IdKey]]) -> None:
        """As ahead.documents."""
        ahead.documents(self._tables, wanted)

    def expect_application(self, application: str) -> None:
        """As ahead.application."""
        ahead.application(self._tables, application)

    # The gate.

    def _shown(self, entity: Entity, found: list[VersionRow]) -> list[VersionRow]:
        """The rows as the viewer may see them. Every document passes through here before anything
        is computed from it. Raises what need_to_know.permit raises."""
        if not entity.alone:
            applications = dict.fromkeys(row.product_instance_id or row.id for row in found)
            self.viewer.look.read(applications)
            self._permit(applications)
        mask = masking.mask_of(self.viewer, entity)
        if mask is None:
            return found
        return [row._replace(data=mask(row.id, row.data)) for row in found]

    def _permit(self, applications: Iterable[str]) -> None:
        need_to_know.permit(self.viewer, applications, self._root_documents)

    def confine(self, entity: Entity, ids: Iterable[str]) -> set[str]:
        """Refuse an answer about these entities, as far as they exist, unless the viewer may open
        them: how many versions there are, or that none fits, says something of a document too.
        Returns the applications that they belong to."""
        owners = self._source.owners(entity, list(ids)).values()
        found = {each for its in owners for each in its}
        self._permit(found)
        return found

    def visible(self, applications: Collection[str]) -> set[str]:
        """Those of these applications that the viewer may see; for lists, which leave out the
        others."""
        allowed = need_to_know.may_see(self.viewer, applications, self._root_documents)
        self.viewer.look.leave_out(sorted(set(applications) - allowed))
        return allowed

    def _root_documents(self, applications: Collection[str]) -> Mapping[str, Json | Unknown]:
        """The newest document of each of these applications, not masked: for the rule of
        need-to-know, which decides before anything is shown. Without those of which neither the
        store nor the old service has one."""
        rows = newest.newest_documents(root(), applications)
        found: dict[str, Json | Unknown] = {row.id: parse(row.data) for row in rows}
        return {**self.old.root_documents(set(applications) - found.keys()), **found}

    def _opened(self, application: str, found: bool) -> None:
        """Ask the rule where anything of the application was found, or the old service has any."""
        if found or self.old.of_application(application):
            self._permit([application])

    # What the sources have.

    def page(self, query: Query, after: Key, limit: int) -> Read:
        """Up to `limit` versions after the key (FIRST or LAST to begin with), in display order;
        fewer where their documents are larger than READ_BYTES. The path filter is not applied."""
        found = self._source.page(query, after, limit)
        entity, id = query.entity, query.id
        if not found.rows or (need_to_know.applies(self.viewer) and self.old.of(entity, id)):
            self.confine(entity, [id])
        return Read(self._shown(entity, found.rows), found.unread)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        """The keys of all versions of these entities, ascending. One that has none is not there."""
        found = self._source.keys(entity, ids)
        if need_to_know.applies(self.viewer):
            self.confine(entity, found)
        return found

    def first_bodies(
        self, entity: Entity, wanted: Sequence[IdKey]
    ) -> tuple[dict[IdKey, VersionRow], Sequence[IdKey]]:
        """The first of the versions with these ids and keys, as far as they are (still) there: at
        least one, and as many as READ_BYTES allow. The second part: those not read yet."""
        found, left = self._source.first_bodies(entity, wanted)
        return self._by_place(entity, found), left

    def bodies(self, entity: Entity, wanted: Iterable[IdKey]) -> dict[IdKey, VersionRow]:
        """All versions with these ids and keys that are still there."""
        return self._by_place(entity, self._source.bodies(entity, wanted))

    def _by_place(
        self, entity: Entity, found: Mapping[IdKey, VersionRow]
    ) -> dict[IdKey, VersionRow]:
        return {(row.id, row.key): row for row in self._shown(entity, list(found.values()))}

    def exists(self, entity: Entity, id: str) -> bool:
        """Whether there is any version of this entity."""
        self.confine(entity, [id])
        return self._source.exists(entity, id)

    def belongs(self, entity: Entity, application: str) -> bool:
        """Whether any version of this kind is the application or a child of it."""
        found = self._source.belongs(entity, application)
        self._opened(application, found)
        return found

    def children(self, entity: Entity, application: str) -> list[str]:
        """The ids of the children of one kind that name the application in any version."""
        found = self._source.children(entity, application)
        self._opened(application, bool(found))
        return found

    def of_application(
        self, application: str, filters: Filters, order: Order, after: Position | None, limit: int
    ) -> list[tuple[Entity, str, Key]]:
        """Up to `limit` versions of an application and its children after a place (None to begin
        with), in display order: kind, id, key."""
        found = self._source.of_application(application, filters, order, after, limit)
        self._opened(application, bool(found))
        return found

    def versions(self, application: str) -> dict[tuple[Entity, str, int], list[VersionRow]]:
        """All versions of an application and its children, by kind, id and number; more than one
        where a producer gave the number twice."""
        found: dict[tuple[Entity, str, int], list[VersionRow]] = defaultdict(list)
        for entity in PARTS:
            ids = [application] if entity.root else self.children(entity, application)
            if not ids:
                continue
            known = self.keys(entity, ids)
            wanted: list[IdKey] = [(id, key) for id in known for key in known[id]]
            for (id, key), row in sorted(self.bodies(entity, wanted).items()):
                if row.product_instance_id in (None, application):
                    found[entity, id, key.version].append(row)
        return found

    def with_archive(self, url: str, entity: Entity, id: str) -> dict[Key, VersionRow]:
        """All versions of the entity, of the archive and the store; a version of both comes once.
        Raises ArchiveUnavailableError."""
        archived = archive.versions(url, entity, id)
        stored = self.keys(entity, [id]).get(id, [])
        read = self.bodies(entity, [(id, key) for key in stored])
        return {row.key: row for row in (*self._shown(entity, archived), *read.values())}

    def newest_documents(self, entity: Entity, ids: Collection[str]) -> list[VersionRow]:
        """Of each of these entities the newest version that has a document: a DELETE may have
        none."""
        return self._shown(entity, newest.newest_documents(entity, ids))

    # Keys alone, of the store: for lists, which leave out what is not `visible`.

    def first(self, texts: Sequence[str], ids: Sequence[str], limit: int) -> First:
        """As newest.first, with the business keys that the viewer may search by."""
        keys = masking.searchable_keys(self.viewer)
        return newest.first(texts, ids, keys, limit)

    def newest_keys(self, entity: Entity, ids: Collection[str]) -> dict[str, Key]:
        """As newest.newest_keys."""
        return newest.newest_keys(entity, ids)

    def applications_of(self, entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
        """As newest.applications_of."""
        return newest.applications_of(entity, ids)

    def owners(self, entity: Entity, ids: Collection[str]) -> Mapping[str, set[str]]:
        """The applications that any stored version of each of these belongs to."""
        return self._tables.owners(entity, ids)

    # Keys alone, of an entity whose keys the reader has.

    def twins(self, entity: Entity, id: str, version: int, stored: Collection[Key]) -> list[Key]:
        """As Merged.twins."""
        return self._source.twins(entity, id, version, stored)

    def only_old(self, entity: Entity, id: str, stored: Collection[Key]) -> list[int]:
        """The numbers that only the old service has."""
        return [key.version for key in self._source.only_old(entity, id, stored)]

    def given_twice(
        self, shown: Iterable[Version], *, whole: bool
    ) -> Mapping[Numbered, tuple[datetime, ...]]:
        """As newest.given_twice."""
        return newest.given_twice(shown, whole=whole)
