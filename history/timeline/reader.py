"""The object with which one request reads the history: the sources, and the policy of its viewer.

Only this module imports the sources. Other modules ask them through a `HistoryReader`, and get
closed answers: only `HistoryReader.policy` can read these. It returns what the viewer may see.
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
# Values in a page token: they say from which sources the page was read.
STORE_ALONE: Final = "ours"
WITH_OLD_SERVICE: Final = "both"
# Stands for an old service that is hidden: it is never asked, and has no versions.
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
    """Make the reader of a command on the host. It may read every application.

    It does not ask the old service.

    Args:
        in_clear: Whether values are not masked. True only in a command that prints no values.
    """
    return HistoryReader(Viewer(None, in_clear=in_clear), archive.open_archive)


class PageReader(NamedTuple):
    """The reader for one page of a timeline, with or without the old service."""

    reader: HistoryReader
    # STORE_ALONE or WITH_OLD_SERVICE, for the token of the next page; None if there is no old
    # service
    sources_read: str | None = None
    # whether the old service failed between two pages, so that the client must ask again later
    is_retry_needed: bool = False


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """The sources that one request reads, and the policy of its viewer.

    A request makes it once, and passes it to every function that reads versions:
    `rows = reader.policy.apply(reader.policy.release(reader.source.fetch_page(...)).rows)`.
    """

    viewer: Viewer  # the login that will see the documents
    # returns the archive; None if this installation has no archive
    open_archive: Callable[[], ArchivedSource | None]
    # the old service, with its answers to this request
    old_service: OldServiceSource = field(default_factory=OldServiceSource)
    hides_old_service: bool = False  # True: versions of the old service are not shown
    archive: ArchivedSource | None = None  # the archive, if it is read too
    fields: FieldNames = None  # only these top-level fields of snapshots are read; None: all
    # the places that cannot be read and that lists therefore lack, each with its error
    damaged: Damaged = field(default_factory=dict)

    # Copies of the reader with different settings.

    def show_masked_values(self) -> HistoryReader:
        """Return a copy of this reader that does not mask values.

        Use the copy only to answer a request to unmask a single value.
        """
        return replace(self, viewer=replace(self.viewer, in_clear=True))

    def limit_to_fields(self, fields: tuple[str, ...]) -> HistoryReader:
        """Return a copy of this reader that reads only these top-level fields of snapshots.

        Large values are left out. Titles are read in this way, because a large snapshot then costs
        no more than a small one. Do not compare such snapshots.
        """
        return replace(self, fields=fields)

    def omit_snapshots(self) -> HistoryReader:
        """Return a copy of this reader that leaves snapshots empty.

        This is enough to know who changed which document, and when.
        """
        return replace(self, fields=())

    def hide_old_service(self) -> HistoryReader:
        """Return a copy of this reader that does not show versions of the old service."""
        return replace(self, hides_old_service=True)

    def include_archive(self) -> HistoryReader:
        """Return a copy of this reader that reads the archive too, but not the old service.

        Raises:
            BadParameterError: This installation has no archive.
        """
        opened = self.open_archive()
        if opened is None:
            raise BadParameterError("archive", _("this installation has no archive"))
        return replace(self, hides_old_service=True, archive=opened)

    # The sources, and the policy.

    @property
    def source(self) -> MergedSource:
        """All sources of this reader as one. A version that cannot be read raises an error."""
        return self._merge_sources(TableSource(self.fields))

    @property
    def tolerant_source(self) -> MergedSource:
        """All sources of this reader as one, for lists.

        Documents and versions that cannot be read are left out, and recorded in `damaged`.
        """
        return self._merge_sources(TableSource(self.fields, self.damaged))

    def _merge_sources(self, tables: TableSource) -> MergedSource:
        # If several supplements have a version, the first of them wins.
        supplements: list[SupplementSource] = [self.archive] if self.archive else []
        if self.shown_old_service.is_available:
            supplements.append(self.old_service)
        return MergedSource(supplements, tables)

    @property
    def store_lists(self) -> StoreLists:
        """The object that reads lists of documents and changes, from the tables only.

        Documents and versions that cannot be read are left out, and recorded in `damaged`.
        """
        return StoreLists(self.fields, self.damaged)

    @property
    def shown_old_service(self) -> OldServiceSource:
        """The old service. If its versions are not shown, a substitute that has no versions."""
        return _HIDDEN_OLD_SERVICE if self.hides_old_service else self.old_service

    @property
    def policy(self) -> ViewerPolicy:
        """The policy that decides which rows and facts the viewer may see."""
        return ViewerPolicy(self.viewer, self.source.fetch_owners, self._load_root_snapshots)

    def _load_root_snapshots(self, applications: Collection[str]) -> Mapping[str, Json]:
        """Return the newest snapshot of each application, not masked, for the need-to-know rule.

        This is a need_to_know.LoadSnapshots. The snapshots are not shown.
        """
        damaged: Damaged = {}  # not self.damaged: the viewer may not be allowed to know of these
        rows = StoreLists(damaged=damaged).fetch_newest_snapshots(get_root(), applications)
        snapshots = {row.id: parse_snapshot(row.data) for row in rows}
        lacking = set(applications) - snapshots.keys() - {place.id for place in damaged}
        return {**self.old_service.load_root_snapshots(lacking), **snapshots}

    # The old service.

    def choose_page_reader(
        self, entity: EntityKind | None, id: str, page_token: str | None, sources_read: str | None
    ) -> PageReader:
        """Choose whether a page is read with the old service or without it.

        All pages of a timeline must be read from the same sources. If the old service failed for
        the first page, the other pages are read without it.

        Args:
            entity: None for an application with its children.
            id: The id of the document or application.
            page_token: The token of the query; None for the first page.
            sources_read: `PageReader.sources_read` of the page before, as decoded from the token.
                None for the first page, or if the token has no such value.
        """
        without_old_service = self.hide_old_service()
        is_old_service_shown = self.shown_old_service.is_available
        if is_old_service_shown and (page_token is None or sources_read == WITH_OLD_SERVICE):
            if self.old_service.load_shown_timeline(entity, id):
                return PageReader(self, WITH_OLD_SERVICE)
            return PageReader(
                without_old_service,
                sources_read or STORE_ALONE,
                is_retry_needed=sources_read == WITH_OLD_SERVICE,
            )
        if page_token is not None and (sources_read or is_old_service_shown):
            # The pages before were read without the old service, so this page lacks its versions.
            self.old_service.note_omitted_versions()
        return PageReader(without_old_service, sources_read)

    def list_old_keys(self, entity: EntityKind, id: str) -> list[VersionKey]:
        """Return the keys of all versions of a document in the old service.

        This method does not ask the policy. Call it only if the viewer may see the document.
        """
        return list(self.shown_old_service.load_rows(entity, id))

    # Parameters.

    def check_path(self, kinds: Iterable[EntityKind], path: str) -> None:
        """Check the path in a request.

        Raises:
            BadParameterError: The path is neither a pointer nor a key path. Or it leads into a
                field of one of `kinds` that is masked as a whole for the viewer.
        """
        try:
            parse_path(path)
        except BadPathError as error:
            text = _PATH_FAULTS[error.fault].format(part=repr(error.part))
            raise BadParameterError("path", text) from None
        if is_path_into_mark(self.viewer, kinds, path):
            text = _("leads into a masked field; ask for the field itself")
            raise BadParameterError("path", text)
