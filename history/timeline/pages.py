"""Pages of timelines: of an entity, from the store or with its archive, or of an application with
its children. Has the page tokens and the filter by changed path.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from django.utils.translation import gettext as _

from history.common import deadline
from history.diff import is_touched
from history.documents.record import ID_LENGTH
from history.kinds.entities import ENTITIES, EntityKind
from history.store.versions import (
    Damaged,
    DamagedPlace,
    TimelinePosition,
    VersionRow,
    VersionWithPrevious,
    get_entity_ref,
)
from history.timeline import absence, budget, compose
from history.timeline.budget import PageBudget
from history.timeline.compose import Version
from history.timeline.page_token import issue_token, read_token
from history.timeline.query import (
    NO_FILTERS,
    BadParameterError,
    NoVersionError,
    TimelineQuery,
    TimelineSort,
    is_storable_id,
    make_unknown_error,
)
from history.timeline.reader import HistoryReader
from history.timeline.version_index import VersionIndex, fetch_keys, fetch_members, generate_pairs


@dataclass(frozen=True, slots=True)
class TimelinePage:
    """Some versions in display order. next_token: None on the last page. A page that its budget
    ended has fewer versions than asked for, with a path filter even none, and a token. damaged:
    what a page of an application lacks, because it cannot be read: versions, or all of an entity;
    with these, the versions that would be compared with them."""

    versions: tuple[Version, ...]
    next_token: str | None  # None on the last page
    damaged: tuple[DamagedPlace, ...] = ()


def fetch_page(reader: HistoryReader, query: TimelineQuery) -> TimelinePage:
    """The page of a timeline that the query asks for. Versions of an application with its children
    are ordered by time; those of one moment in the order of ENTITIES, id, version.

    Of an entity at most three queries, of an application two, and one for the labels every few
    seconds; with a path filter more for every BATCH versions, with large documents for every
    READ_BYTES. A query with archive=True reads all archived versions of the entity for every page.
    It ends early where its budget is spent. Raises BadParameterError, NoVersionError where there is
    nothing of the entity, OlderThanRetentionError where only days before retention are asked for,
    and ArchiveUnavailableError.
    """
    damaged: Damaged = {}  # of this answer alone
    every, reader = reader.damaged, replace(reader, damaged=damaged)
    if query.archive:
        reader = reader.include_archive()
    _check_query(reader, query)
    last_position, mark = None, None
    if query.page_token is not None:
        position = read_token(query.binding, query.page_token)
        size = len(TimelinePosition._fields)
        last_position, mark = TimelinePosition(*position[:size]), (*position, None)[size]
    source = reader.choose_page_source(query.entity, query.id, query.page_token, mark)
    if source.is_for_later:
        return TimelinePage((), query.page_token)
    versions, last_position = _fill_page(source.reader, query, last_position)
    every.update(damaged)
    if not versions and query.page_token is None:
        for error in damaged.values():
            raise error
        if query.filters == NO_FILTERS or not _is_known(reader, query):
            raise make_unknown_error(query.entity, query.id, archive=query.archive)
        if not query.archive:
            absence.check_retention(query.filters)
    if last_position is None:
        return TimelinePage(tuple(versions), None, tuple(damaged))
    token = issue_token(query.binding, (*last_position, source.mark), compress=False)
    return TimelinePage(tuple(versions), token, tuple(damaged))


def fetch_newest_version(reader: HistoryReader, entity: EntityKind, id: str) -> Version:
    """Return the version with the highest number, without its diff and changes.

    Raises:
        NoVersionError: There is nothing of the entity.
    """
    query = TimelineQuery(
        entity=entity, id=id, sort=TimelineSort.VERSION, page_size=1, include=frozenset()
    )
    return fetch_page(reader, query).versions[0]


def _fill_page(
    reader: HistoryReader, query: TimelineQuery, position: TimelinePosition | None
) -> tuple[list[Version], TimelinePosition | None]:
    """Return the versions of one page, and the position of the last version that was examined.

    The page ends when it is full or its budget is spent. With a path filter a full page goes on, to
    see whether any other version fits. The position is None if nothing follows.
    """
    size, path = query.page_size, query.filters.path
    size, max_examined = (
        (size, size) if path is None else (budget.BATCH_VERSIONS, budget.SCAN_VERSIONS)
    )
    versions, examined, budget_left = list[Version](), 0, PageBudget()
    for pairs, has_more in _generate_slices(reader, query, position, size):
        composer = compose.VersionComposer(reader, pairs, query.include, path)
        for pair in pairs:
            deadline.check()
            if examined and budget_left.is_late:
                return versions, position
            if path is None or is_path_touched(path, pair, composer):
                if len(versions) == query.page_size:
                    return versions, position
                version = composer.compose_version(pair)
                if not budget_left.try_spend(version.answer_bytes) and versions:
                    return versions, position
                versions.append(version)
            examined += 1
            position = TimelinePosition.from_ref(pair.row.ref)
        if has_more and (budget_left.is_late or examined >= max_examined):
            return versions, position
    return versions, None


def _check_query(reader: HistoryReader, query: TimelineQuery) -> None:
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", _("must not be later than to"))
    if query.filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, query.filters.path)
    if not is_storable_id(query.id):
        raise NoVersionError(_("an id has 1 to {n} characters").format(n=ID_LENGTH))


def _is_known(reader: HistoryReader, query: TimelineQuery) -> bool:
    if query.entity is None:
        return bool(fetch_members(reader, query.id))
    return bool(fetch_keys(reader, query.entity, [query.id]))


def is_path_touched(
    path: str, pair: VersionWithPrevious, composer: compose.VersionComposer
) -> bool:
    """Return whether a version changed something at, below or around a path."""
    if pair.previous is None:
        return False
    snapshots = composer.snapshots.parse_pair(pair.previous.data, pair.row.data)
    return is_touched(path, *snapshots, compose.get_identity(pair.entity))


# Versions in display order, and whether others follow.
Slices: TypeAlias = Iterator[tuple[list[VersionWithPrevious], bool]]


def _generate_slices(
    reader: HistoryReader, query: TimelineQuery, after: TimelinePosition | None, size: int
) -> Slices:
    """Generate all versions after a position in slices, without the path filter.

    Args:
        after: None for the start of the timeline.
        size: How many versions are probably wanted at once.
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
) -> Slices:
    filters, entity_ref = query.filters, (entity, query.id)
    is_gapless = not filters.by_row
    # Whether no version is outside of the rows that were read.
    is_whole = is_gapless and start is None and (filters.since, filters.until) == (None, None)
    last_position, size, shown_rows, has_more = start, max_size, list[VersionRow](), True
    while has_more:
        page = reader.policy.release(
            reader.source.fetch_page(entity, query, last_position, size + 1)
        )
        rows = reader.policy.apply(page.rows)
        has_more = bool(page.unread) or len(rows) > size
        rows_by_ref = {row.ref: row for row in (*shown_rows[-1:], *rows)}
        # Of large documents too the last one that was read is kept to compare the one before with.
        shown_rows = rows[: max(1, len(rows) - 1)] if has_more else rows
        keys = VersionIndex([key for *_, key in rows_by_ref])
        are_pairs_certain = all(
            row.version == 0 or (is_gapless and keys.has_certain_previous(row.key))
            for row in shown_rows
        )
        if not are_pairs_certain and (has_more or not is_whole):
            keys = VersionIndex(fetch_keys(reader, entity, [query.id]).get(query.id, []))
        refs = [row.ref for row in shown_rows]
        for pairs in generate_pairs(reader, refs, {entity_ref: keys}, rows_by_ref):
            yield pairs, has_more or pairs[-1].row.ref != refs[-1]
        if has_more:
            is_whole, last_position, size = (
                False,
                TimelinePosition.from_ref(refs[-1]),
                min(max_size, 2 * len(shown_rows)),
            )


def _generate_application_slices(
    reader: HistoryReader, query: TimelineQuery, after: TimelinePosition | None, size: int
) -> Slices:
    has_more = True
    while has_more:
        refs, keys = reader.policy.release(
            reader.list_source.fetch_application_page(query, after, size + 1)
        )
        shown_refs, has_more = refs[:size], len(refs) > size
        indexes = {
            entity_ref: VersionIndex(entity_keys) for entity_ref, entity_keys in keys.items()
        }
        known_refs = [ref for ref in shown_refs if get_entity_ref(ref) in indexes]
        for pairs in generate_pairs(reader, known_refs, indexes, as_list=True):
            yield pairs, has_more or pairs[-1].row.ref != known_refs[-1]
        if has_more:
            after = TimelinePosition.from_ref(shown_refs[-1])
