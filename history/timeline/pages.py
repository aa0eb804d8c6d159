"""One page of an entity's timeline: of the store, or of the store and the archive together."""

from collections.abc import Iterator
from functools import partial

from django.conf import settings
from django.utils.translation import gettext as _

from history.entities import Entity
from history.timeline import absence, neighbours, paging
from history.timeline.paging import Slice
from history.timeline.query import (
    NO_FILTERS,
    BadParameterError,
    Order,
    Query,
    Sort,
    unknown,
)
from history.timeline.reading import Reader
from history.timeline.row import FIRST, LAST, Key, Keys, Place, VersionRow
from history.timeline.versions import Page, Version


def page(reader: Reader, query: Query) -> Page:
    """The page of a timeline that the query asks for.

    At most three queries, and one for the labels every few seconds; with a path filter three more
    for every BATCH versions, with large documents for every READ_BYTES. A query with archive=True
    reads all archived versions of the entity for every page. Raises BadParameterError,
    NoVersionError where there is nothing of the entity, OlderThanRetentionError where only days
    before retention are asked for, and ArchiveUnavailableError.
    """
    if query.archive:
        reader = reader.with_archive(_archive_url())

    found = paging.page(reader, query, partial(_slices, query))
    if not found.versions and query.page_token is None:
        filtered = query.filters != NO_FILTERS
        if not filtered or not reader.keys(query.entity, [query.id]):
            raise unknown(query.entity.name, query.id, archive=query.archive)
        if not query.archive:
            absence.check_retention(query.filters)
    return found


def _archive_url() -> str:
    url: str | None = settings.ANNALS.archive_url
    if not url:
        raise BadParameterError("archive", _("this installation has no archive"))
    return url


def newest(reader: Reader, entity: Entity, id: str) -> Version:
    """The version with the highest number, without its diff and changes. Raises NoVersionError."""
    query = Query(entity=entity, id=id, sort=Sort.VERSION, page_size=1, include=frozenset())
    return page(reader, query).versions[0]


def _slices(query: Query, reader: Reader, place: Place | None, most: int) -> Iterator[Slice]:
    filters, named = query.filters, (query.entity, query.id)
    gapless = not filters.by_row
    # Whether no version is outside of the rows that were read.
    whole = gapless and place is None and (filters.since, filters.until) == (None, None)
    after = LAST if query.order is Order.DESC else FIRST
    if place is not None:
        after = Key(place.version, place.updated_at)
    size, shown, more = most, list[VersionRow](), True
    while more:
        found, unread = reader.page(query, after, size + 1)
        more = bool(unread) or len(found) > size
        around = [*shown[-1:], *found]
        # Of large documents too the last one that was read is kept to compare the one before with.
        shown = found[: max(1, len(found) - 1)] if more else found
        keys = Keys([row.key for row in around])
        proven = all(row.version == 0 or (gapless and keys.proves(row.key)) for row in shown)
        if not proven and (more or not whole):
            keys = Keys(reader.keys(query.entity, [query.id]).get(query.id, []))
        read = {row.located: row for row in around}
        places = [row.located for row in shown]
        for pairs in neighbours.batches(reader, places, {named: keys}, read):
            yield Slice(pairs, more or pairs[-1].row.located != places[-1])
        if more:
            whole, after, size = False, shown[-1].key, min(most, 2 * len(shown))
