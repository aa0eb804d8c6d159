"""Pages of versions from any reader of slices: page tokens, and the filter by changed path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from history import deadline, fallback, masking
from history.diff import BadPath, PathFault, parse, touches
from history.entities import Entity
from history.record import ID_LENGTH
from history.timeline import compose, token
from history.timeline.budget import Budget
from history.timeline.neighbours import Pair, Place
from history.timeline.query import (
    MAX_PAGE_SIZE,
    BadParameterError,
    Filters,
    Include,
    NoVersionError,
    Order,
    Sort,
)
from history.timeline.sources import old, union
from history.timeline.sources.statements import VersionRow
from history.timeline.versions import Page, Version

OURS: Final = "ours"
BOTH: Final = "both"

Mark: TypeAlias = tuple[Any, ...]


class Timeline(Protocol):
    """What a query says of its order and its versions."""

    @property
    def id(self) -> str: ...
    @property
    def kinds(self) -> Sequence[Entity]: ...
    @property
    def filters(self) -> Filters: ...
    @property
    def order(self) -> Order: ...
    @property
    def sort(self) -> Sort: ...


@dataclass(frozen=True, slots=True)
class Course:
    """How one page is read. waits: the old service failed between two pages; versions from `end`
    on wait until it is back (None: it has no more)."""

    query: Timeline
    mark: Mark = ()
    end: Place | None = None
    hidden: bool = False
    waits: bool = False

    def before_end(self, pairs: list[Pair]) -> list[Pair]:
        """Those of these versions, in display order, that certainly come before the next one of
        the old service."""
        if self.end is None:
            return pairs
        return [pair for pair in pairs if self._before(pair.place, self.end)]

    def following(self, place: Place) -> Mark:
        """The mark of the token of the page after this place."""
        if self.mark != (BOTH,) or self.hidden:
            return self.mark
        query = self.query
        every = (Place(*each) for each in union.following(query.kinds, query.id, query.filters))
        later = [each for each in every if self._before(place, each)]
        return (BOTH, *min(later, key=self._rank)) if later else (BOTH,)

    def _before(self, one: Place, other: Place) -> bool:
        return self._rank(one) < self._rank(other)

    def _rank(self, place: Place) -> tuple[Any, ...]:
        """Ascending in display order."""
        numbers: tuple[Any, ...] = place
        if self.query.sort is Sort.VERSION:
            numbers = (place.version, place.updated_at, place.kind, place.id)
        return numbers if self.query.order is Order.ASC else tuple(_Backwards(n) for n in numbers)


class _Backwards:
    """A value that is ordered the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def follow(query: Timeline, mark: Mark | None) -> Iterator[Course]:
    """The course of one page. mark: of its token; None for the first page."""
    course = _course(query, mark)
    with old.hidden() if course.hidden else nullcontext():
        yield course


def _course(query: Timeline, mark: Mark | None) -> Course:
    asked = fallback.present()
    possible = old.possible()
    if mark is None:
        if not possible:
            return Course(query)
        return Course(query, (BOTH,)) if _want(query) else Course(query, (OURS,), hidden=True)
    if mark[:1] == (BOTH,) and possible:
        if _want(query):
            return Course(query, (BOTH,))
        end = Place(*mark[1:]) if mark[1:] else None
        return Course(query, mark, end, hidden=True, waits=True)
    if asked is not None and (mark or possible):
        asked.missed()
    return Course(query, mark, hidden=True)


def _want(query: Timeline) -> bool:
    if len(query.kinds) > 1:
        return old.want_application(query.id)
    return old.want(query.kinds[0], query.id)


# A path filter reads BATCH versions at a time, and ends the page after SCAN versions.
BATCH = 250
SCAN = 10_000


class Slice(NamedTuple):
    """Versions in display order; end: the place of the last one if more follow, else None."""

    pairs: list[Pair]
    end: Place | None


# Reads versions after a place (None: from the start), at most the given number and at least one if
# there is any, without the path filter. The rows are those directly before that place, if the
# caller has them.
Reader: TypeAlias = Callable[[Place | None, int, Sequence[VersionRow]], Slice]


class Paged(Timeline, Protocol):
    """What a query must have to be answered page by page."""

    @property
    def page_size(self) -> int: ...
    @property
    def page_token(self) -> str | None: ...
    @property
    def include(self) -> frozenset[Include]: ...
    @property
    def binding(self) -> tuple[object, ...]: ...


