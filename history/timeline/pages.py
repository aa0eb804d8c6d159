"""One page of an entity's timeline: of the store, or of the store and the archive together."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time

from django.conf import settings
from django.utils.translation import gettext as _

from history.archive import manifest
from history.entities import Entity
from history.timeline import absence, neighbours, paging
from history.timeline.neighbours import CLOCK_TOLERANCE, Keys, Pair, Place
from history.timeline.paging import Slice
from history.timeline.query import (
    NO_FILTERS,
    Absence,
    BadParameterError,
    Filters,
    NoVersionError,
    OlderThanRetentionError,
    Order,
    Query,
    Sort,
    unknown,
)
from history.timeline.reading import Reader, fits
from history.timeline.row import FIRST, LAST, Key, VersionRow
from history.timeline.versions import Page, Version


def with_archive(reader: Reader, query: Query) -> Page:
    """The page that the query asks for, from the store and the archive together.

    Raises BadParameterError where there is no archive, NoVersionError where neither the
    store nor the archive has anything of the entity, and ArchiveUnavailableError.
    """
    url = settings.ANNALS.archive_url
    if not url:
        raise BadParameterError("archive", _("this installation has no archive"))
    both: dict[Key, VersionRow] = {}

    def read(reader: Reader, after: Place | None, size: int, _: Sequence[VersionRow]) -> Slice:
        if not both:
            both.update(reader.with_archive(url, query.entity, query.id))
        return _slice_of_both(query, both, after, size)

    shown = paging.page(reader.of_store(), query, read)
    if not both:
        text = _("neither store nor archive has a version of {kind} {id}")
        raise NoVersionError(text.format(kind=query.entity.name, id=query.id))
    oldest = manifest.oldest_day(query.entity)
    return replace(shown, versions=tuple(_settle(each, oldest) for each in shown.versions))


def _settle(found: Version, oldest: date | None) -> Version:
    """A version with what the archive answers: it has nothing below the lowest version of both, and
    what it does not have of its own days never arrived."""
    if found.older is Absence.ARCHIVED:
        return replace(found, older=Absence.REMOVED)
    moment = found.previous_updated_at
    if found.missing_why is None or moment is None or oldest is None:
        return found
    covered = moment >= datetime.combine(oldest, time(), UTC) + CLOCK_TOLERANCE
    return replace(found, missing_why=Absence.NEVER_ARRIVED) if covered else found


def _slice_of_both(
    query: Query, both: dict[Key, VersionRow], after: Place | None, size: int
) -> Slice:
    """Up to `size` versions after a place. The path filter is not applied here."""
    keys = Keys(list(both))
    backwards = query.order is Order.DESC
    fitting = (key for key, row in both.items() if fits(query.filters, row))
    order = sorted((_position(query, key), key) for key in fitting)
    if after is not None:
        place = _position(query, Key(after.version, after.updated_at))
        order = [each for each in order if (each[0] < place if backwards else each[0] > place)]
    if backwards:
        order.reverse()
    pairs = []
    for _place, key in order[:size]:
        lower = keys.previous(key)
        pairs.append(Pair(query.entity, both[key], both[lower] if lower else None, keys.trusted))
    return Slice(pairs, pairs[-1].place if len(order) > size else None)


def _position(query: Query, key: Key) -> tuple[object, ...]:
    """The position of a key in the order that is asked for."""
    return key if query.sort is Sort.VERSION else (key.updated_at, key.version)


def page(reader: Reader, query: Query) -> Page:
    """The page of a timeline that the query asks for.

    At most three queries, and one for the labels every few seconds; with a path filter three more
    for every BATCH versions, with large documents for every READ_BYTES. A query with archive=True
    reads all versions of the entity for every page. Raises BadParameterError, NoVersionError where
    the store has nothing of the entity, and OlderThanRetentionError where only days before
    retention are asked for.
    """

    reader = reader.anew()
    if query.archive:
        return with_archive(reader, query)

    def read(reader: Reader, after: Place | None, size: int, carry: Sequence[VersionRow]) -> Slice:
        return read_slice(reader, query, after, size, carry)

    found = paging.page(reader, query, read)
    if not found.versions and query.page_token is None:
        filtered = query.filters != NO_FILTERS
        if not filtered or not reader.exists(query.entity, query.id):
            raise unknown(query.entity.name, query.id)
        check_retention(query.filters)
    return found


def newest(reader: Reader, entity: Entity, id: str) -> Version:
    """The version with the highest number, without its diff and changes. Raises NoVersionError."""
    query = Query(entity=entity, id=id, sort=Sort.VERSION, page_size=1, include=frozenset())
    return page(reader, query).versions[0]


def check_retention(filters: Filters) -> None:
    """Raise OlderThanRetentionError where only days before retention are asked for."""
    start = absence.kept_from()
    if filters.until is not None and filters.until <= start:
        text = _("versions before {day} are not kept")
        raise OlderThanRetentionError(text.format(day=f"{start:%Y-%m-%d}"))


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
