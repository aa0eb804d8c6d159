"""Pages of versions from any reader of slices: page tokens, and the filter by changed path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from django.utils.translation import gettext as _

from history.diff import touches
from history.record import ID_LENGTH
from history.requests import deadline
from history.timeline import budget, compose
from history.timeline.budget import Budget
from history.timeline.query import (
    AnyQuery,
    BadParameterError,
    NoVersionError,
    check_size,
    storable,
)
from history.timeline.reading import Reader
from history.timeline.row import Pair, Place
from history.timeline.tokens import follow, issue_token, read_token
from history.timeline.versions import Page, Version


class Slice(NamedTuple):
    """Some versions in display order. more: whether others follow."""

    pairs: list[Pair]
    more: bool


# Reads all versions after a place (None: from the start), without the path filter. The number is
# how many are probably wanted at once.
Slices: TypeAlias = Callable[[Reader, Place | None, int], Iterator[Slice]]


def page(reader: Reader, query: AnyQuery, read: Slices) -> Page:
    """The page that the query asks for, with the token of the next one. It ends early where its
    budget is spent. Raises BadParameterError, and NoVersionError for an id that no entity can
    have."""
    _check(reader, query)
    place, mark = None, None
    if query.page_token is not None:
        position = read_token(query.binding, query.page_token)
        size = len(Place._fields)
        place, mark = Place(*position[:size]), (*position, None)[size]
    course = follow(reader, query.kinds, query.id, query.page_token, mark)
    if course.waits:
        return Page((), query.page_token)
    made = _Page(course.reader, query, place)
    made.fill(read)
    if made.place is None:
        return Page(tuple(made.versions), None)
    token = issue_token(query.binding, (*made.place, course.mark))
    return Page(tuple(made.versions), token)


class _Page:
    """A page in the making. place: of the last version that was examined: the page after this one
    begins behind it; None where nothing follows."""

    def __init__(self, reader: Reader, query: AnyQuery, place: Place | None) -> None:
        self._reader = reader
        self.place = place
        self.versions: list[Version] = []
        self._query = query
        self._path = query.filters.path
        self._budget = Budget()
        self._examined = 0

    def fill(self, read: Slices) -> None:
        """Read until the page is full, its budget is spent, or nothing follows. With a path filter
        even a full page goes on, to see if any other version fits."""
        size = self._query.page_size
        size, most = (size, size) if self._path is None else (budget.BATCH, budget.SCAN)
        for slice in read(self._reader, self.place, size):
            if self.add(slice.pairs):
                return
            if slice.more and (self._budget.late or self._examined >= most):
                return
        self.place = None

    def add(self, pairs: Sequence[Pair]) -> bool:
        """Take those of these versions that belong on the page. Whether it ended before the last of
        them."""
        composer = compose.Composer(self._reader, pairs, self._query.include, self._path)
        for pair in pairs:
            deadline.check()
            if self._examined and self._budget.late:
                return True
            if self._path is None or _touches(self._path, pair, composer.snapshots):
                if len(self.versions) == self._query.page_size:
                    return True
                version = composer.version(pair)
                if not self._budget.takes(version.size) and self.versions:
                    return True
                self.versions.append(version)
            self._examined += 1
            self.place = Place.of(pair.row.located)
        return False


def _check(reader: Reader, query: AnyQuery) -> None:
    check_size(query.page_size)
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", _("must not be later than to"))
    if query.filters.path is not None:
        reader.check_path(query.kinds, query.filters.path)
    if not storable(query.id):
        raise NoVersionError(_("an id has 1 to {n} characters").format(n=ID_LENGTH))


def _touches(path: str, pair: Pair, snapshots: compose.Snapshots) -> bool:
    if pair.before is None:
        return False
    both = (snapshots.of(pair.before), snapshots.of(pair.row))
    return touches(path, *both, compose.identity(pair.entity))
