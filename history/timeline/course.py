"""Whether the pages of one timeline have the versions of the old service, from the first page on.

A page token carries a mark, so that no page misses or repeats a version because the old service
failed, or came back, between two pages (docs/decisions/0045-the-old-service.md):

(none)            no old service was to be asked
OURS              it failed at the first page: the pages after it are of the store alone
BOTH, position    its versions are on the pages; the position is that of the next one, if any
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from history import fallback
from history.entities import Entity
from history.timeline import old, union
from history.timeline.neighbours import Pair, Place
from history.timeline.query import Filters, Order, Sort

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
