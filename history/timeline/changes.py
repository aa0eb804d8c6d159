"""Changes of all documents in a span of time: who changed what, in whatever application.

Begin with `fetch_changes_page`. The span is read in slices, and a page that has used its budget
ends early. Each version is compared with its previous version, as in a timeline.

The token of a feed has the position up to which the feed was read, and a cursor of the late list.
A page of the feed moves the position. A page of the late list moves the cursor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.utils.translation import gettext as _

from history.common import clock
from history.diff.path_filter import get_top_level_field
from history.kinds.entities import ENTITIES, EntityKind
from history.policy import access_record
from history.store import late_list
from history.store.late_list import LateCursor, LateListGoneError
from history.store.versions import (
    FIRST,
    LAST,
    DamagedRef,
    TimelinePosition,
)
from history.timeline import absence, budget
from history.timeline.compose import Version
from history.timeline.page_token import issue_token, read_token
from history.timeline.pages import VersionSlice, fill_page
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
from history.timeline.time_slices import (
    FIRST_SLICE,
    FIRST_SLICE_WITHOUT_MAKER,
    ChangesQuestion,
    LateQuestion,
    TimeSlice,
)
from history.timeline.version_index import VersionIndex, generate_pairs
from history.timeline.visible_changes import fetch_changes, fetch_late_changes

DEFAULT_SPAN: Final = timedelta(days=1)
# The longest span of a list that is not limited to one author or one service.
MAX_SPAN_WITHOUT_MAKER: Final = timedelta(hours=1)
# How many versions one statement lists, at most, for a list with a path filter.
_MAX_VERSIONS_TO_LIST: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesQuery:
    """A request for one page of the list of changes.

    A list in ascending order without `filters.until` is a feed. The last page of a feed has a token
    too: a later request with this token returns the versions that have arrived in the meantime.
    """

    # If `since` is None, the span begins a day before its end. If `until` is None, the span ends
    # now; in ascending order it ends at `complete_to`.
    filters: VersionFilters = NO_FILTERS
    entity: EntityKind | None = None
    order: TimelineOrder = TimelineOrder.DESC
    page_size: int = DEFAULT_PAGE_SIZE
    page_token: str | None = None
    # A token of a feed. The page has the versions that were stored after the token was issued, with
    # moments that the feed had passed.
    late_since: str | None = None
    include: frozenset[Include] = EVERYTHING
    # Whether the span of a list without an author or a service is limited to
    # MAX_SPAN_WITHOUT_MAKER.
    is_span_limited: bool = True
    # In ascending order no page passes this moment: a version before it may still be on its way.
    complete_to: datetime | None = None

    @property
    def binding(self) -> tuple[object, ...]:
        """The values that must be the same in the requests for all pages. See `issue_token`."""
        return ("changes", self.entity.name if self.entity else None, self.order, self.filters)

    @property
    def is_feed(self) -> bool:
        return self.order is TimelineOrder.ASC and self.filters.until is None

    @property
    def has_maker(self) -> bool:
        """Whether the list has only the versions that one author or one service made."""
        return self.filters.author is not None or self.filters.client_id is not None


class ChangesPage(NamedTuple):
    """One page of the list of changes, in display order."""

    versions: tuple[Version, ...]
    next_token: str | None  # None on the last page; a feed always has one
    is_complete: bool  # False if the budget ended the page: it is not full, and more may follow
    span: tuple[datetime, datetime]  # since (included) and until of the list
    # All changes up to this moment are on this page or on earlier pages. None for the late list.
    read_to: datetime | None
    damaged: tuple[DamagedRef, ...] = ()  # damaged versions that the page leaves out


def fetch_changes_page(reader: HistoryReader, query: ChangesQuery) -> ChangesPage:
    """Return one page of the list of changes.

    The old service and the archive are not read. Versions that need-to-know hides are left out.

    Raises:
        BadParameterError: The span, the path or the token is wrong. Or the span is too long for a
            list without an author or a service.
        OlderThanRetentionError: The whole span is before retention.
    """
    reader = replace(reader.hide_old_service(), damaged={})
    access = reader.viewer.access
    access.is_one_entry = True
    access.question = describe_filters(query)
    if query.late_since is not None:
        return _fetch_late_page(reader, query, query.late_since)
    start = _find_start(query)
    _check_query(reader, query, start.since, start.until)
    if query.is_feed:
        start = _raise_horizon(start)
    span = (start.since, start.until)
    access.question |= _describe_span(*span)
    slices = _generate_slices(reader, query, start)
    page = fill_page(reader, query, slices, start.position, budget.SCAN_VERSIONS)
    damaged = tuple(reader.damaged)
    position = page.position
    if page.is_end:
        if not query.is_feed and not _is_capped(query):
            end = start.since if query.order is TimelineOrder.DESC else start.until
            return ChangesPage(page.versions, None, True, span, end, damaged)
        # The next page begins at the end of this span.
        position = max(start.position, TimelinePosition(start.until, -1, "", -1))
    token = start._replace(position=position).make_token(query)
    read_to = min(max(position.updated_at, start.since), start.until)
    return ChangesPage(page.versions, token, page.is_complete, span, read_to, damaged)


def describe_filters(query: ChangesQuery) -> dict[str, str]:
    """Return the filters of a query as the access journal records them, by parameter of the API.

    The span is left out, and parts of the path that may be data of the bank's clients are hidden.
    """
    filters = query.filters
    values = {
        "author": filters.author,
        "clientId": filters.client_id,
        "entity": query.entity.name if query.entity else None,
        "type": None if filters.type is None else filters.type.name,
        "path": access_record.hide_data_in_path(filters.path) if filters.path else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _describe_span(since: datetime, until: datetime) -> dict[str, str]:
    return {"from": since.isoformat(), "to": until.isoformat()}


class _ChangesStart(NamedTuple):
    """Where a page begins: the values of its token."""

    position: TimelinePosition  # the page begins after it
    since: datetime
    until: datetime
    # where the next page of the late list begins; None if the list of changes is not a feed
    late: LateCursor | None = None

    def make_token(self, query: ChangesQuery) -> str:
        """Return the token of the page of `query` that begins after `self.position`."""
        values = (*self.position, self.since, self.until, self.late)
        return issue_token(query.binding, values, compress=False)


def _find_start(query: ChangesQuery) -> _ChangesStart:
    """Return where the page begins, from the token or from the parameters."""
    until = query.filters.until or clock.now()
    if query.order is TimelineOrder.ASC:
        # If it is not known up to when the store is complete, the span is empty.
        until = min(until, query.complete_to or FIRST.updated_at)
    if query.page_token is not None:
        start = _read_start(query, query.page_token)
        if query.order is TimelineOrder.DESC:
            until = start.until
        return start._replace(until=max(start.since, until))
    default_end = query.filters.until or clock.now()
    since = query.filters.since
    if since is None:
        since = _subtract(default_end, DEFAULT_SPAN)
    if query.order is TimelineOrder.DESC:
        return _ChangesStart(TimelinePosition(LAST.updated_at, -1, "", -1), since, until)
    return _ChangesStart(TimelinePosition(FIRST.updated_at, -1, "", -1), since, max(since, until))


def _read_start(query: ChangesQuery, token: str, parameter: str = "pageToken") -> _ChangesStart:
    """Decode the token of a page: it says where the page begins. Raises as `read_token` does.

    Args:
        parameter: The name of the parameter that has the token, for errors.
    """
    *position, since, until, late = read_token(query.binding, token, parameter)
    return _ChangesStart(TimelinePosition(*position), since, until, late and LateCursor(*late))


def _subtract(moment: datetime, duration: timedelta) -> datetime:
    """Return `moment` minus `duration`, or the first possible moment if that is out of range."""
    return moment - duration if moment - FIRST.updated_at > duration else FIRST.updated_at


def _check_query(
    reader: HistoryReader, query: ChangesQuery, since: datetime, until: datetime
) -> None:
    filters = query.filters
    if (filters.until is not None and since > filters.until) or since > max(until, clock.now()):
        raise BadParameterError("from", _("must not be later than `to`"))
    # A feed may have a long span: it has no end, and is read page by page.
    if query.is_span_limited and not query.has_maker and not query.is_feed:
        end = filters.until or until
        if end - since > MAX_SPAN_WITHOUT_MAKER:
            text = _(
                "is required, or clientId, or a span (from, to) of at most an hour. Ask for a "
                "longer time hour by hour, or run `annals changes`, which has no such limit"
            )
            raise BadParameterError("author", text)
    if filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, filters.path)
    absence.check_retention(filters)


def _raise_horizon(start: _ChangesStart) -> _ChangesStart:
    """Raise the horizon of the feed to the end of the page's span, before the span is read.

    From then on, if a consumer stores a version with an earlier moment, it adds the version to the
    late list.

    Returns:
        `start`, changed in two cases. If `start` does not have a cursor of the late list, it gets
        the end of the late list. If the horizon cannot be raised because writers hold the lock of
        the horizon, the span ends at the present horizon.
    """
    state = late_list.read_state()
    late, until = start.late or state.end, start.until
    horizon = state.horizon or FIRST.updated_at
    is_empty = until <= max(start.since, start.position.updated_at)
    if until > horizon and not is_empty and not late_list.raise_horizon(until):
        until = horizon
    return start._replace(late=late, until=max(start.since, until))


def _is_capped(query: ChangesQuery) -> bool:
    """Return whether the page ends at `complete_to`, before the end that the query asks for.

    If so, the rest of the span follows on a later page.
    """
    if query.order is TimelineOrder.DESC or query.filters.until is None:
        return False
    return query.complete_to is None or query.complete_to < query.filters.until


def _fetch_late_page(reader: HistoryReader, query: ChangesQuery, token: str) -> ChangesPage:
    """Return a page of the late list: versions stored after the feed had passed their moments.

    Raises:
        BadParameterError: The query is not a feed, or the token is of another query. Or the late
            list does not have the versions after the token any more.
    """
    if not query.is_feed:
        raise BadParameterError("lateSince", _("works only with order=asc, and without to"))
    if query.page_token is not None:
        raise BadParameterError("lateSince", _("cannot be given together with pageToken"))
    start = _read_start(query, token, "lateSince")
    span = start.since, max(start.since, start.position.updated_at)
    _check_query(reader, query, *span)
    reader.viewer.access.question |= _describe_span(*span)
    cursor = start.late or LateCursor(1, 0)
    try:
        slices = _generate_late_slices(reader, query, start, cursor)
        page = fill_page(reader, query, slices, cursor, budget.SCAN_VERSIONS)
    except LateListGoneError:
        text = _("is too old: the late list does not go back so far; start again without a token")
        raise BadParameterError("lateSince", text) from None
    next_token = start._replace(late=page.position).make_token(query)
    damaged = tuple(reader.damaged)
    return ChangesPage(page.versions, next_token, page.is_complete, span, None, damaged)


def _generate_slices(
    reader: HistoryReader, query: ChangesQuery, start: _ChangesStart
) -> Iterator[VersionSlice[TimelinePosition]]:
    """Generate the versions after `start`, in slices.

    The span of the query is read in parts. The versions of one part are in any number of slices.
    After them, one slice without versions is generated, and its `end` is the end of the part.
    """
    kinds = [query.entity] if query.entity else ENTITIES
    limit = _count_versions_to_read(query)
    path = query.filters.path
    field = None if path is None else get_top_level_field(path)
    position = start.position
    width = FIRST_SLICE if query.has_maker else FIRST_SLICE_WITHOUT_MAKER
    span = TimeSlice(start.since, start.until, query.order, width).narrow(position)
    while not span.is_empty:
        first = span.cut_first()
        began = time.monotonic()
        changes = fetch_changes(
            reader,
            ChangesQuestion(
                kinds=kinds,
                filters=query.filters,
                slice=first,
                after=position,
                limit=limit,
                field=field,
            ),
        )
        if changes.last is None:
            share = len(changes.refs) / limit
            span = span.skip(first, share, time.monotonic() - began)
            end = first.end
        else:
            span, end = span.narrow(changes.last), changes.last
        if path is not None:
            # The first few versions may fill the page. If they did not, list more at a time.
            limit = min(16 * limit, _MAX_VERSIONS_TO_LIST)
        indexes = {document: VersionIndex(keys) for document, keys in changes.keys.items()}
        refs = [ref for ref in changes.refs if ref.entity_ref in indexes]
        for pairs in generate_pairs(reader, refs, indexes, skip_damaged=True):
            positions = [TimelinePosition.from_ref(pair.row.ref) for pair in pairs]
            yield VersionSlice(pairs, positions, positions[-1], has_more=True)
        position = end
        yield VersionSlice([], [], position, has_more=not span.is_empty)


def _generate_late_slices(
    reader: HistoryReader, query: ChangesQuery, start: _ChangesStart, cursor: LateCursor
) -> Iterator[VersionSlice[LateCursor]]:
    """Generate the versions of the late list after a cursor. See `_generate_slices`."""
    question = LateQuestion(
        kinds=[query.entity] if query.entity else ENTITIES,
        filters=query.filters,
        since=start.since,
        until=start.position,
        cursor=cursor,
        limit=_count_versions_to_read(query),
    )
    has_more = True
    while has_more:
        changes = fetch_late_changes(reader, question)
        indexes = {document: VersionIndex(keys) for document, keys in changes.keys.items()}
        refs = [ref for ref in changes.refs if ref.entity_ref in indexes]
        for pairs in generate_pairs(reader, refs, indexes, skip_damaged=True):
            positions = [changes.cursors[pair.row.ref] for pair in pairs]
            yield VersionSlice(pairs, positions, positions[-1], has_more=True)
        question, has_more = replace(question, cursor=changes.end), changes.has_more
        yield VersionSlice([], [], changes.end, has_more)


def _count_versions_to_read(query: ChangesQuery) -> int:
    """Return how many versions are read at a time."""
    return query.page_size + 1 if query.filters.path is None else budget.BATCH_VERSIONS