_PATH_FAULTS = {
    PathFault.SLASH: gettext_lazy("must begin with a slash: {part}"),
    PathFault.TILDE: gettext_lazy("has a ~ that no digit from 0 to 4 follows: {part}"),
    PathFault.ITEM: gettext_lazy("has a list item that is not written [field=value]: {part}"),
}


def page(query: Paged, read: Reader) -> Page:
    """The page that the query asks for, with the token of the next one. It ends early where its
    budget is spent. Raises BadParameterError, and NoVersionError for an id that no entity can
    have."""
    _check(query)
    place, mark = None, None
    if query.page_token is not None:
        position = token.read(query.binding, query.page_token)
        size = len(Place._fields)
        place, mark = Place(*position[:size]), tuple(position[size:])
    made = _Page(query, place)
    with follow(query, mark) as course:
        _fill(made, read, course)
        if made.place is None:
            return Page(tuple(made.versions), None)
        following = (*made.place, *course.following(made.place))
        return Page(tuple(made.versions), token.issue(query.binding, following))


def _fill(made: _Page, read: Reader, course: Course) -> None:
    """Read until the page is full or its end is reached; then made.place is None if nothing
    follows."""
    carry: Sequence[VersionRow] = ()
    ended = False
    while not ended:
        batch = read(made.place, made.wanted, carry)
        ready = course.before_end(batch.pairs)
        ended = made.add(ready)
        last = batch.end is None or len(ready) < len(batch.pairs)
        if not ended and last and course.end is not None:
            return  # what follows waits for the old service
        if not ended:
            made.place = batch.end
            made.expect(len(batch.pairs))
            ended = batch.end is None or made.complete
        carry = [pair.row for pair in batch.pairs[-1:]]  # none if retention has just removed them


class _Page:
    """A page in the making. place: of the last version that was examined: the page after this one
    begins behind it."""

    def __init__(self, query: Paged, place: Place | None) -> None:
        self.place = place
        self.versions: list[Version] = []
        self._query = query
        self._path = query.filters.path
        self._budget = Budget()
        self._examined = 0
        self._most = BATCH if self._path is not None else query.page_size
        self._next = self._most

    @property
    def wanted(self) -> int:
        """How many versions to read next."""
        if self._path is not None:
            return self._next
        return min(self._next, self._query.page_size - len(self.versions))

    def expect(self, read: int) -> None:
        """Read at most twice as many next time: PostgreSQL measures also those that are too large
        to be sent."""
        self._next = max(1, min(self._most, 2 * read))

    @property
    def complete(self) -> bool:
        """Whether there is nothing to examine after what has been read. With a path filter even a
        full page goes on, to see if any other version fits."""
        full = self._path is None and not self.wanted
        return full or self._budget.late or self._examined >= SCAN

    def add(self, pairs: Sequence[Pair]) -> bool:
        """Take those of these versions that belong on the page. Whether it ended before the last of
        them."""
        composer = compose.Composer(pairs, self._query.include, self._path)
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
            self.place = pair.place
        return False


def storable(id: str) -> bool:
    """Whether an entity can have this id."""
    return 0 < len(id) <= ID_LENGTH and "\0" not in id


def check_size(size: int) -> None:
    """Raises BadParameterError if a page cannot have this size."""
    if not 1 <= size <= MAX_PAGE_SIZE:
        text = _("must be a whole number from {low} to {high}")
        raise BadParameterError("pageSize", text.format(low=1, high=MAX_PAGE_SIZE))


def check_path(kinds: Iterable[Entity], path: str) -> None:
    """Raises BadParameterError if this is neither a pointer nor a key path, or if it leads into a
    field of one of these kinds that is masked for the reader as a whole."""
    try:
        parse(path)
    except BadPath as error:
        text = _PATH_FAULTS[error.fault].format(part=repr(error.part))
        raise BadParameterError("path", text) from None
    if masking.leads_into_mark(kinds, path):
        raise BadParameterError("path", _("leads into a masked field; ask for the field itself"))


def _check(query: Paged) -> None:
    check_size(query.page_size)
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", _("must not be later than to"))
    if query.filters.path is not None:
        check_path(query.kinds, query.filters.path)
    if not storable(query.id):
        raise NoVersionError(_("an id has 1 to {n} characters").format(n=ID_LENGTH))


def _touches(path: str, pair: Pair, snapshots: compose.Snapshots) -> bool:
    if pair.before is None:
        return False
    both = (snapshots.of(pair.before), snapshots.of(pair.row))
    return touches(path, *both, compose.identity(pair.entity))
