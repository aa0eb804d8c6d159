"""One page of an entity's timeline: of the store, or of the store and the archive together."""

from collections.abc import Sequence

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
from history.timeline.row import FIRST, LAST, Key, Place, VersionRow
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

    def read(reader: Reader, after: Place | None, size: int, carry: Sequence[VersionRow]) -> Slice:
        return read_slice(reader, query, after, size, carry)

    found = paging.page(reader, query, read)
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


def read_slice(
    reader: Reader, query: Query, after: Place | None, size: int, carry: Sequence[VersionRow]
) -> Slice:
    """Up to `size` versions after a place, fewer where they are large. The path filter is not
    applied here."""
    filters = query.filters
    start = LAST if query.order is Order.DESC else FIRST
    key = Key(after.version, after.updated_at) if after else start
    read = reader.page(query, key, size + 1)
    found, more = read.rows, bool(read.unread) or len(read.rows) > size
    # Of large documents too the last one that was read is kept to compare the one before it with.
    shown = found[: max(1, len(found) - 1)] if more else found
    gapless = not filters.by_row
    bounded = (filters.since, filters.until) != (None, None)
    pairs = neighbours.pair_up(
        reader,
        query.entity,
        query.id,
        shown,
        [*carry, *found],
        gapless=gapless,
        whole=gapless and not bounded and after is None and not more,
    )
    return Slice(pairs, pairs[-1].place if more or len(pairs) < len(shown) else None)
