"""One page of an entity's timeline."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext as _

from history.entities import Entity
from history.timeline import absence, archived, neighbours, paging
from history.timeline.neighbours import Place
from history.timeline.paging import Slice
from history.timeline.query import (
    NO_FILTERS,
    Filters,
    OlderThanRetentionError,
    Order,
    Query,
    Sort,
    unknown,
)
from history.timeline.sources import memory, union
from history.timeline.sources.statements import FIRST, LAST, Key, VersionRow
from history.timeline.versions import Page, Version


@memory.remembered()
def page(query: Query) -> Page:
    """The page of a timeline that the query asks for.

    At most three queries, and one for the labels every few seconds; with a path filter three more
    for every BATCH versions, with large documents for every READ_BYTES. A query with archive=True
    reads all versions of the entity for every page. Raises BadParameterError, NoVersionError where
    the store has nothing of the entity, and OlderThanRetentionError where only days before
    retention are asked for.
    """

    if query.archive:
        return archived.page(query)

    def read(after: Place | None, size: int, carry: Sequence[VersionRow]) -> Slice:
        return read_slice(query, after, size, carry)

    found = paging.page(query, read)
    if not found.versions and query.page_token is None:
        filtered = query.filters != NO_FILTERS
        if not filtered or not union.exists(query.entity, query.id):
            raise unknown(query.entity.name, query.id)
        check_retention(query.filters)
    return found


def newest(entity: Entity, id: str) -> Version:
    """The version with the highest number, without its diff and changes. Raises NoVersionError."""
    query = Query(entity=entity, id=id, sort=Sort.VERSION, page_size=1, include=frozenset())
    return page(query).versions[0]


def check_retention(filters: Filters) -> None:
    """Raise OlderThanRetentionError where only days before retention are asked for."""
    start = absence.kept_from()
    if filters.until is not None and filters.until <= start:
        text = _("versions before {day} are not kept")
        raise OlderThanRetentionError(text.format(day=f"{start:%Y-%m-%d}"))


def read_slice(query: Query, after: Place | None, size: int, carry: Sequence[VersionRow]) -> Slice:
    """Up to `size` versions after a place, fewer where they are large. The path filter is not
    applied here."""
    filters = query.filters
    start = LAST if query.order is Order.DESC else FIRST
    key = Key(after.version, after.updated_at) if after else start
    read = union.page(query.entity, query.id, filters, query.sort, query.order, key, size + 1)
    found, more = read.rows, bool(read.unread) or len(read.rows) > size
    # Of large documents too the last one that was read is kept to compare the one before it with.
    shown = found[: max(1, len(found) - 1)] if more else found
    gapless = not filters.by_row
    bounded = (filters.since, filters.until) != (None, None)
    pairs = neighbours.pair_up(
        query.entity,
        query.id,
        shown,
        [*carry, *found],
        gapless=gapless,
        whole=gapless and not bounded and after is None and not more,
    )
    return Slice(pairs, pairs[-1].place if more or len(pairs) < len(shown) else None)
