"""The source of a list of changes: versions of all documents in a slice of time.

Plain rows are found by the index on author and time, or by BRIN on time. Blocks are found by the
people and services in them. history.store.change_indexes makes these indexes. Only keys are read
here. The snapshots of a page are read afterwards, by key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from heapq import merge
from itertools import islice

from psycopg.types.numeric import Int4

from history.kinds.entities import EntityKind
from history.store.blocks import queries
from history.store.change_indexes import BLOCK_NAMES
from history.store.database.prepared import Statement
from history.store.versions import TimelinePosition, VersionRef
from history.timeline.query import MICROSECOND, TimelineOrder, VersionFilters
from history.timeline.sources import statements
from history.timeline.sources.field_filter import build_plain_condition
from history.timeline.sources.statements import FILTERS, find_midnight, find_next_day, format_sql
from history.timeline.sources.tables import make_ref_values
from history.timeline.time_slices import (
    ActivityRow,
    BlockRef,
    ChangesQuestion,
    ListedChange,
    PositionInBlock,
    TimeSlice,
)


def fetch_changes(question: ChangesQuestion) -> list[ListedChange]:
    """Return the versions in `question.slice` that come after `question.after`.

    At most `question.limit` versions are returned, in the order of the list. Runs a statement for
    each kind, in one round trip.
    """
    reverse = question.slice.order is TimelineOrder.DESC
    rows_by_kind = statements.fetch_pipelined(
        [make_statement(entity, question) for entity in question.kinds]
    )
    changes_by_kind = ([_make_change(*row) for row in rows] for rows in rows_by_kind)
    merged = merge(*changes_by_kind, key=_get_position, reverse=reverse)
    return list(islice(merged, question.limit))


def _make_change(
    kind: int,
    id: str,
    version: int,
    updated_at: datetime,
    application: str | None,
    is_damaged: bool,
    stored_at: datetime | None,
    stored_version: int | None,
    position: int | None,
) -> ListedChange:
    """Make a ListedChange from the columns of one row of `make_changes_sql`."""
    in_block = None
    if position and stored_at is not None and stored_version is not None:
        in_block = PositionInBlock(BlockRef(id, stored_at, stored_version), position)
    timeline_position = TimelinePosition(updated_at, kind, id, version)
    return ListedChange(timeline_position, application or id, is_damaged, in_block)


def _get_position(change: ListedChange) -> TimelinePosition:
    return change.position


# Returns the changes of a kind in plain rows. `packed IS NULL` and the condition `by_author` must
# stand alone: otherwise PostgreSQL does not use the indexes.
_PLAIN_CHANGES = """
    (SELECT {kind} AS kind, id, version, updated_at, {product} AS product, false AS damaged,
        NULL::timestamptz AS stored_at, NULL::int4 AS stored_version, NULL::int4 AS position
    FROM {table} AS stored
    WHERE packed IS NULL AND updated_at >= %(low)s AND updated_at < %(high)s {by_author} {filters}
        {by_field}
        AND (updated_at, {kind}, id, version) {sign} (%(after_moment)s, %(after_kind)s::int4,
            %(after_id)s::varchar, %(after_version)s::int4)
    ORDER BY updated_at {order}, id {order}, version {order} LIMIT %(limit)s)
"""
# Returns the blocks that may have versions in the slice. A block has the moment of its newest
# version, so it may lie after the slice: %(end)s is the end of the last day of the slice.
_BLOCKS_OF_SLICE = """(
    SELECT * FROM {table}
    WHERE packed IS NOT NULL AND updated_at >= %(low)s AND updated_at < %(end)s
        AND coalesce({oldest}, updated_at) < %(high)s {by_names}
)"""
# Returns the changes of a kind in the blocks of _BLOCKS_OF_SLICE.
_BLOCK_CHANGES = """
    (SELECT {kind} AS kind, id, version, updated_at, product, position = 0 AS damaged, stored_at,
        stored_version, position
    FROM {versions} AS stored
    WHERE updated_at >= %(low)s AND updated_at < %(high)s
        AND (updated_at, {kind}, id, version) {sign} (%(after_moment)s, %(after_kind)s::int4,
            %(after_id)s::varchar, %(after_version)s::int4)
        AND (position = 0 OR true {filters})
    ORDER BY updated_at {order}, id {order}, version {order} LIMIT %(limit)s)
