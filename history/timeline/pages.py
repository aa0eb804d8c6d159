"""One page of an entity's timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from history.diff import BadPath, changes, matches, parse
from history.record import ID_LENGTH
from history.timeline import compose, neighbours, retention, rows, token
from history.timeline.query import (
    MAX_PAGE_SIZE,
    BadParameterError,
    NoVersionError,
    OlderThanRetentionError,
    Order,
    Query,
)
from history.timeline.rows import FIRST, LAST, Key, Row
from history.timeline.versions import Page

# A path filter reads this many versions at a time, and so many before it gives back what it has.
BATCH = 250
SCAN = 1000


class _Slice(NamedTuple):
    """Versions in display order, what each is compared with, and where to go on (None: ended)."""

    shown: list[Row]
    previous: dict[tuple[str, Key], Row | None]
    end: Key | None


def page(query: Query) -> Page:
    """The page of a timeline that the query asks for.

    Takes at most three queries and one for the labels now and then, with a path filter two more
    for every BATCH versions. Raises BadParameterError, NoVersionError where the store has nothing
    of the entity, and OlderThanRetentionError where only days before retention were asked for.
    """
    _check(query)
    after = _position(query)
    found = (
        _matching(query, after)
        if query.filters.path is not None
        else _read(query, after, query.page_size)
    )
    if not found.shown and query.page_token is None:
        explain_nothing(query)
    versions = compose.versions(query.entity, found.shown, found.previous, query.include)
    following = token.issue(query.binding, found.end) if found.end else None
    return Page(tuple(versions), following)


def storable(id: str) -> bool:
    """Whether there can be an entity with this id at all."""
    return 0 < len(id) <= ID_LENGTH and "\0" not in id


def check_path(path: str | None) -> None:
    """Raises BadParameterError unless this is a pointer or key path, or None."""
    try:
        parse(path or "")
    except BadPath as error:
        raise BadParameterError("path", str(error)) from None


def explain_nothing(query: Query) -> None:
    """Raise what is right where nothing was found; return where the filters left nothing."""
    until = query.filters.until
    if until is not None and until <= retention.start():
        raise OlderThanRetentionError(f"versions before {retention.start():%Y-%m-%d} are not kept")
    if not rows.exists(query.entity, query.id):
        raise NoVersionError(f"the store has no version of {query.entity.name} {query.id}")


def _check(query: Query) -> None:
    if not 1 <= query.page_size <= MAX_PAGE_SIZE:
        raise BadParameterError("pageSize", f"must be from 1 to {MAX_PAGE_SIZE}")
    since, until = query.filters.since, query.filters.until
    if since and until and since > until:
        raise BadParameterError("from", "must not be later than to")
    check_path(query.filters.path)
    if not storable(query.id):
        raise NoVersionError("an id has 1 to 32 characters")


def _position(query: Query) -> Key:
    if query.page_token is None:
        return LAST if query.order is Order.DESC else FIRST
    return Key(*token.read(query.binding, query.page_token))


def _read(query: Query, after: Key, size: int, carry: Sequence[Row] = ()) -> _Slice:
    """Up to `size` versions beyond `after`, the path filter aside. `carry`: the rows right in
    front of them, where they are at hand."""
    filters = query.filters
    found = rows.page(query.entity, query.id, filters, query.sort, query.order, after, size + 1)
    shown, more = found[:size], len(found) > size
    gapless = not filters.by_row
    bounded = (filters.since, filters.until) != (None, None)
    begins = query.page_token is None and not carry
    previous = neighbours.find(
        query.entity,
        query.id,
        shown,
        [*carry, *found],
        gapless=gapless,
        whole=gapless and begins and not bounded and not more,
    )
    by_id = {(query.id, key): row for key, row in previous.items()}
    return _Slice(shown, by_id, shown[-1].key if more else None)


def _matching(query: Query, after: Key) -> _Slice:
    """Versions that changed the wanted path: a page of them, or what SCAN versions hold."""
    matched: list[Row] = []
    previous: dict[tuple[str, Key], Row | None] = {}
    position: Key | None = after
    carry: list[Row] = []
    scanned = 0
    while position is not None and scanned < SCAN:
        batch = _read(query, position, BATCH, carry)
        snapshots = compose.Snapshots()
        for row in batch.shown:
            before = batch.previous[row.id, row.key]
            if before is None or not _touches(query, snapshots, before, row):
                continue
            if len(matched) == query.page_size:
                return _Slice(matched, previous, matched[-1].key)
            matched.append(row)
            previous[row.id, row.key] = before
        scanned += len(batch.shown)
        carry, position = batch.shown[-1:], batch.end
    return _Slice(matched, previous, position)


def _touches(query: Query, snapshots: compose.Snapshots, before: Row, row: Row) -> bool:
    pair = (snapshots.of(before), snapshots.of(row), compose.identity(query.entity))
    path = query.filters.path or ""
    return any(matches(path, change) for change in changes(*pair))
