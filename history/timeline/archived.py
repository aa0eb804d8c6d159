"""The timeline of an entity with its archived versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time

from django.conf import settings
from django.utils.translation import gettext as _

from history.archive import manifest
from history.documents.jsonb import shortened
from history.timeline import paging
from history.timeline.neighbours import CLOCK_TOLERANCE, Keys, Pair, Place
from history.timeline.paging import Slice
from history.timeline.query import (
    Absence,
    BadParameterError,
    NoVersionError,
    Order,
    Query,
    Sort,
)
from history.timeline.sources import old, rows, statements, union
from history.timeline.sources.statements import Key, VersionRow
from history.timeline.versions import Page, Version


class ArchiveUnavailableError(RuntimeError):
    """The archive does not answer, or a file of it is missing or broken."""


def page(query: Query) -> Page:
    """The page that the query asks for, from the store and the archive together.

    Raises BadParameterError where there is no archive, NoVersionError where neither the
    store nor the archive has anything of the entity, and ArchiveUnavailableError.
    """
    url = settings.ANNALS.archive_url
    if not url:
        raise BadParameterError("archive", _("this installation has no archive"))
    both: dict[Key, VersionRow] = {}

    def read(after: Place | None, size: int, _: Sequence[VersionRow]) -> Slice:
        if not both:
            both.update(_everything(query, url))
        return _slice(query, both, after, size)

    with old.hidden():
        shown = paging.page(query, read)
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


def _everything(query: Query, url: str) -> dict[Key, VersionRow]:
    """All versions of the entity; a version of a restored day is in both and comes once."""
    from history.archive import read  # with pyarrow, which most processes never need
    from history.archive.store import ArchiveError, Store

    try:
        archived = read.versions(Store(url), query.entity, query.id)
    except (OSError, ArchiveError) as error:
        raise ArchiveUnavailableError(str(error)) from error
    entity, id = query.entity, query.id
    keys = rows.keys(entity, [id]).get(id, [])
    stored = rows.bodies(entity, [(id, key) for key in keys])
    origins = statements.of(entity, id)
    found = [
        VersionRow(
            version=each.version,
            updated_at=each.updated_at,
            type=each.type,
            client_id=each.client_id,
            author=each.author,
            product_instance_id=each.product_instance_id,
            data=shortened(each.data),
            id=each.id,
            recovered=origins.get((each.version, each.updated_at)),
        )
        for each in archived
    ]
    return {row.key: row for row in (*rows.for_reader(entity, found), *stored.values())}


def _slice(query: Query, both: dict[Key, VersionRow], after: Place | None, size: int) -> Slice:
    """Up to `size` versions after a place. The path filter is not applied here."""
    keys = Keys(list(both))
    backwards = query.order is Order.DESC
    order = sorted(
        (_position(query, key), key) for key in both if union.fits(query.filters, both[key])
    )
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
