"""Fetches pages of timelines: of one document, or of an application with its children.

Begin with `fetch_page`. `fill_page` fills a page from slices of versions, until the page is full or
reaches a limit of size or time. The list of changes uses `fill_page` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from django.utils.translation import gettext as _

from history.common import deadline
from history.diff import is_touched
from history.documents.record import ID_LENGTH
from history.kinds.entities import ENTITIES, EntityKind
from history.store.versions import (
    Damaged,
    DamagedRef,
    EntityRef,
    TimelinePosition,
    VersionRow,
    VersionWithPrevious,
)
from history.timeline import absence, budget, compose
from history.timeline.budget import PageBudget
from history.timeline.compose import Version, VersionComposer
from history.timeline.page_token import issue_token, read_token
from history.timeline.query import (
    NO_FILTERS,
    BadParameterError,
    Include,
    NoVersionError,
    TimelineQuery,
    TimelineSort,
    VersionFilters,
    is_storable_id,
    make_unknown_error,
)
from history.timeline.reader import HistoryReader
from history.timeline.version_index import VersionIndex, fetch_keys, fetch_members, generate_pairs


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """One page of a timeline: versions in display order.

    A page that reaches a limit of size or time has fewer versions than `page_size`, and a token for
    the rest. With a path filter such a page can have no version.
    """

    versions: tuple[Version, ...]
    next_token: str | None  # None on the last page
    # The damaged versions that a page of an application leaves out. Versions that would be compared
    # with a damaged one are left out too.
    damaged: tuple[DamagedRef, ...] = ()


def fetch_page(reader: HistoryReader, query: TimelineQuery) -> TimelinePage:
    """Return one page of a timeline.

    The page ends early if it reaches a limit of size or time.

    The timeline of an application with its children is ordered by time. Versions of the same
    moment are ordered by kind as in ENTITIES, then by id, then by version number.

    A page takes at most three queries for a document and two for an application. Every few seconds
    one more query loads the labels. A path filter adds queries for every BATCH_VERSIONS versions.
    Large snapshots add queries for every READ_BYTES. If the query includes the archive, each page
    reads all archived versions of the document.

    Raises:
        BadParameterError: A filter, the path or the token is wrong, or there is no archive.
        NoVersionError: The document has no version.
        OlderThanRetentionError: All requested days are before retention.
        ArchiveUnavailableError: The archive cannot be read.
    """
    # Collect the damage of this page separately: the reader may have noted that of other pages.
    page_damaged: Damaged = {}
    all_damaged = reader.damaged
    reader = replace(reader, damaged=page_damaged)
    if query.archive:
        reader = reader.include_archive()
    _check_query(reader, query)
    start = _TimelineStart() if query.page_token is None else _read_start(query, query.page_token)
    page_reader = reader.choose_page_reader(
        query.entity, query.id, query.page_token, start.sources_read
    )
    if page_reader.is_retry_needed:
        # The old service failed since the page before: the client must ask for this page again.
        return TimelinePage((), query.page_token)
    page = _fill_timeline_page(page_reader.reader, query, start.position)
    all_damaged.update(page_damaged)
    if not page.versions and query.page_token is None:
        if page_damaged:
            raise next(iter(page_damaged.values()))
        if query.filters == NO_FILTERS or not _is_known(reader, query):
            raise make_unknown_error(query.entity, query.id, archive=query.archive)
        if not query.archive:
            absence.check_retention(query.filters)
    token = None
    if not page.is_end and page.position is not None:
        token = issue_token(
            query.binding, (*page.position, page_reader.sources_read), compress=False
        )
    return TimelinePage(page.versions, token, tuple(page_damaged))


def _check_query(reader: HistoryReader, query: TimelineQuery) -> None:
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", _("must not be later than `to`"))
    if query.filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, query.filters.path)
    if not is_storable_id(query.id):
        raise NoVersionError(_("an id has 1 to {n} characters").format(n=ID_LENGTH))


class _TimelineStart(NamedTuple):
    """The values of a page token."""

    # the last position that the previous page examined; None: this is the first page
    position: TimelinePosition | None = None
    sources_read: str | None = None  # see `PageReader.sources_read`


def _read_start(query: TimelineQuery, token: str) -> _TimelineStart:
    """Decode the token of a page: it says where the page begins. Raises as `read_token` does."""
    values = read_token(query.binding, token)
    size = len(TimelinePosition._fields)
    # A token of an earlier release may have only the position.
    return _TimelineStart(TimelinePosition(*values[:size]), (*values, None)[size])


# The type of a position in a list: LateCursor in the late list, otherwise TimelinePosition. None is
# the start of a timeline.
Position = TypeVar("Position")


class PageQuery(Protocol):
    """A query for versions, with only the fields that `fill_page` uses."""

    @property
    def page_size(self) -> int: ...
    @property
    def include(self) -> frozenset[Include]: ...
    @property
    def filters(self) -> VersionFilters: ...


class VersionSlice(NamedTuple, Generic[Position]):
    """Versions that follow one another in a list, in display order.

    The path filter is not applied.
    """

    pairs: list[VersionWithPrevious]
    positions: list[Position]  # for each pair, the position after it
    end: Position  # the position after all that was read for the slice
    has_more: bool  # whether more may follow in the list


class FilledPage(NamedTuple, Generic[Position]):
    """The versions of a page, and where the next page begins."""

    versions: tuple[Version, ...]
    position: Position  # the next page begins after it
    is_complete: bool  # False if the budget ended the page: it is not full, and more may follow
    is_end: bool = False  # whether the list ends here


def fill_page(
    reader: HistoryReader,
    query: PageQuery,
    slices: Iterable[VersionSlice[Position]],
    start: Position,
    max_examined: int,
) -> FilledPage[Position]:
    """Return the versions of a page that begins after `start`.

    The page ends when it reaches a limit of size or time. It also ends when it is full and one more
    version passes the path filter, because then there is a next page.

    Args:
        slices: The versions after `start`. A slice is read only when all versions of the previous
            slice were examined.
        max_examined: After this many examined versions, no further slice is read.
    """
    path = query.filters.path
    read_to = start  # everything up to this position was read
    # The position after the last version that was examined. A full page ends here and not at
    # `read_to`: a token with `read_to` would reveal that need-to-know hides versions in between.
    examined_to = start
    versions: list[Version] = []
    examined, budget_left = 0, PageBudget()
    for slice in slices:
        composer = VersionComposer(reader, slice.pairs, query.include, path)
        for pair, pair_position in zip(slice.pairs, slice.positions, strict=True):
            deadline.check()
            if examined and budget_left.is_late:
                return FilledPage(tuple(versions), read_to, is_complete=False)
            if path is None or _is_path_touched(path, pair, composer):
                if len(versions) == query.page_size:
                    return FilledPage(tuple(versions), examined_to, is_complete=True)
                version = composer.compose_version(pair)
                if not budget_left.try_spend(version.answer_bytes) and versions:
                    return FilledPage(tuple(versions), examined_to, is_complete=False)
                versions.append(version)
            examined += 1
            read_to = examined_to = pair_position
        read_to = slice.end
        if slice.has_more and (budget_left.is_late or examined >= max_examined):
            is_full = len(versions) == query.page_size
            return FilledPage(tuple(versions), read_to, is_complete=is_full)
    return FilledPage(tuple(versions), read_to, is_complete=True, is_end=True)


def _is_path_touched(path: str, pair: VersionWithPrevious, composer: VersionComposer) -> bool:
    """Return whether a version changed the value at a path, or a value below or above the path.

    The first version of a document changed nothing.
    """
    if pair.previous is None:
        return False
    snapshots = composer.snapshots.parse_pair(pair.previous.data, pair.row.data)
    return is_touched(path, *snapshots, compose.get_identity(pair.entity))


# The position is None for the start of the timeline.
TimelineSlice: TypeAlias = VersionSlice[TimelinePosition | None]


def _fill_timeline_page(
    reader: HistoryReader, query: TimelineQuery, start: TimelinePosition | None
) -> FilledPage[TimelinePosition | None]:
    """Return the versions of the timeline's page after `start`, and where the next page begins.

    Args:
        start: The last position that was examined for the page before. None for the first page.
    """
    # Without a path filter, all versions that are examined are on the page.
    slice_size = max_examined = query.page_size
    if query.filters.path is not None:
        slice_size, max_examined = budget.BATCH_VERSIONS, budget.SCAN_VERSIONS
    slices = _generate_slices(reader, query, start, slice_size)
    return fill_page(reader, query, slices, start, max_examined)


def _generate_slices(
    reader: HistoryReader, query: TimelineQuery, after: TimelinePosition | None, size: int
) -> Iterator[TimelineSlice]:
    """Generate all versions after a position, in slices. The path filter is not applied.

    Args:
        after: The position; None for the start of the timeline.
        size: How many versions the caller probably needs.
    """
    if query.entity is None:
        return _generate_application_slices(reader, query, after, size)
    return _generate_entity_slices(reader, query.entity, query, after, size)


def _generate_entity_slices(
    reader: HistoryReader,
    entity: EntityKind,
    query: TimelineQuery,
    start: TimelinePosition | None,
    max_size: int,
) -> Iterator[TimelineSlice]:
    """Generate the versions of one document. See `_generate_slices`."""
    filters, entity_ref = query.filters, EntityRef(entity, query.id)
    is_gapless = not filters.may_skip_versions
    # Whether the next read may return all versions of the document.
    may_be_whole = is_gapless and start is None and (filters.since, filters.until) == (None, None)
    last_position, size, shown_rows, has_more = start, max_size, list[VersionRow](), True
    while has_more:
        page = reader.policy.release(
            reader.source.fetch_page(entity, query, last_position, size + 1)
        )
        rows = reader.policy.apply(page.rows)
        has_more = bool(page.unread) or len(rows) > size
        # In ascending order, the first row is compared with the last row of the slice before.
        rows_by_ref = {row.ref: row for row in (*shown_rows[-1:], *rows)}
        # Leave the last row to the next slice. In descending order it is the previous version of
        # the row before it, and its own previous version has not been read.
        shown_rows = rows[: max(1, len(rows) - 1)] if has_more else rows
        keys = VersionIndex([ref.key for ref in rows_by_ref])
        are_pairs_certain = all(
            row.version == 0 or (is_gapless and keys.has_certain_previous(row.key))
            for row in shown_rows
        )
        # If these rows are the whole document, their keys are all keys of the document.
        if not are_pairs_certain and (has_more or not may_be_whole):
            keys = VersionIndex(fetch_keys(reader, entity, [query.id]).get(query.id, []))
        refs = [row.ref for row in shown_rows]
        for pairs in generate_pairs(reader, refs, {entity_ref: keys}, rows_by_ref):
            yield _make_slice(pairs, has_more or pairs[-1].row.ref != refs[-1])
        if has_more:
            may_be_whole = False
            last_position = TimelinePosition.from_ref(refs[-1])
            size = min(max_size, 2 * len(shown_rows))


def _generate_application_slices(
    reader: HistoryReader, query: TimelineQuery, after: TimelinePosition | None, size: int
) -> Iterator[TimelineSlice]:
    """Generate the versions of an application and its children. See `_generate_slices`."""
    has_more = True
    while has_more:
        refs, keys = reader.policy.release(
            reader.tolerant_source.fetch_application_page(query, after, size + 1)
        )
        shown_refs, has_more = refs[:size], len(refs) > size
        indexes = {
            entity_ref: VersionIndex(entity_keys) for entity_ref, entity_keys in keys.items()
        }
        # A document that cannot be read has no index: its versions are left out.
        known_refs = [ref for ref in shown_refs if ref.entity_ref in indexes]
        for pairs in generate_pairs(reader, known_refs, indexes, skip_damaged=True):
            yield _make_slice(pairs, has_more or pairs[-1].row.ref != known_refs[-1])
        if has_more:
            after = TimelinePosition.from_ref(shown_refs[-1])


def _make_slice(pairs: list[VersionWithPrevious], has_more: bool) -> TimelineSlice:
    positions: list[TimelinePosition | None] = [
        TimelinePosition.from_ref(pair.row.ref) for pair in pairs
    ]
    return VersionSlice(pairs, positions, positions[-1], has_more)


def _is_known(reader: HistoryReader, query: TimelineQuery) -> bool:
    """Return whether the document or application has any version. Filters are not applied."""
    if query.entity is None:
        return bool(fetch_members(reader, query.id))
    return bool(fetch_keys(reader, query.entity, [query.id]))


def fetch_newest_version(reader: HistoryReader, entity: EntityKind, id: str) -> Version:
    """Return the version with the highest number, without its patch and changes.

    Raises:
        NoVersionError: The document has no version.
    """
    query = TimelineQuery(
        entity=entity, id=id, sort=TimelineSort.VERSION, page_size=1, include=frozenset()
    )
    return fetch_page(reader, query).versions[0]
