"""The gate: every document and every key of the sources passes here on its way to a reader, and so
does everything else that is said of a document by its id: what of it is in quarantine, whether the
archive may have it.

It asks the rule of need-to-know, notes for the access journal whose data was read, and masks. The
sources know nothing of readers; the questions of this package ask no source themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from history import need_to_know, quarantined
from history.blocks.form import DamagedBlockError
from history.database import prepared
from history.diff import BadPath, PathFault
from history.diff import parse as parse_path
from history.documents.exactjson import Json
from history.documents.fields import select_fields
from history.entities import BY_NAME, Entity, root
from history.held_messages import MessagePlace, OpenMessages, Quarantined, VersionRange
from history.masking.mask import leads_into_mark, mask_of, searchable_keys
from history.masking.viewer import Viewer
from history.timeline.query import BadParameterError, Query
from history.timeline.sources import tables
from history.timeline.sources.merged import Archived, Merged, Source, Supplement
from history.timeline.sources.old_service import OldService
from history.timeline.sources.statements import Fields
from history.timeline.sources.tables import First, Tables
from history.versions import (
    Damaged,
    Key,
    Located,
    Named,
    Newest,
    Place,
    Read,
    VersionRow,
    parse,
)

Rows: TypeAlias = dict[Located, VersionRow]
_PATH_FAULTS = {
    PathFault.SLASH: gettext_lazy("must begin with a slash: {part}"),
    PathFault.TILDE: gettext_lazy("has a ~ without a digit from 0 to 4 after it: {part}"),
    PathFault.ITEM: gettext_lazy("has a list item that is not written [field=value]: {part}"),
}


# In the token of a page: which sources were read.
OURS: Final = "ours"
BOTH: Final = "both"


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question for the open messages about documents, and about applications with their children.
    `statement` may be sent together with others; Reader.open_messages makes the answer of its rows.
    kinds: those of which the messages that name no document are counted."""

    kinds: Sequence[Entity]
    documents: Collection[Named]
    applications: Collection[str] = ()

    @classmethod
    def about(cls, kinds: Sequence[Entity], entity: Entity | None, id: str) -> OpenQuestion:
        """Ask about a document, or (entity None) about an application with its children."""
        if entity is None:
            return cls(kinds, [(root(), id)], [id])
        return cls(kinds, [(entity, id)])

    @property
    def statement(self) -> prepared.Statement:
        return quarantined.ask_open_messages(self.kinds, self.documents, self.applications)


# What readers see who must not see the old service: none, which is never asked.
_HIDDEN: Final = OldService()