"""
# Returns the changes of a kind, in the order of the list.
_CHANGES = """
    SELECT kind, id, version, updated_at, product, damaged, stored_at, stored_version, position
    FROM ({plain} UNION ALL {blocks}) AS merged
    ORDER BY updated_at {order}, id {order}, version {order} LIMIT %(limit)s
"""


@cache
def make_changes_sql(
    entity: EntityKind, order: TimelineOrder, *, by_author: bool, by_client: bool, by_field: bool
) -> str:
    """Make the statement for the changes of one kind in a slice.

    Args:
        by_author: Whether the filters name an author.
        by_client: Whether the filters name a service.
        by_field: Whether to leave out plain rows that certainly did not change the top-level field
            in the parameter `field` of the statement.
    """
    names = [
        f"%({name})s::text"
        for name, is_used in (("author", by_author), ("client_id", by_client))
        if is_used
    ]
    by_names = f"AND {BLOCK_NAMES} @> ARRAY[{', '.join(names)}]" if names else ""
    words = {
        "filters": FILTERS,
        "order": order.value,
        "sign": "<" if order is TimelineOrder.DESC else ">",
        "by_author": "AND author = %(author)s" if by_author else "",
        # Version 0 has no previous version, so it is not a change of a field.
        "by_field": f"AND version > 0 AND NOT {build_plain_condition(entity)}" if by_field else "",
    }
    rows = format_sql(_BLOCKS_OF_SLICE, entity, by_names=by_names)
    versions = queries.build_versions_query(entity, rows)
    return _CHANGES.format(
        plain=format_sql(_PLAIN_CHANGES, entity, **words),
        blocks=format_sql(_BLOCK_CHANGES, entity, **words, versions=versions),
        order=order.value,
    )


def make_statement(entity: EntityKind, question: ChangesQuestion) -> Statement:
    """Make the statement that asks for the changes of one kind."""
    filters, time_slice, after = question.filters, question.slice, question.after
    text = make_changes_sql(
        entity,
        time_slice.order,
        by_author=filters.author is not None,
        by_client=filters.client_id is not None,
        by_field=question.field is not None,
    )
    return text, {
        "first_day": find_midnight(time_slice.low),
        "low": time_slice.low,
        "high": time_slice.high,
        "end": find_next_day(time_slice.high - MICROSECOND),
        "after_moment": after.updated_at,
        "after_kind": Int4(after.kind),
        "after_id": after.id,
        "after_version": Int4(after.version),
        "author": filters.author,
        "client_id": filters.client_id,
        "type": None if filters.type is None else str(filters.type.value),
        "limit": Int4(question.limit),
        "field": question.field,
    }


# Returns the blocks of some documents and days.
_BLOCKS_OF_DAYS = """(
    SELECT {table}.* FROM unnest(%(of)s::varchar[], %(lows)s::timestamptz[],
        %(ends)s::timestamptz[]) AS span(of, low, next_day)
    JOIN {table} ON id = of AND updated_at >= low AND updated_at < next_day AND packed IS NOT NULL
    WHERE updated_at >= %(first)s AND updated_at < %(end)s OFFSET 0
)"""
# Returns the versions with the given keys that are stored, from plain rows, then from blocks. A
# damaged block may have any version of its document and day: so it is returned for each given key
# of this document and day.
_LISTED_CHANGES = """
    SELECT {kind} AS kind, stored.id, stored.version, stored.updated_at, stored.product,
        false AS damaged
    FROM unnest(%(ids)s::varchar[], %(moments)s::timestamptz[], %(numbers)s::int4[])
        AS listed(id, updated_at, version)
    JOIN (
        SELECT id, version, updated_at, {product} AS product, author, client_id, type FROM {table}
        WHERE packed IS NULL AND updated_at BETWEEN %(first)s AND %(last)s
    ) AS stored ON stored.id = listed.id AND stored.updated_at = listed.updated_at
        AND stored.version = listed.version
    WHERE true {filters}
    UNION ALL
    SELECT {kind}, listed.id, listed.version, listed.updated_at, stored.product, position = 0
    FROM unnest(%(ids)s::varchar[], %(moments)s::timestamptz[], %(numbers)s::int4[])
        AS listed(id, updated_at, version)
    JOIN {versions} AS stored ON stored.id = listed.id AND (
        position = 0 AND stored_at >= listed.updated_at
            AND stored_at < date_trunc('day', listed.updated_at, 'UTC') + interval '1 day'
        OR stored.updated_at = listed.updated_at AND stored.version = listed.version)
    WHERE position = 0 OR true {filters}
