"""Changes of all documents in a window of time: who changed what, whatever application it is in.

Begin with `fetch_changes_page`. The window is read in slices, and a page that has used its budget
ends early. Versions are compared with their previous ones as in a timeline.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.utils.translation import gettext as _

from history.common import clock, deadline
from history.kinds.entities import ENTITIES, EntityKind
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
from history.timeline.open_changes import fetch_changes
from history.timeline.pages import is_path_touched
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    EVERYTHING,
    NO_FILTERS,
    BadParameterError,
    Include,
    TimelineOrder,
    VersionFilters,
    issue_token,
    read_token,
)
from history.timeline.reader import HistoryReader
from history.timeline.time_slices import ChangesQuestion, TimeSlice
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
    place = _find_place(query)
    since, until = place.since, place.until
    _check_query(reader, query, since, until)
    versions, position, is_complete = _fill_page(reader, query, place)
    damaged = tuple(reader.damaged)
    end = until
    if position is None and (query.is_feed or _is_capped(query)):
        position = max(place.position, TimelinePosition(until, -1, "", -1))
    if position is None:
        return ChangesPage(versions, None, True, (since, end), damaged)
    token = issue_token(query.binding, (*position, since, until), compress=False)
    return ChangesPage(versions, token, is_complete, (since, end), damaged)


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
        *position, since, first_until = read_token(query.binding, query.page_token)
        if query.order is TimelineOrder.DESC:
            until = first_until
        return _Place(TimelinePosition(*position), since, max(since, until))
    default_end = query.filters.until or clock.now()
    since = query.filters.since
    if since is None:
        since = _subtract(default_end, DEFAULT_WINDOW)
    if query.order is TimelineOrder.DESC:
        return _Place(TimelinePosition(LAST.updated_at, -1, "", -1), since, until)
    return _Place(TimelinePosition(FIRST.updated_at, -1, "", -1), since, max(since, until))


def _subtract(moment: datetime, duration: timedelta) -> datetime:
    """Return the moment this long before; the first possible one if that is out of range."""
    return moment - duration if moment - FIRST.updated_at > duration else FIRST.updated_at


def _check_query(
    reader: HistoryReader, query: ChangesQuery, since: datetime, until: datetime
) -> None:
    filters = query.filters
    if (filters.until is not None and since > filters.until) or since > max(until, clock.now()):
        raise BadParameterError("from", _("must not be later than to"))
    # A feed is read on from where it stands: its window has no end, and its pages are limited.
    if filters.author is None and filters.client_id is None and not query.is_feed:
        end = filters.until or until
        if end - since > MAX_OPEN_WINDOW:
            text = _("is required, or clientId, or a window (from, to) of at most an hour")
            raise BadParameterError("author", text)
    if filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, filters.path)
    absence.check_retention(filters)


class _Filled(NamedTuple):
    """The versions of a page, and the position behind the last version that was looked at."""

    versions: tuple[Version, ...]
    position: TimelinePosition | None  # None at the end of the window
    is_complete: bool


def _fill_page(reader: HistoryReader, query: ChangesQuery, place: _Place) -> _Filled:
    path, position = query.filters.path, place.position
    # Behind the last version that was looked at: a full page ends there, whatever was left out
    # after it, or its token would tell of what need-to-know hides.
    behind = position
    versions: list[Version] = []
    examined, budget_left = 0, PageBudget()
    for step in _generate_steps(reader, query, place):
        composer = compose.VersionComposer(reader, step.pairs, query.include, path)
        for pair in step.pairs:
            deadline.check()
            if examined and budget_left.is_late:
                return _Filled(tuple(versions), position, False)
            if path is None or is_path_touched(path, pair, composer):
                if len(versions) == query.page_size:
                    return _Filled(tuple(versions), behind, True)
                version = composer.compose_version(pair)
                if not budget_left.try_spend(version.size) and versions:
                    return _Filled(tuple(versions), behind, False)
                versions.append(version)
            examined += 1
            position = behind = TimelinePosition.from_ref(pair.row.ref)
        position = step.position
        if step.has_more and (budget_left.is_late or examined >= budget.SCAN_VERSIONS):
            is_full = len(versions) == query.page_size
            return _Filled(tuple(versions), position, is_full)
    return _Filled(tuple(versions), None, True)


class _Step(NamedTuple):
    """Some versions in display order, without the path filter."""

    pairs: list[VersionWithPrevious]
    position: TimelinePosition  # everything up to it was read
    has_more: bool  # whether the window goes on behind it


def _generate_steps(reader: HistoryReader, query: ChangesQuery, place: _Place) -> Iterator[_Step]:
    """Generate the versions of a window after a position, and the slices that have none."""
    kinds = [query.entity] if query.entity else ENTITIES
    limit = query.page_size + 1 if query.filters.path is None else budget.BATCH_VERSIONS
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
            yield _Step(pairs, TimelinePosition.from_ref(pairs[-1].row.ref), True)
        position = end
        yield _Step([], position, not window.is_empty)
