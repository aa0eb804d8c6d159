"""Changes of all documents in a window of time: who changed what, whatever application it is in.

Begin with `fetch_changes_page`. The window is read in slices, and a page that has used its budget
ends early. Versions are compared with their previous ones as in a timeline.

The token of a feed has two places: one in time, up to which the feed was read, and one in the late
list. A page of the feed moves the first, a page of the late list the second.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

from django.utils.translation import gettext as _

from history.common import clock, deadline
from history.kinds.entities import ENTITIES, EntityKind
from history.store import late_list
from history.store.late_list import LateCursor, LateListGoneError
from history.store.versions import (
    FIRST,
    LAST,
    DamagedPlace,
    TimelinePosition,
    VersionWithPrevious,
)
from history.timeline import absence, budget, compose
from history.timeline.budget import PageBudget
from history.timeline.compose import Version
from history.timeline.open_changes import fetch_changes, fetch_late_changes
from history.timeline.page_token import issue_token, read_token
from history.timeline.pages import is_path_touched
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    EVERYTHING,
    NO_FILTERS,
    BadParameterError,
    Include,
    TimelineOrder,
    VersionFilters,
)
from history.timeline.reader import HistoryReader
from history.timeline.time_slices import ChangesQuestion, LateQuestion, TimeSlice
from history.timeline.version_index import VersionIndex, generate_pairs

DEFAULT_WINDOW: Final = timedelta(days=1)
# A longer window needs a person or a service.
MAX_OPEN_WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesQuery:
    """A page of the list of changes.

    A list in ascending order without `filters.until` is a feed: its last page has a token, too,
    which gives what came since.
    """

    # Default: the day before `until`; until now, or in a feed until `complete_to`.
    filters: VersionFilters = NO_FILTERS
    entity: EntityKind | None = None
    order: TimelineOrder = TimelineOrder.DESC
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str | None = None
    # A token of a feed: what was stored late since, for moments that the feed had passed.
    late_since: str | None = None
    include: frozenset[Include] = EVERYTHING
    # In ascending order no page passes this moment: a version before it may still be on its way.
    complete_to: datetime | None = None

    @property
    def binding(self) -> tuple[object, ...]:
        """The values that must stay the same from page to page."""
        return ("changes", self.entity.name if self.entity else None, self.order, self.filters)

    @property
    def is_feed(self) -> bool:
        return self.order is TimelineOrder.ASC and self.filters.until is None


class ChangesPage(NamedTuple):
    """Some changes in display order."""

    versions: tuple[Version, ...]
    next_token: str | None  # None on the last page; a feed always has one
    is_complete: bool  # False if the budget ended the page before it was full or the window's end
    window: tuple[datetime, datetime]  # since (included) and until of the list
    damaged: tuple[DamagedPlace, ...] = ()  # what the page lacks because it cannot be read


class _Place(NamedTuple):
    """Where a page begins: behind a position, in a window."""

    position: TimelinePosition
    since: datetime
    until: datetime
    late: LateCursor | None = None  # of a feed: where the late list is read on

    def make_token(self, query: ChangesQuery) -> str:
        """Make the token of the page that begins here."""
        values = (*self.position, self.since, self.until, self.late)
        return issue_token(query.binding, values, compress=False)


def fetch_changes_page(reader: HistoryReader, query: ChangesQuery) -> ChangesPage:
    """Return the page of the list of changes that the query asks for.

    The old service and the archive are not asked. What need-to-know hides is left out.

    Raises:
        BadParameterError: The query has neither a person nor a service nor a short window, a
            wrong path, or a token of another query.
        OlderThanRetentionError: The whole window is before retention.
    """
    reader = replace(reader.hide_old_service(), damaged={})
    reader.viewer.access.is_one_entry = True
    if query.late_since is not None:
        return _fetch_late_page(reader, query, query.late_since)
    place = _find_place(query)
    since, until = place.since, place.until
    _check_query(reader, query, since, until)
    if query.is_feed:
        place = _promise(place)
        until = place.until
    filled = _fill_page(reader, query, _generate_steps(reader, query, place), place.position)
    damaged = tuple(reader.damaged)
    position = filled.position
    if filled.is_end:
        if not query.is_feed and not _is_capped(query):
            return ChangesPage(filled.versions, None, True, (since, until), damaged)
        position = max(place.position, TimelinePosition(until, -1, "", -1))
    token = place._replace(position=position).make_token(query)
    return ChangesPage(filled.versions, token, filled.is_complete, (since, until), damaged)


def _promise(place: _Place) -> _Place:
    """Return the place with the horizon of the feed raised to its end, before it is read.

    From then on writers note what they store before that end. If one of them holds the horizon, the
    page ends where it is.
    """
    state = late_list.read_state()
    late, until = place.late or state.end, place.until
    horizon = state.horizon or FIRST.updated_at
    is_empty = until <= max(place.since, place.position.updated_at)
    if until > horizon and not is_empty and not late_list.raise_horizon(until):
        until = horizon
    return place._replace(late=late, until=max(place.since, until))


def _fetch_late_page(reader: HistoryReader, query: ChangesQuery, token: str) -> ChangesPage:
    """Return a page of the late list: what was stored for moments that the feed had passed.

    Raises:
        BadParameterError: The query is not that of a feed, or the token is of another query, or
            from before what the late list has.
    """
    if not query.is_feed:
        raise BadParameterError("lateSince", _("needs order=asc, and no to"))
    if query.page_token is not None:
        raise BadParameterError("lateSince", _("cannot be given together with pageToken"))
    place = _read_place(query, token, "lateSince")
    window = place.since, max(place.since, place.position.updated_at)
    _check_query(reader, query, *window)
    start = place.late or LateCursor(1, 0)
    try:
        filled = _fill_page(reader, query, _generate_late_steps(reader, query, place, start), start)
    except LateListGoneError:
        text = _("is from before what is known of late versions; start again without a token")
        raise BadParameterError("lateSince", text) from None
    next_token = place._replace(late=filled.position).make_token(query)
    damaged = tuple(reader.damaged)
    return ChangesPage(filled.versions, next_token, filled.is_complete, window, damaged)


def _is_capped(query: ChangesQuery) -> bool:
    """Return whether the window ends after the moment up to which the store is complete."""
    if query.order is TimelineOrder.DESC or query.filters.until is None:
        return False
    return query.complete_to is None or query.complete_to < query.filters.until


def _find_place(query: ChangesQuery) -> _Place:
    """Return where the page begins, from the token or from the parameters."""
    until = query.filters.until or clock.now()
    if query.order is TimelineOrder.ASC:
        # Nothing is known to be complete: nothing is shown yet.
        until = min(until, query.complete_to or FIRST.updated_at)
    if query.page_token is not None:
        place = _read_place(query, query.page_token)
        if query.order is TimelineOrder.DESC:
            until = place.until
        return place._replace(until=max(place.since, until))
    default_end = query.filters.until or clock.now()
    since = query.filters.since
    if since is None:
        since = _subtract(default_end, DEFAULT_WINDOW)
    if query.order is TimelineOrder.DESC:
        return _Place(TimelinePosition(LAST.updated_at, -1, "", -1), since, until)
    return _Place(TimelinePosition(FIRST.updated_at, -1, "", -1), since, max(since, until))


def _read_place(query: ChangesQuery, token: str, parameter: str = "pageToken") -> _Place:
    """Return the place in a token. See read_token."""
    *position, since, until, late = read_token(query.binding, token, parameter)
    return _Place(TimelinePosition(*position), since, until, late and LateCursor(*late))


def _subtract(moment: datetime, duration: timedelta) -> datetime:
    """Return the moment this long before; the first possible one if that is out of range."""
    return moment - duration if moment - FIRST.updated_at > duration else FIRST.updated_at


def _check_query(
    reader: HistoryReader, query: ChangesQuery, since: datetime, until: datetime
) -> None:
    filters = query.filters
    if (filters.until is not None and since > filters.until) or since > max(until, clock.now()):
        raise BadParameterError("from", _("must not be later than `to`"))
    # A feed is read on from where it stands: its window has no end, and its pages are limited.
    if filters.author is None and filters.client_id is None and not query.is_feed:
        end = filters.until or until
        if end - since > MAX_OPEN_WINDOW:
            text = _("is required, or clientId, or a window (from, to) of at most an hour")
            raise BadParameterError("author", text)
    if filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, filters.path)
    absence.check_retention(filters)


_Position = TypeVar("_Position")  # TimelinePosition, in the late list LateCursor


class _Step(NamedTuple, Generic[_Position]):
    """Some versions in the order of the list, without the path filter."""

    pairs: list[VersionWithPrevious]
    positions: list[_Position]  # behind each of them
    end: _Position  # everything up to it was read
    has_more: bool  # whether the list goes on behind it


class _Filled(NamedTuple, Generic[_Position]):
    """The versions of a page."""

    versions: tuple[Version, ...]
    position: _Position  # behind the last version that was looked at
    is_complete: bool
    is_end: bool = False  # whether the list ends there


def _fill_page(
    reader: HistoryReader,
    query: ChangesQuery,
    steps: Iterable[_Step[_Position]],
    position: _Position,
) -> _Filled[_Position]:
    """Return the versions of a page that begins at a position."""
    path = query.filters.path
    # Behind the last version that was looked at. A full page ends there, whatever was left out
    # after it: otherwise its token would tell of what need-to-know hides.
    behind = position
    versions: list[Version] = []
    examined, budget_left = 0, PageBudget()
    for step in steps:
        composer = compose.VersionComposer(reader, step.pairs, query.include, path)
        for pair, pair_position in zip(step.pairs, step.positions, strict=True):
            deadline.check()
            if examined and budget_left.is_late:
                return _Filled(tuple(versions), position, False)
            if path is None or is_path_touched(path, pair, composer):
                if len(versions) == query.page_size:
                    return _Filled(tuple(versions), behind, True)
                version = composer.compose_version(pair)
                if not budget_left.try_spend(version.answer_bytes) and versions:
                    return _Filled(tuple(versions), behind, False)
                versions.append(version)
            examined += 1
            position = behind = pair_position
        position = step.end
        if step.has_more and (budget_left.is_late or examined >= budget.SCAN_VERSIONS):
            is_full = len(versions) == query.page_size
            return _Filled(tuple(versions), position, is_full)
    return _Filled(tuple(versions), position, True, is_end=True)


def _generate_steps(
    reader: HistoryReader, query: ChangesQuery, place: _Place
) -> Iterator[_Step[TimelinePosition]]:
    """Generate the versions of a window after a position, and the slices that have none."""
    kinds = [query.entity] if query.entity else ENTITIES
    limit = _count_versions_to_read(query)
    position = place.position
    window = TimeSlice(place.since, place.until, query.order).narrow(position)
    while not window.is_empty:
        first = window.cut_first()
        began = time.monotonic()
        changes = fetch_changes(
            reader,
            ChangesQuestion(
                kinds=kinds, filters=query.filters, slice=first, after=position, limit=limit
            ),
        )
        if changes.last is None:
            share = len(changes.refs) / limit
            window = window.skip(first, share, time.monotonic() - began)
            end = first.end
        else:
            window, end = window.narrow(changes.last), changes.last
        indexes = {document: VersionIndex(keys) for document, keys in changes.keys.items()}
        refs = [ref for ref in changes.refs if ref[:2] in indexes]
        for pairs in generate_pairs(reader, refs, indexes, as_list=True):
            positions = [TimelinePosition.from_ref(pair.row.ref) for pair in pairs]
            yield _Step(pairs, positions, positions[-1], True)
        position = end
        yield _Step([], [], position, not window.is_empty)


def _generate_late_steps(
    reader: HistoryReader, query: ChangesQuery, place: _Place, cursor: LateCursor
) -> Iterator[_Step[LateCursor]]:
    """Generate the versions of the late list behind a cursor."""
    question = LateQuestion(
        kinds=[query.entity] if query.entity else ENTITIES,
        filters=query.filters,
        since=place.since,
        before=place.position,
        cursor=cursor,
        limit=_count_versions_to_read(query),
    )
    has_more = True
    while has_more:
        changes = fetch_late_changes(reader, question)
        indexes = {document: VersionIndex(keys) for document, keys in changes.keys.items()}
        refs = [ref for ref in changes.refs if ref[:2] in indexes]
        for pairs in generate_pairs(reader, refs, indexes, as_list=True):
            positions = [changes.cursors[pair.row.ref] for pair in pairs]
            yield _Step(pairs, positions, positions[-1], True)
        question, has_more = replace(question, cursor=changes.end), changes.has_more
        yield _Step([], [], changes.end, has_more)


def _count_versions_to_read(query: ChangesQuery) -> int:
    """Return how many versions one step reads."""
    return query.page_size + 1 if query.filters.path is None else budget.BATCH_VERSIONS