"""


def fetch_listed(
    refs: Sequence[VersionRef], filters: VersionFilters
) -> dict[VersionRef, ListedChange]:
    """Return the versions among `refs` that are stored and that the filters select.

    Runs a statement for each kind, in one round trip.

    Args:
        filters: `since`, `until` and `path` in it are not applied.
    """
    refs_by_kind: defaultdict[EntityKind, list[VersionRef]] = defaultdict(list)
    for ref in refs:
        refs_by_kind[ref.entity].append(ref)
    rows_by_kind = statements.fetch_pipelined(
        [
            (
                _make_listed_sql(entity),
                {
                    **make_ref_values(kind_refs, blocks=True),
                    "author": filters.author,
                    "client_id": filters.client_id,
                    "type": None if filters.type is None else str(filters.type.value),
                },
            )
            for entity, kind_refs in refs_by_kind.items()
        ]
    )
    changes = (
        ListedChange(TimelinePosition(updated_at, kind, id, version), application or id, damaged)
        for rows in rows_by_kind
        for kind, id, version, updated_at, application, damaged in rows
    )
    return {change.ref: change for change in changes}


@cache
def _make_listed_sql(entity: EntityKind) -> str:
    versions = queries.build_versions_query(entity, format_sql(_BLOCKS_OF_DAYS, entity))
    return format_sql(_LISTED_CHANGES, entity, versions=versions, filters=FILTERS)


# Returns how many versions of a kind a person made, by day and service.
_ACTIVITY = """
    SELECT {kind}, (updated_at AT TIME ZONE %(zone)s)::date, client_id, count(*), min(updated_at),
        max(updated_at)
    FROM (
        SELECT updated_at, client_id FROM {table}
        WHERE packed IS NULL AND author = %(author)s AND updated_at >= %(low)s
            AND updated_at < %(high)s
        UNION ALL
        SELECT updated_at, client_id FROM {versions} AS stored
        WHERE author = %(author)s AND position > 0 AND updated_at >= %(low)s
            AND updated_at < %(high)s
    ) AS version
    GROUP BY 2, 3
"""


@cache
def make_activity_sql(entity: EntityKind) -> str:
    """Make the statement that counts the versions of a person by day and service."""
    by_names = f"AND {BLOCK_NAMES} @> ARRAY[%(author)s::text]"
    rows = format_sql(_BLOCKS_OF_SLICE, entity, by_names=by_names)
    versions = queries.build_versions_query(entity, rows)
    return format_sql(_ACTIVITY, entity, versions=versions)


def fetch_activity(
    kinds: Sequence[EntityKind], author: str, time_slice: TimeSlice, zone: str
) -> list[ActivityRow]:
    """Count the versions that a person made in a slice of time, by kind, day and service.

    Makes one round trip.

    Args:
        zone: The IANA name of the time zone of the days.
    """
    values = {
        "author": author,
        "low": time_slice.low,
        "high": time_slice.high,
        "end": find_next_day(time_slice.high - MICROSECOND),
        "zone": zone,
    }
    rows_by_kind = statements.fetch_pipelined(
        [(make_activity_sql(entity), values) for entity in kinds]
    )
    return [ActivityRow(*row) for rows in rows_by_kind for row in rows]
