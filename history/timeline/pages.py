"""Pages of versions: of an entity, from the store or with its archive; and of an application with
its children. Page tokens, and the filter by changed path."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from django.utils.translation import gettext as _

from history.diff import touches
from history.entities import ENTITIES, Entity
from history.record import ID_LENGTH
from history.requests import deadline
from history.timeline import absence, budget, compose
from history.timeline.budget import Budget
from history.timeline.compose import Version
from history.timeline.gate import Reader
from history.timeline.keys import Keys, batches
from history.timeline.query import (
    NO_FILTERS,
    BadParameterError,
    NoVersionError,
    Query,
    Sort,
    issue_token,
    read_token,
    storable,
    unknown,
)
from history.versions import Damaged, DamagedPlace, Pair, Place, VersionRow


@dataclass(frozen=True, slots=True)
class Page:
    """Some versions in display order. next_token: None on the last page. A page that its budget
    ended has fewer versions than asked for, with a path filter even none, and a token. damaged:
    what a page of an application lacks, because it cannot be read: versions, or all of an entity;
    with these, the versions that would be compared with them."""

    versions: tuple[Version, ...]
    next_token: str | None
    damaged: tuple[DamagedPlace, ...] = ()


def page(reader: Reader, query: Query) -> Page:
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
        reader = reader.with_archive()
    _check(reader, query)
    place, mark = None, None
    if query.page_token is not None:
        position = read_token(query.binding, query.page_token)
        size = len(Place._fields)
        place, mark = Place(*position[:size]), (*position, None)[size]
    course = reader.follow(query.entity, query.id, query.page_token, mark)
    if course.waits:
        return Page((), query.page_token)
    found, place = _fill(course.reader, query, place)
    every.update(damaged)
    if not found and query.page_token is None:
        for error in damaged.values():
            raise error
        if query.filters == NO_FILTERS or not _known(reader, query):
            raise unknown(query.entity, query.id, archive=query.archive)
        if not query.archive:
            absence.check_retention(query.filters)
    if place is None:
        return Page(tuple(found), None, tuple(damaged))
    token = issue_token(query.binding, (*place, course.mark), compress=False)
    return Page(tuple(found), token, tuple(damaged))


def newest(reader: Reader, entity: Entity, id: str) -> Version:
    """The version with the highest number, without its diff and changes. Raises NoVersionError."""
    query = Query(entity=entity, id=id, sort=Sort.VERSION, page_size=1, include=frozenset())
    return page(reader, query).versions[0]


def _fill(reader: Reader, query: Query, place: Place | None) -> tuple[list[Version], Place | None]:
    """The versions of the page after this place, until it is full, its budget is spent, or nothing
    follows; with a path filter even a full page goes on, to see if any other version fits. And the
    place of the last version that was examined; None where nothing follows."""
    size, path = query.page_size, query.filters.path
    size, most = (size, size) if path is None else (budget.BATCH, budget.SCAN)
    found, examined, left = list[Version](), 0, Budget()
    for pairs, more in _slices(reader, query, place, size):
        composer = compose.Composer(reader, pairs, query.include, path)
        for pair in pairs:
            deadline.check()
            if examined and left.late:
                return found, place
            if path is None or _touches(path, pair, composer):
                if len(found) == query.page_size:
                    return found, place
                version = composer.version(pair)
                if not left.takes(version.size) and found:
                    return found, place
                found.append(version)
            examined += 1
            place = Place.of(pair.row.located)
        if more and (left.late or examined >= most):
            return found, place
    return found, None


def _check(reader: Reader, query: Query) -> None:
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", _("must not be later than to"))
    if query.filters.path is not None:
        reader.check_path([query.entity] if query.entity else ENTITIES, query.filters.path)
    if not storable(query.id):
        raise NoVersionError(_("an id has 1 to {n} characters").format(n=ID_LENGTH))


def _known(reader: Reader, query: Query) -> bool:
    if query.entity is None:
        return bool(reader.members(query.id))
    return bool(reader.keys(query.entity, [query.id]))


def _touches(path: str, pair: Pair, composer: compose.Composer) -> bool:
    if pair.before is None:
        return False
    both = composer.snapshots.both(pair.before.data, pair.row.data)
    return touches(path, *both, compose.identity(pair.entity))


# Versions in display order, and whether others follow.
Slices: TypeAlias = Iterator[tuple[list[Pair], bool]]


def _slices(reader: Reader, query: Query, place: Place | None, most: int) -> Slices:
    """All versions after a place (None: from the start), without the path filter. most: how many
    are probably wanted at once."""
    if query.entity is None:
        return _of_application(reader, query, place, most)
    return _of_entity(reader, query.entity, query, place, most)


def _of_entity(
    reader: Reader, entity: Entity, query: Query, place: Place | None, most: int
) -> Slices:
    filters, named = query.filters, (entity, query.id)
    gapless = not filters.by_row
    # Whether no version is outside of the rows that were read.
    whole = gapless and place is None and (filters.since, filters.until) == (None, None)
    after, size, shown, more = place, most, list[VersionRow](), True
    while more:
        found, unread = reader.page(entity, query, after, size + 1)
        more = bool(unread) or len(found) > size
        read = {row.located: row for row in (*shown[-1:], *found)}
        # Of large documents too the last one that was read is kept to compare the one before with.
        shown = found[: max(1, len(found) - 1)] if more else found
        keys = Keys([key for *_, key in read])
        proven = all(row.version == 0 or (gapless and keys.proves(row.key)) for row in shown)
        if not proven and (more or not whole):
            keys = Keys(reader.keys(entity, [query.id]).get(query.id, []))
        places = [row.located for row in shown]
        for pairs in batches(reader, places, {named: keys}, read):
            yield pairs, more or pairs[-1].row.located != places[-1]
        if more:
            whole, after, size = False, Place.of(places[-1]), min(most, 2 * len(shown))


def _of_application(reader: Reader, query: Query, after: Place | None, size: int) -> Slices:
    more = True
    while more:
        found, keys = reader.of_application(query, after, size + 1)
        shown, more = found[:size], len(found) > size
        known = {named: Keys(its) for named, its in keys.items()}
        places = [place for place in shown if place[:2] in known]
        for pairs in batches(reader, places, known, as_list=True):
            yield pairs, more or pairs[-1].row.located != places[-1]
        if more:
            after = Place.of(shown[-1])
