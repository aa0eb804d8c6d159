"""What one request reads the history with: the sources, and the policy of its viewer.

Only this module names the sources. Whoever asks them gets sealed answers and SourceRows, which
`HistoryReader.policy` turns into what the viewer may see.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from history.diff import BadPathError, PathFault, parse_path
from history.documents.exactjson import Json
from history.kinds.entities import EntityKind, get_root
from history.policy.access_record import AccessRecord
from history.policy.masking.mask import is_path_into_mark
from history.policy.masking.viewer import Caller, Viewer
from history.policy.viewer_policy import ViewerPolicy
from history.store.versions import Damaged, VersionKey, parse_snapshot
from history.timeline.fallback import client
from history.timeline.query import BadParameterError
from history.timeline.sources import archive
from history.timeline.sources.merged import ArchivedSource, MergedSource, SupplementSource
from history.timeline.sources.old_service import OldServiceSource
from history.timeline.sources.statements import FieldNames
from history.timeline.sources.store_lists import StoreLists
from history.timeline.sources.tables import TableSource

_PATH_FAULTS: Final = {
    PathFault.SLASH: gettext_lazy("must begin with a slash: {part}"),
    PathFault.TILDE: gettext_lazy("has a ~ without a digit from 0 to 4 after it: {part}"),
    PathFault.ITEM: gettext_lazy("has a list item that is not written [field=value]: {part}"),
}
# In the token of a page: which sources were read.
STORE_ALONE: Final = "ours"
WITH_OLD_SERVICE: Final = "both"
# What viewers see who must not see the old service: none, which is never asked.
_HIDDEN_OLD_SERVICE: Final = OldServiceSource()


def make_request_reader(user: Caller, access: AccessRecord) -> HistoryReader:
    """Make the reader of one HTTP request."""
    service = client.load_endpoint()
    old_service = (
        OldServiceSource(partial(client.call_in_thread, service), service.seconds)
        if service
        else OldServiceSource()
    )
    return HistoryReader(Viewer(user, access), archive.open_archive, old_service)


def make_host_reader(*, in_clear: bool = False) -> HistoryReader:
    """Make the reader of a program on the host, which reads every application, from the store
    alone.

    Args:
        in_clear: Show masked values: for a program that compares documents and prints none.
    """
    return HistoryReader(Viewer(None, in_clear=in_clear), archive.open_archive)


class PageSource(NamedTuple):
    """From where one page is read."""

    reader: HistoryReader  # reads the page
    mark: str | None = None  # for the next token; None without an old service
    # the old service failed between two pages: the page must be read later
    is_for_later: bool = False


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """The sources that one request reads, and the policy of its viewer.

    Made once for a request and passed to every function that reads history:
    `rows = reader.policy.apply(reader.policy.release(reader.source.fetch_page(...)).rows)`.
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

    # The same reader for another purpose.

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
        opened = self.open_archive()
        if opened is None:
            raise BadParameterError("archive", _("this installation has no archive"))
        return replace(self, alone=True, archive=opened)

    # What it reads with.

    @property
    def source(self) -> MergedSource:
        """All sources as one. It answers with an error if something cannot be read."""
        return self._merge_sources(TableSource(self.fields))

    @property
    def list_source(self) -> MergedSource:
        """The same for lists: what cannot be read is left out, and noted in `damaged`."""
        return self._merge_sources(TableSource(self.fields, self.damaged))

    def _merge_sources(self, tables: TableSource) -> MergedSource:
        # Of one version the first supplement that has it counts.
        supplements: list[SupplementSource] = [self.archive] if self.archive else []
        if self.shown_old.possible:
            supplements.append(self.old)
        return MergedSource(supplements, tables)

    @property
    def lists(self) -> StoreLists:
        """Lists of entities in the store alone. What cannot be read is noted in `damaged`."""
        return StoreLists(self.fields, self.damaged)

    @property
    def shown_old(self) -> OldServiceSource:
        """The old service, or one without versions if its versions are not shown."""
        return _HIDDEN_OLD_SERVICE if self.alone else self.old

    @property
    def policy(self) -> ViewerPolicy:
        """What decides which rows and facts the viewer may see."""
        return ViewerPolicy(self.viewer, self.source.fetch_owners, self._load_root_documents)

    def _load_root_documents(self, applications: Collection[str]) -> Mapping[str, Json]:
        """Return the newest document of each application, not masked, for the rule of need-to-know.

        The rule decides before anything is shown. This is a need_to_know.LoadDocuments.
        """
        damaged: Damaged = {}  # not self.damaged: who may open these is not known
        rows = StoreLists(damaged=damaged).fetch_newest_documents(get_root(), applications)
        documents = {row.id: parse_snapshot(row.data) for row in rows}
        lacking = set(applications) - documents.keys() - {id for _, id, _ in damaged}
        return {**self.old.load_root_documents(lacking), **documents}

    # The old service.

    def choose_page_source(
        self, entity: EntityKind | None, id: str, page_token: str | None, mark: str | None
    ) -> PageSource:
        """Choose where a page is read: with the old service or without it.

        Args:
            entity: None for an application with its children.
            id: Of the entity or the application.
            page_token: Of the query, if it is not for the first page.
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

        Call it only for entities whose stored keys the viewer has seen.
        """
        return list(self.shown_old.load_rows(entity, id))

    # Parameters.

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