class Course(NamedTuple):
    """Who reads a page. mark: for the token of the next one; None where there is no old service.
    waits: the old service failed between two pages, so this page is for later."""

    reader: Reader
    mark: str | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Reader:
    """Who asks, and where the answer is read. Made once for a request, by
    history.timeline.readers, and passed to every question.

    viewer: for whom the documents are. open_archive: gives the archive; None where there is none.
    old: the old service, with what it was asked. alone: it is hidden, and not asked for what is
    shown. archive: the archive, if it is asked too. fields: the only top-level fields that
    documents have for this reader; None: all. damaged: what lists have left out because it cannot
    be read, with the errors."""

    viewer: Viewer
    open_archive: Callable[[], Archived | None]
    old: OldService = field(default_factory=OldService)
    alone: bool = False
    archive: Archived | None = None
    fields: Fields = None
    damaged: Damaged = field(default_factory=dict)

    def in_clear(self) -> Reader:
        """The same reader, who sees masked values too: for one that is unmasked."""
        return replace(self, viewer=replace(self.viewer, in_clear=True))

    def with_fields(self, fields: tuple[str, ...]) -> Reader:
        """Return the same reader, to whom documents have only these top-level fields, as far as
        they are not large: for titles, which then cost the same whatever the document's size.
        Nothing that is compared may be read so."""
        return replace(self, fields=fields)

    def without_documents(self) -> Reader:
        """Return the same reader, to whom documents are empty: for who changed them, and when."""
        return replace(self, fields=())

    def without_old_service(self) -> Reader:
        """The same reader, to whom the old service is hidden."""
        return replace(self, alone=True)

    def with_archive(self) -> Reader:
        """The same reader of the store and the archive. Raises BadParameterError if there is no
        archive."""
        archive = self.open_archive()
        if archive is None:
            raise BadParameterError("archive", _("this installation has no archive"))
        return replace(self, alone=True, archive=archive)

    @property
    def shown_old(self) -> OldService:
        """The old service, as far as its versions are shown."""
        return _HIDDEN if self.alone else self.old

    @property
    def _source(self) -> Source:
        return self._source_with(Tables(self.fields))

    @property
    def _source_of_lists(self) -> Source:
        """The same source, which notes what cannot be read, and answers for the rest."""
        return self._source_with(Tables(self.fields, self.damaged))

    def _source_with(self, tables: Tables) -> Source:
        # Of one version the first that has it counts.
        others: list[Supplement] = [self.archive] if self.archive else []
        if self.shown_old.possible:
            others.append(self.old)
        return Merged(others, tables) if others else tables

    # The gate.

    def _shown(self, entity: Entity, found: list[VersionRow]) -> list[VersionRow]:
        """The rows of a kind as the viewer may see them. Every document passes through here before
        anything is computed from it. Raises what need_to_know.permit raises."""
        if not entity.alone:
            applications = dict.fromkeys(row.application for row in found)
            self.viewer.look.read(applications)
            self._permit(applications)
        if (fields := self.fields) is not None:
            found = [row._replace(data=select_fields(row.data, fields)) for row in found]
        mask = mask_of(self.viewer, entity)
        if mask is None:
            return found
        return [row._replace(data=mask(row.id, row.data)) for row in found]

    def _permit(self, applications: Iterable[str]) -> None:
        need_to_know.permit(self.viewer, applications, self._root_documents)

    def confine(self, *named: Named) -> set[str]:
        """Refuse an answer about these entities, as far as they exist, unless the viewer may open
        them: how many versions there are, or that none fits, says something of a document too.
        Returns the applications that they belong to."""
        ids: defaultdict[Entity, list[str]] = defaultdict(list)
        for entity, id in named:
            ids[entity].append(id)
        owners = (self._source.owners(entity, its).values() for entity, its in ids.items())
        found = {each for its in chain.from_iterable(owners) for each in its}
        self._permit(found)
        return found

    @contextmanager
    def _damage_confined(self, named: Iterable[Named]) -> Iterator[None]:
        """Tell of damage only who may open these entities: it says that they exist."""
        try:
            yield
        except DamagedBlockError:
            self._confine(named)
            raise

    def _confine(self, named: Iterable[Named]) -> None:
        if need_to_know.applies(self.viewer):
            self.confine(*named)

    def visible(self, applications: Collection[str]) -> set[str]:
        """Those of these applications that the viewer may see; for lists, which leave out the
        others."""
        allowed = need_to_know.may_see(self.viewer, applications, self._root_documents)
        self.viewer.look.leave_out(sorted(set(applications) - allowed))
        return allowed

    def _root_documents(self, applications: Collection[str]) -> Mapping[str, Json]:
        """The newest document of each of these applications, not masked: for the rule of
        need-to-know, which decides before anything is shown. As need_to_know.Documents."""
        damaged: Damaged = {}
        rows = tables.newest_documents(root(), applications, damaged=damaged)
        found = {row.id: parse(row.data) for row in rows}
        # Not in self.damaged: who may open these is not known.
        lacking = set(applications) - found.keys() - {id for _, id, _ in damaged}
        return {**self.old.root_documents(lacking), **found}

    def check_path(self, kinds: Iterable[Entity], path: str) -> None:
        """Raises BadParameterError if this is neither a pointer nor a key path, or if it leads into
        a field of one of these kinds that is masked for the viewer as a whole."""
        try:
            parse_path(path)
        except BadPath as error:
            text = _PATH_FAULTS[error.fault].format(part=repr(error.part))
            raise BadParameterError("path", text) from None
        if leads_into_mark(self.viewer, kinds, path):
            text = _("leads into a masked field; ask for the field itself")
            raise BadParameterError("path", text)

    # What the sources have.

    def page(self, entity: Entity, query: Query, after: Place | None, limit: int) -> Read:
        """As Tables.page."""
        named = (entity, query.id)
        with self._damage_confined([named]):
            found = self._source.page(entity, query, after, limit)
        theirs = self.shown_old.of(*named)
        if not found.rows or (theirs and need_to_know.applies(self.viewer)):
            self.confine(named)
        return Read(self._shown(entity, found.rows), found.unread)

    def keys(self, entity: Entity, ids: Collection[str]) -> dict[str, list[Key]]:
        """As Tables.keys."""
        with self._damage_confined((entity, id) for id in ids):
            found = self._source.keys(entity, ids)
        self._confine((entity, id) for id in found)
        return found

    def newest(
        self, entity: Entity, id: str, below: Sequence[Key], count: int
    ) -> tuple[list[Key], Rows]:
        """As Tables.newest."""
        with self._damage_confined([(entity, id)]):
            keys, rows = self._source.newest(entity, id, below, count)
        self._confine([(entity, id)])
        return keys, {row.located: row for row in self._shown(entity, rows)}

    def documents(
        self, wanted: Iterable[Located], *, as_list: bool = False
    ) -> tuple[Rows, set[Located]]:
        """As Tables.documents: versions, and which of those that are wanted are unread. as_list:
        what cannot be read is left out, and noted in `damaged`."""
        source = self._source_of_lists if as_list else self._source
        places = list(wanted)
        with self._damage_confined(place[:2] for place in places):
            rows, unread = source.documents(places)
        kinds: defaultdict[Entity, list[VersionRow]] = defaultdict(list)
        for row in rows:
            kinds[row.entity].append(row)
        shown = chain.from_iterable(self._shown(*each) for each in kinds.items())
        return {row.located: row for row in shown}, set(unread)

    def bodies(self, wanted: Iterable[Located], *, as_list: bool = False) -> Rows:
        """All of these versions that are still there. as_list: as in documents()."""
        found: Rows = {}
        left = list(wanted)
        most = len(left)
        while left:
            read, unread = self.documents(left[:most], as_list=as_list)
            left = [*(place for place in left if place in unread), *left[most:]]
            most = max(1, 2 * len(read))
            found |= read
        return found

    def members(self, application: str) -> dict[Named, list[Key]]:
        """As Tables.members. What cannot be read is left out, and noted in `damaged`."""
        found = self._source_of_lists.members(application)
        if found or self.damaged:
            self._permit([application])
        self._confine([*found, *(place[:2] for place in self.damaged)])
        return found

    def of_application(
        self, query: Query, after: Place | None, limit: int
    ) -> tuple[list[Located], dict[Named, list[Key]]]:
        """As Tables.of_application. Of what cannot be read there are no keys; it is noted in
        `damaged`."""
        found, keys = self._source_of_lists.of_application(query, after, limit)
        if found or self.shown_old.of_application(query.id):
            self._permit([query.id])
        self._confine([*keys, *(place[:2] for place in self.damaged)])
        return found, keys

    # What other records say of a document by its id.

    def open_messages(self, question: OpenQuestion, rows: prepared.Rows) -> OpenMessages:
        """Return the open messages in quarantine that the viewer may know of. Ask after the
        documents were read, of rows that were read before: a message that was stored in between is
        then named too often, and not too seldom.

        A child may have messages that do not name its application. Where there are any of such
        children, two more queries find them by the children that the store has.
        """
        read = quarantined.read_open_messages(rows)
        messages = {each.place: each for each in read.messages}
        children: Mapping[Named, set[str]] = {}
        if read.others:
            children = tables.children(question.applications)
            more = OpenQuestion((), children).statement if children else None
            found = quarantined.read_open_messages(prepared.fetch(*more)).messages if more else ()
            messages |= {each.place: each for each in found}
        shown = sorted(self._tellable(messages.values()), key=_arrival, reverse=True)
        most = quarantined.MOST
        owners = {(entity.name, id): its for (entity, id), its in children.items()}
        return OpenMessages(shown[:most], len(shown) > most, read.nameless, owners)

    def ask_open_messages(self, question: OpenQuestion) -> OpenMessages:
        """Return the same, read now."""
        return self.open_messages(question, prepared.fetch(*question.statement))

    def came(
        self, entity: Entity, ranges: Iterable[VersionRange]
    ) -> Mapping[str, Mapping[int, Quarantined]]:
        """As quarantined.of_versions."""
        found = quarantined.of_versions(entity, ranges)
        shown = self._tellable([each for its in found.values() for each in its.values()])
        places = {each.place for each in shown}
        return {
            id: {number: each for number, each in its.items() if each.place in places}
            for id, its in found.items()
        }

    def left_quarantine(self, entity: Entity, id: str, version: int) -> Quarantined | None:
        """As quarantined.resolved."""
        found = quarantined.resolved(entity, id, version)
        return found if found and self._tellable([found]) else None

    def may_be_archived(self, entity: Entity, id: str) -> bool:
        """Return whether the archive may have versions of a document of which the store has none.
        Nothing says whose it is, so it is not said to readers for whom a rule decides."""
        archive = self.open_archive()
        if archive is None or (need_to_know.applies(self.viewer) and not entity.alone):
            return False
        return archive.may_have(entity, id)

    def _tellable(self, messages: Collection[Quarantined]) -> list[Quarantined]:
        """Return those of the messages that the viewer may know of: the viewer may see every
        application that a stored version of the document names, and the one that the message names.
        What names none belongs to nobody who could be asked, and stays closed."""
        if not messages or not need_to_know.applies(self.viewer):
            return list(messages)
        whose = self._whose(messages)
        opened = self._opened(set().union(*whose.values()))
        shown = [
            each
            for each in messages
            if BY_NAME[each.entity].alone or (whose[each.place] and whose[each.place] <= opened)
        ]
        self.viewer.look.read(dict.fromkeys(id for each in shown for id in whose[each.place]))
        return shown

    def _whose(self, messages: Collection[Quarantined]) -> dict[MessagePlace, set[str]]:
        """Return the applications that each message belongs to."""
        ids: defaultdict[Entity, set[str]] = defaultdict(set)
        for each in messages:
            if (entity := BY_NAME[each.entity]).parent is not None:
                ids[entity].add(each.id)
        owners = {
            (entity.name, id): its
            for entity, children in ids.items()
            for id, its in self._source.owners(entity, children).items()
        }
        return {
            each.place: {each.id}
            if BY_NAME[each.entity].root
            else owners.get((each.entity, each.id), set()) | ({each.application} - {""})
            for each in messages
        }

    def _opened(self, applications: set[str]) -> set[str]:
        """Return those of these applications that the viewer may see. Without a document the rule
        has nothing to decide by: then only an earlier answer in this request opens one."""
        unknown = applications - self.viewer.decided.keys()
        documents = self._root_documents(unknown) if unknown else {}
        known = {id for id, document in documents.items() if document is not None}
        asked = (applications - unknown) | known
        allowed = need_to_know.may_see(self.viewer, asked, lambda _: documents)
        self.viewer.look.leave_out(sorted(asked - allowed))
        return allowed

    # Lists of the store alone, which leave out what is not `visible`.

    def first(self, texts: Sequence[str], ids: Sequence[str], limit: int) -> First:
        """As tables.first, with the business keys that the viewer may search by."""
        return tables.first(texts, ids, searchable_keys(self.viewer), limit)

    def newest_documents(self, entity: Entity, ids: Collection[str]) -> list[VersionRow]:
        """As tables.newest_documents. What cannot be read is left out, and noted in `damaged`."""
        rows = tables.newest_documents(entity, ids, self.fields, self.damaged)
        return self._shown(entity, rows)

    def newest_bytes(self, named: Collection[Named], most: int) -> dict[Named, int]:
        """As tables.newest_bytes, of entities that the viewer was shown."""
        return tables.newest_bytes(named, most)

    def newest_keys(self, entity: Entity, ids: Collection[str]) -> dict[str, Newest]:
        """As tables.newest_keys."""
        return tables.newest_keys(entity, ids)

    def newest_children(self, applications: Collection[str]) -> dict[str, datetime]:
        """As tables.newest_children."""
        return tables.newest_children(applications)

    def owners(self, entity: Entity, ids: Collection[str]) -> Mapping[str, set[str]]:
        """The applications that any stored version of each of these belongs to."""
        return Tables().owners(entity, ids)

    # The old service.

    def follow(
        self, entity: Entity | None, id: str, page_token: str | None, mark: str | None
    ) -> Course:
        """The course of a page of an entity, or (None) of an application with its children. mark:
        of the token, if there is one."""
        alone, possible = self.without_old_service(), self.shown_old.possible
        if possible and (page_token is None or mark == BOTH):
            if self.old.want(entity, id):
                return Course(self, BOTH)
            return Course(alone, mark or OURS, waits=mark == BOTH)
        if page_token is not None and (mark or possible):
            self.old.missed()
        return Course(alone, mark)

    def old_keys(self, entity: Entity, id: str) -> list[Key]:
        """The keys of all versions that the old service has of an entity whose keys the reader
        has."""
        return list(self.shown_old.rows(entity, id))


def _arrival(message: Quarantined) -> tuple[datetime, MessagePlace]:
    return message.came_at, message.place
