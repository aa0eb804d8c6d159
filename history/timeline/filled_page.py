"""Fills one page of a list of versions, until it is full or its budget is spent.

Begin with `fill_page`. Timelines and the list of changes give it their versions in slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from history.common import deadline
from history.diff import is_touched
from history.store.versions import VersionWithPrevious
from history.timeline import compose
from history.timeline.budget import PageBudget
from history.timeline.compose import Version, VersionComposer
from history.timeline.query import Include, VersionFilters
from history.timeline.reader import HistoryReader

# Where a reader of a list goes on: in the late list LateCursor, otherwise TimelinePosition. None in
# a timeline that was not begun.
Position = TypeVar("Position")


class PageQuery(Protocol):
    """The part of a query for versions that `fill_page` needs."""

    @property
    def page_size(self) -> int: ...
    @property
    def include(self) -> frozenset[Include]: ...
    @property
    def filters(self) -> VersionFilters: ...


class VersionSlice(NamedTuple, Generic[Position]):
    """Versions that follow one another in a list, in display order.

    The path filter is not applied.
    """

    pairs: list[VersionWithPrevious]
    positions: list[Position]  # for each pair, the position after it
    end: Position  # the position after all that was read for the slice
    has_more: bool  # whether more may follow in the list


class FilledPage(NamedTuple, Generic[Position]):
    """The versions of a page, and where the next page begins."""

    versions: tuple[Version, ...]
    position: Position  # the next page begins after it
    is_complete: bool  # False if the budget ended the page: it is not full, and more may follow
    is_end: bool = False  # whether the list ends here


def fill_page(
    reader: HistoryReader,
    query: PageQuery,
    slices: Iterable[VersionSlice[Position]],
    start: Position,
    max_examined: int,
) -> FilledPage[Position]:
    """Return the versions of a page that begins after `start`.

    The page ends when its budget is spent, or when it is full and one more version passes the path
    filter: this one shows that there is a next page.

    Args:
        slices: The versions after `start`. A slice is read when the one before it is examined.
        max_examined: When this many versions were examined, no further slice is read.
    """
    path = query.filters.path
    read_to = start  # all up to here was read
    # The position after the last version that was examined. A page that is full ends here and not
    # at `read_to`: otherwise its token would reveal versions after it that need-to-know hides.
    examined_to = start
    versions: list[Version] = []
    examined, budget_left = 0, PageBudget()
    for slice in slices:
        composer = VersionComposer(reader, slice.pairs, query.include, path)
        for pair, pair_position in zip(slice.pairs, slice.positions, strict=True):
            deadline.check()
            if examined and budget_left.is_late:
                return FilledPage(tuple(versions), read_to, is_complete=False)
            if path is None or _is_path_touched(path, pair, composer):
                if len(versions) == query.page_size:
                    return FilledPage(tuple(versions), examined_to, is_complete=True)
                version = composer.compose_version(pair)
                if not budget_left.try_spend(version.answer_bytes) and versions:
                    return FilledPage(tuple(versions), examined_to, is_complete=False)
                versions.append(version)
            examined += 1
            read_to = examined_to = pair_position
        read_to = slice.end
        if slice.has_more and (budget_left.is_late or examined >= max_examined):
            is_full = len(versions) == query.page_size
            return FilledPage(tuple(versions), read_to, is_complete=is_full)
    return FilledPage(tuple(versions), read_to, is_complete=True, is_end=True)


def _is_path_touched(path: str, pair: VersionWithPrevious, composer: VersionComposer) -> bool:
    """Return whether a version changed the value at a path, or a value inside or around it.

    The first version of a document changed nothing.
    """
    if pair.previous is None:
        return False
    snapshots = composer.snapshots.parse_pair(pair.previous.data, pair.row.data)
    return is_touched(path, *snapshots, compose.get_identity(pair.entity))
