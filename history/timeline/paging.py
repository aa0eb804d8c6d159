"""Pages of versions from any reader of slices: page tokens, and the filter by changed path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from history import deadline, masking
from history.diff import BadPath, PathFault, parse, touches
from history.entities import Entity
from history.record import ID_LENGTH
from history.timeline import compose, token
from history.timeline.neighbours import Pair, Place
from history.timeline.query import (
    MAX_PAGE_SIZE,
    BadParameterError,
    Filters,
    Include,
    NoVersionError,
)
from history.timeline.rows import VersionRow
from history.timeline.versions import Page

# A path filter reads BATCH versions at a time, and ends the page after SCAN versions.
BATCH = 250
SCAN = 1000


class Slice(NamedTuple):
    """Versions in display order; end: the place of the last one if more follow, else None."""

    pairs: list[Pair]
    end: Place | None


# Reads versions after a place (None: from the start), at most the given number, without the path
# filter. The rows are those directly before that place, if the caller has them.
Reader: TypeAlias = Callable[[Place | None, int, Sequence[VersionRow]], Slice]


class Paged(Protocol):
    """What a query must have to be answered page by page."""

    @property
    def id(self) -> str: ...
    @property
    def kinds(self) -> Sequence[Entity]: ...
    @property
    def filters(self) -> Filters: ...
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


def find(query: Paged, read: Reader) -> Slice:
    """The slice that the query asks for. Raises BadParameterError, and NoVersionError for an id
    that no entity can have."""
    _check(query)
    after = None
    if query.page_token is not None:
        after = Place(*token.read(query.binding, query.page_token))
    if query.filters.path is None:
        return read(after, query.page_size, ())
    return _matching(read, query.filters.path, after, query.page_size)


def page(query: Paged, found: Slice) -> Page:
    """The slice as a page, with its token."""
    following = token.issue(query.binding, found.end) if found.end else None
    return Page(tuple(compose.versions(found.pairs, query.include)), following)


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


def _matching(read: Reader, path: str, after: Place | None, size: int) -> Slice:
    """A page of the versions that changed the path, or those among the next SCAN versions."""
    matched: list[Pair] = []
    carry: list[VersionRow] = []
    scanned = 0
    while scanned < SCAN:
        batch = read(after, BATCH, carry)
        snapshots = compose.Snapshots()
        for pair in batch.pairs:
            deadline.check()
            if not _touches(path, pair, snapshots):
                continue
            if len(matched) == size:
                return Slice(matched, matched[-1].place)
            matched.append(pair)
        if batch.end is None:
            return Slice(matched, None)
        scanned += BATCH
        carry = [pair.row for pair in batch.pairs[-1:]]  # none if retention has just removed them
        after = batch.end
    return Slice(matched, after)


def _touches(path: str, pair: Pair, snapshots: compose.Snapshots) -> bool:
    if pair.before is None:
        return False
    both = (snapshots.of(pair.before), snapshots.of(pair.row))
    return touches(path, *both, compose.identity(pair.entity))
