"""The gate: everything that is told to a reader about a document passes here.

That is every document and key of the sources, what of a document is in quarantine, and whether the
archive may have it. The gate asks the rule of need-to-know, notes for the access journal whose data
was read, and masks. The sources know nothing about readers; this package asks no source elsewhere.
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

from history.diff import BadPathError, PathFault
from history.diff import parse_path as parse_path
from history.documents.exactjson import Json
from history.documents.top_level_fields import select_fields
from history.kinds.entities import BY_NAME, EntityKind, get_root
from history.policy import need_to_know
from history.policy.masking.mask import get_viewer_mask, is_path_into_mark, list_searchable_keys
from history.policy.masking.viewer import Viewer
from history.store import quarantine_queries
from history.store.blocks.codec import DamagedBlockError
from history.store.database import prepared
from history.store.quarantined_messages import (
    MessagePosition,
    OpenMessages,
    QuarantinedMessage,
    VersionRange,
)
from history.store.versions import (
    Damaged,
    EntityRef,
    FetchedVersions,
    NewestVersion,
    TimelinePosition,
    VersionKey,
    VersionRef,
    VersionRow,
    parse_snapshot,
)
from history.timeline.query import BadParameterError, TimelineQuery
from history.timeline.sources import tables
from history.timeline.sources.merged import (
    ArchivedSource,
    MergedSource,
    SupplementSource,
    VersionSource,
)
from history.timeline.sources.old_service import OldServiceSource
from history.timeline.sources.statements import FieldNames
from history.timeline.sources.tables import SearchHits, TableSource

RowsByRef: TypeAlias = dict[VersionRef, VersionRow]
_PATH_FAULTS = {
    PathFault.SLASH: gettext_lazy("must begin with a slash: {part}"),
    PathFault.TILDE: gettext_lazy("has a ~ without a digit from 0 to 4 after it: {part}"),
    PathFault.ITEM: gettext_lazy("has a list item that is not written [field=value]: {part}"),
}


# In the token of a page: which sources were read.
STORE_ALONE: Final = "ours"
WITH_OLD_SERVICE: Final = "both"


@dataclass(frozen=True, slots=True)
class OpenMessagesQuestion:
    """A question for the messages in quarantine about documents, and applications with their
    children.

    `statement` may be sent together with others. HistoryReader.select_open_messages makes the
    answer of its rows.
    """

    kinds: Sequence[EntityKind]  # messages of these kinds that name no document are counted
    documents: Collection[EntityRef]
    applications: Collection[str] = ()

    @classmethod
    def about(
        cls, kinds: Sequence[EntityKind], entity: EntityKind | None, id: str
    ) -> OpenMessagesQuestion:
        """Ask about a document, or (entity None) about an application with its children."""
        if entity is None:
            return cls(kinds, [(get_root(), id)], [id])
        return cls(kinds, [(entity, id)])

    @property
    def statement(self) -> prepared.Statement:
        return quarantine_queries.make_open_messages_query(
            self.kinds, self.documents, self.applications
        )


# What readers see who must not see the old service: none, which is never asked.
_HIDDEN_OLD_SERVICE: Final = OldServiceSource()


class PageSource(NamedTuple):
    """From where one page is read."""

    reader: HistoryReader  # who reads the page
    mark: str | None = None  # for the next token; None without an old service
    # the old service failed between two pages: the page must be read later
    is_for_later: bool = False


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """Who asks, and where the answer is read.

    Made once for a request, by history.timeline.readers, and passed to every question.
    """

    viewer: Viewer  # for whom the documents are
    open_archive: Callable[[], ArchivedSource | None]  # gives the archive; None if there is none
    # the old service, with the answers of this request
    old: OldServiceSource = field(default_factory=OldServiceSource)
    alone: bool = False  # the old service is hidden, and not asked for what is shown
    archive: ArchivedSource | None = None  # the archive, if it is read too
    fields: FieldNames = None  # the only top-level fields of documents for this reader; None: all
    # what lists have left out because it cannot be read, with the errors
    damaged: Damaged = field(default_factory=dict)

    def show_masked_values(self) -> HistoryReader:
        """Return the same reader, but with masked values shown: for one that is unmasked."""
        return replace(self, viewer=replace(self.viewer, in_clear=True))

    def limit_to_fields(self, fields: tuple[str, ...]) -> HistoryReader:
        """Return the same reader, for which documents have only these top-level fields, if not
        large.

        Titles are read so: they cost the same whatever the size of the document. What is compared
        must not be read so.
        """
        return replace(self, fields=fields)

    def omit_documents(self) -> HistoryReader:
        """Return the same reader, for which documents are empty: for who changed them, and when."""
        return replace(self, fields=())

    def hide_old_service(self) -> HistoryReader:
        """Return the same reader, from which the old service is hidden."""
        return replace(self, alone=True)

    def include_archive(self) -> HistoryReader:
        """Return the same reader, which reads the archive too.

        Raises:
            BadParameterError: This installation has no archive.
        """
        archive = self.open_archive()
        if archive is None:
            raise BadParameterError("archive", _("this installation has no archive"))
        return replace(self, alone=True, archive=archive)

    @property
    def shown_old(self) -> OldServiceSource:
        """The old service, or one without versions if its versions are not shown."""
        return _HIDDEN_OLD_SERVICE if self.alone else self.old

    @property
    def _source(self) -> VersionSource:
        return self._add_supplements(TableSource(self.fields))

    @property
    def _source_of_lists(self) -> VersionSource:
        """The same source, which notes what cannot be read and answers for the rest."""
        return self._add_supplements(TableSource(self.fields, self.damaged))

    def _add_supplements(self, tables: TableSource) -> VersionSource:
        # Of one version the first that has it counts.
        supplements: list[SupplementSource] = [self.archive] if self.archive else []
        if self.shown_old.possible:
            supplements.append(self.old)
        return MergedSource(supplements, tables) if supplements else tables

    # The gate.

    def _prepare_rows(self, entity: EntityKind, rows: list[VersionRow]) -> list[VersionRow]:
        """Return the rows of one kind as the viewer may see them: with need-to-know asked, and
        masked.

        Every document passes through here before anything is computed from it.

        Raises:
            NeedToKnowError, RuleFailedError: As need_to_know.check_permitted.
        """
        if not entity.alone:
            applications = dict.fromkeys(row.application for row in rows)
            self.viewer.access.note_read(applications)
            self._check_permitted(applications)
        if (fields := self.fields) is not None:
            rows = [row._replace(data=select_fields(row.data, fields)) for row in rows]
        mask = get_viewer_mask(self.viewer, entity)
        if mask is None:
            return rows
        return [row._replace(data=mask(row.id, row.data)) for row in rows]

    def _check_permitted(self, applications: Iterable[str]) -> None:
        need_to_know.check_permitted(self.viewer, applications, self._load_root_documents)

    def check_visible(self, *entity_refs: EntityRef) -> set[str]:
        """Refuse an answer about entities that exist, unless the viewer may open their
        applications.

        The number of versions, or that none fits, tells something about a document too.

        Returns:
            The applications that the entities belong to.
        """
        ids: defaultdict[EntityKind, list[str]] = defaultdict(list)
        for entity, id in entity_refs:
            ids[entity].append(id)
        owners_by_kind = (
            self._source.fetch_owners(entity, kind_ids).values() for entity, kind_ids in ids.items()
        )
        applications = {
            application for owners in chain.from_iterable(owners_by_kind) for application in owners
        }
        self._check_permitted(applications)
        return applications

    @contextmanager
    def _check_visible_on_damage(self, entity_refs: Iterable[EntityRef]) -> Iterator[None]:
        """Tell of damage only viewers who may open these entities: it says that they exist."""
        try:
            yield
        except DamagedBlockError:
            self._check_visible_under_rule(entity_refs)
            raise

    def _check_visible_under_rule(self, entity_refs: Iterable[EntityRef]) -> None:
        if need_to_know.is_rule_applied(self.viewer):
            self.check_visible(*entity_refs)

    def select_visible(self, applications: Collection[str]) -> set[str]:
        """Return those of the applications that the viewer may see. For lists, which leave out the
        others.
        """
        allowed = need_to_know.select_visible(self.viewer, applications, self._load_root_documents)
        self.viewer.access.note_left_out(sorted(set(applications) - allowed))
        return allowed

    def _load_root_documents(self, applications: Collection[str]) -> Mapping[str, Json]:
        """Return the newest document of each application, not masked, for the rule of need-to-know.

        The rule decides before anything is shown. This is a need_to_know.LoadDocuments.
        """
        damaged: Damaged = {}
        rows = tables.fetch_newest_documents(get_root(), applications, damaged=damaged)
        documents = {row.id: parse_snapshot(row.data) for row in rows}
        # Not in self.damaged: who may open these is not known.
        lacking = set(applications) - documents.keys() - {id for _, id, _ in damaged}
        return {**self.old.load_root_documents(lacking), **documents}

    def check_path(self, kinds: Iterable[EntityKind], path: str) -> None:
        """Check a path that a caller gives.

        Raises:
            BadParameterError: The path is neither a pointer nor a key path, or it leads into a
                field that is masked for the viewer as a whole, in one of these kinds.
        """
        try:
            parse_path(path)
        except BadPathError as error:
            text = _PATH_FAULTS[error.fault].format(part=repr(error.part))
            raise BadParameterError("path", text) from None
        if is_path_into_mark(self.viewer, kinds, path):
            text = _("leads into a masked field; ask for the field itself")
            raise BadParameterError("path", text)

    # What the sources have.

    def fetch_page(
        self, entity: EntityKind, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> FetchedVersions:
        """Return one page of versions of an entity, masked. See TableSource.fetch_page."""
        entity_ref = (entity, query.id)
        with self._check_visible_on_damage([entity_ref]):
            fetched = self._source.fetch_page(entity, query, after, limit)
        old_versions = self.shown_old.get_by_number(*entity_ref)
        if not fetched.rows or (old_versions and need_to_know.is_rule_applied(self.viewer)):
            self.check_visible(entity_ref)
        return FetchedVersions(self._prepare_rows(entity, fetched.rows), fetched.unread)

    def fetch_keys(self, entity: EntityKind, ids: Collection[str]) -> dict[str, list[VersionKey]]:
        """Return the keys of all versions of these entities. See TableSource.fetch_keys."""
        with self._check_visible_on_damage((entity, id) for id in ids):
            keys = self._source.fetch_keys(entity, ids)
        self._check_visible_under_rule((entity, id) for id in keys)
        return keys

    def fetch_newest(
        self, entity: EntityKind, id: str, limits: Sequence[VersionKey], count: int
    ) -> tuple[list[VersionKey], RowsByRef]:
        """Return all keys of an entity, and its newest versions, masked. See
        TableSource.fetch_newest.
        """
        with self._check_visible_on_damage([(entity, id)]):
            keys, rows = self._source.fetch_newest(entity, id, limits, count)
        self._check_visible_under_rule([(entity, id)])
        return keys, {row.ref: row for row in self._prepare_rows(entity, rows)}

    def fetch_versions(
        self, refs: Iterable[VersionRef], *, as_list: bool = False
    ) -> tuple[RowsByRef, set[VersionRef]]:
        """Return versions by ref, masked, and those that are not read yet. See
        TableSource.fetch_versions.

        Args:
            as_list: Leave out what cannot be read, and note it in `damaged`.
        """
        source = self._source_of_lists if as_list else self._source
        places = list(refs)
        with self._check_visible_on_damage(place[:2] for place in places):
            rows, unread = source.fetch_versions(places)
        rows_by_kind: defaultdict[EntityKind, list[VersionRow]] = defaultdict(list)
        for row in rows:
            rows_by_kind[row.entity].append(row)
        prepared_rows = chain.from_iterable(
            self._prepare_rows(*rows_of_kind) for rows_of_kind in rows_by_kind.items()
        )
        return {row.ref: row for row in prepared_rows}, set(unread)

    def fetch_all_versions(self, refs: Iterable[VersionRef], *, as_list: bool = False) -> RowsByRef:
        """Return all of these versions that are still stored. `as_list` is as in fetch_versions."""
        rows: RowsByRef = {}
        refs_to_read = list(refs)
        count = len(refs_to_read)
        while refs_to_read:
            read, unread = self.fetch_versions(refs_to_read[:count], as_list=as_list)
            refs_to_read = [*(ref for ref in refs_to_read if ref in unread), *refs_to_read[count:]]
            count = max(1, 2 * len(read))
            rows |= read
        return rows

    def fetch_members(self, application: str) -> dict[EntityRef, list[VersionKey]]:
        """Return the application and its children with their keys. See TableSource.fetch_members.

        What cannot be read is left out, and noted in `damaged`.
        """
        members = self._source_of_lists.fetch_members(application)
        if members or self.damaged:
            self._check_permitted([application])
        self._check_visible_under_rule([*members, *(place[:2] for place in self.damaged)])
        return members

    def fetch_application_page(
        self, query: TimelineQuery, after: TimelinePosition | None, limit: int
    ) -> tuple[list[VersionRef], dict[EntityRef, list[VersionKey]]]:
        """Return one page of an application and its children. See
        TableSource.fetch_application_page.

        Entities that cannot be read have no keys here; they are noted in `damaged`.
        """
        refs, keys = self._source_of_lists.fetch_application_page(query, after, limit)
        if refs or self.shown_old.list_members(query.id):
            self._check_permitted([query.id])
        self._check_visible_under_rule([*keys, *(place[:2] for place in self.damaged)])
        return refs, keys

    # What other records say of a document by its id.

    def select_open_messages(
        self, question: OpenMessagesQuestion, rows: prepared.FetchedRows
    ) -> OpenMessages:
        """Return the messages in quarantine that the viewer may know about.

        Read the rows before the documents and call this after them: a message that is stored in
        between is then told too often, and not too seldom. A child may have messages that do not
        name its application; if there are any, two more queries find them by the children that the
        store has.
        """
        decoded = quarantine_queries.decode_open_messages(rows)
        messages = {message.position: message for message in decoded.messages}
        children: Mapping[EntityRef, set[str]] = {}
        if decoded.may_have_nameless_children:
            children = tables.fetch_children(question.applications)
            more = OpenMessagesQuestion((), children).statement if children else None
            more_messages = (
                quarantine_queries.decode_open_messages(prepared.fetch_rows(*more)).messages
                if more
                else ()
            )
            messages |= {message.position: message for message in more_messages}
        visible_messages = sorted(
            self._select_tellable(messages.values()), key=_get_arrival, reverse=True
        )
        max_messages = quarantine_queries.MAX_MESSAGES
        owners = {
            (entity.name, id): applications for (entity, id), applications in children.items()
        }
        return OpenMessages(
            visible_messages[:max_messages],
            len(visible_messages) > max_messages,
            decoded.nameless,
            owners,
        )

    def fetch_open_messages(self, question: OpenMessagesQuestion) -> OpenMessages:
        """Fetch the messages in quarantine that the viewer may know about, now."""
        return self.select_open_messages(question, prepared.fetch_rows(*question.statement))

    def find_quarantined(
        self, entity: EntityKind, ranges: Iterable[VersionRange]
    ) -> Mapping[str, Mapping[int, QuarantinedMessage]]:
        """Return the messages in quarantine with versions of these ranges. See find_by_versions."""
        messages = quarantine_queries.find_by_versions(entity, ranges)
        visible_messages = self._select_tellable(
            [message for messages_of_id in messages.values() for message in messages_of_id.values()]
        )
        places = {message.position for message in visible_messages}
        return {
            id: {number: each for number, each in its.items() if each.position in places}
            for id, its in messages.items()
        }

    def find_resolved(self, entity: EntityKind, id: str, version: int) -> QuarantinedMessage | None:
        """Return the message that was stored out of quarantine as this version, if the viewer may
        know it.
        """
        message = quarantine_queries.find_resolved(entity, id, version)
        return message if message and self._select_tellable([message]) else None

    def may_be_archived(self, entity: EntityKind, id: str) -> bool:
        """Return whether the archive may have versions of a document that the store does not have.

        Nothing says whose document it is, so a viewer for whom a rule decides is not told.
        """
        archive = self.open_archive()
        if archive is None or (need_to_know.is_rule_applied(self.viewer) and not entity.alone):
            return False
        return archive.may_have(entity, id)

    def _select_tellable(
        self, messages: Collection[QuarantinedMessage]
    ) -> list[QuarantinedMessage]:
        """Return the messages that the viewer may know about.

        The viewer must be allowed to see every application that a stored version of the document
        names, and the one that the message names. A message that names none stays closed: there is
        no application that the rule could decide about.
        """
        if not messages or not need_to_know.is_rule_applied(self.viewer):
            return list(messages)
        owners = self._find_owners(messages)
        open_applications = self._select_open(set().union(*owners.values()))
        tellable = [
            message
            for message in messages
            if BY_NAME[message.entity].alone
            or (owners[message.position] and owners[message.position] <= open_applications)
        ]
        self.viewer.access.note_read(
            dict.fromkeys(id for message in tellable for id in owners[message.position])
        )
        return tellable

    def _find_owners(
        self, messages: Collection[QuarantinedMessage]
    ) -> dict[MessagePosition, set[str]]:
        """Return the applications that each message belongs to."""
        ids: defaultdict[EntityKind, set[str]] = defaultdict(set)
        for message in messages:
            if (entity := BY_NAME[message.entity]).parent is not None:
                ids[entity].add(message.id)
        owners = {
            (entity.name, id): applications
            for entity, children in ids.items()
            for id, applications in self._source.fetch_owners(entity, children).items()
        }
        return {
            message.position: {message.id}
            if BY_NAME[message.entity].root
            else owners.get((message.entity, message.id), set()) | ({message.application} - {""})
            for message in messages
        }

    def _select_open(self, applications: set[str]) -> set[str]:
        """Return those of the applications that the viewer may see.

        Without a document the rule has nothing to decide by: then only an earlier answer in this
        request opens an application.
        """
        unknown = applications - self.viewer.decided.keys()
        documents = self._load_root_documents(unknown) if unknown else {}
        with_document = {id for id, document in documents.items() if document is not None}
        candidates = (applications - unknown) | with_document
        allowed = need_to_know.select_visible(self.viewer, candidates, lambda _: documents)
        self.viewer.access.note_left_out(sorted(candidates - allowed))
        return allowed

    # Lists of the store alone, which leave out what is not `visible`.

    def fetch_search_hits(self, texts: Sequence[str], ids: Sequence[str], limit: int) -> SearchHits:
        """Return what has one of these ids or values, among the business keys that the viewer may
        search.
        """
        return tables.fetch_search_hits(texts, ids, list_searchable_keys(self.viewer), limit)

    def fetch_newest_documents(self, entity: EntityKind, ids: Collection[str]) -> list[VersionRow]:
        """Return the newest version with a document of each entity. See
        tables.fetch_newest_documents.

        What cannot be read is left out, and noted in `damaged`.
        """
        rows = tables.fetch_newest_documents(entity, ids, self.fields, self.damaged)
        return self._prepare_rows(entity, rows)

    def measure_newest_documents(
        self, entity_refs: Collection[EntityRef], max_bytes: int
    ) -> dict[EntityRef, int]:
        """Return how large the newest documents are of entities that the viewer was shown."""
        return tables.measure_newest_documents(entity_refs, max_bytes)

    def fetch_newest_keys(
        self, entity: EntityKind, ids: Collection[str]
    ) -> dict[str, NewestVersion]:
        """Return the newest version of each entity. See tables.fetch_newest_keys."""
        return tables.fetch_newest_keys(entity, ids)

    def fetch_newest_child_moments(self, applications: Collection[str]) -> dict[str, datetime]:
        """Return the moment of the newest version of a child, for each application that has
        children.
        """
        return tables.fetch_newest_child_moments(applications)

    def fetch_owners(self, entity: EntityKind, ids: Collection[str]) -> Mapping[str, set[str]]:
        """Return the applications that any stored version of each entity belongs to."""
        return TableSource().fetch_owners(entity, ids)

    # The old service.

    def choose_page_source(
        self, entity: EntityKind | None, id: str, page_token: str | None, mark: str | None
    ) -> PageSource:
        """Choose where a page is read: with the old service or without it.

        Args:
            entity: None for an application with its children.
            mark: What the page token says about the sources of the page before, if there is a
                token.
        """
        without_old_service, possible = self.hide_old_service(), self.shown_old.possible
        if possible and (page_token is None or mark == WITH_OLD_SERVICE):
            if self.old.request(entity, id):
                return PageSource(self, WITH_OLD_SERVICE)
            return PageSource(
                without_old_service, mark or STORE_ALONE, is_for_later=mark == WITH_OLD_SERVICE
            )
        if page_token is not None and (mark or possible):
            self.old.note_missed()
        return PageSource(without_old_service, mark)

    def list_old_keys(self, entity: EntityKind, id: str) -> list[VersionKey]:
        """Return the keys of all versions that the old service has of an entity.

        Call it only for entities whose stored keys the reader has.
        """
        return list(self.shown_old.load_rows(entity, id))


def _get_arrival(message: QuarantinedMessage) -> tuple[datetime, MessagePosition]:
    return message.came_at, message.position
