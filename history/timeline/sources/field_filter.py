"""Drops a version from a list of changes if it certainly did not change the requested field.

A list of changes with a path filter examines every version of its span. Most of these versions
did not change the requested field: the top-level field into which the path leads. This module drops
these versions, so that fewer versions must be paired with their previous version and compared.

A version is dropped only if its previous version is certain and has an equal value in the field.
If the version is a plain row, the previous version must be a plain row, too, and its day must be
one that the SQL statement reads for the list. If the version is in a block, the previous version
must be in the same block. All other versions stay in the list.

`build_plain_condition` builds the SQL condition for plain rows. `drop_unchanged_packed` drops
versions in blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Final, NamedTuple

from django.db import connection
from psycopg.types.numeric import Int4

from history.documents.top_level_fields import read_field
from history.kinds.entities import ENTITIES, EntityKind
from history.store.blocks import queries
from history.store.blocks.codec import DamagedBlockError
from history.store.database.prepared import Values
from history.timeline.sources import statements
from history.timeline.sources.statements import find_midnight, find_next_day, format_sql
from history.timeline.time_slices import BlockRef, ListedChange, PositionInBlock

# If a document has more rows than this in the days of a slice, its versions stay in the list: SQL
# would look through all of these rows again for each version.
MOST_ROWS: Final = 300

# Is true of a plain row `stored` if its previous version certainly has the same value in the field.
# It is certain if the number before is in a plain row of these days, and the document has no block
# in these days: a block might have that number too. If several rows have the number, all of them
# must have the value. Values are compared as texts. This is stricter than the comparison that
# follows: 1 and 1.0 are different texts.
_UNCHANGED_PLAIN: Final = """(
    SELECT count(*) <= {most_rows} AND bool_and(
        previous.packed IS NULL
        AND jsonb_typeof(previous.data) = 'object' AND jsonb_typeof(stored.data) = 'object'
        AND (previous.data -> %(field)s::text)::text IS NOT DISTINCT FROM
            (stored.data -> %(field)s::text)::text
    ) FILTER (WHERE previous.packed IS NOT NULL
        OR previous.version = stored.version - 1 AND previous.updated_at <= stored.updated_at)
    FROM (
        SELECT version, updated_at, packed, data FROM {table} AS same_document
        WHERE same_document.id = stored.id
            AND same_document.updated_at >= %(first_day)s AND same_document.updated_at < %(end)s
        LIMIT {most_rows} + 1
    ) AS previous
) IS TRUE"""

# How many blocks one statement reads.
_BLOCKS_AT_ONCE: Final = 250
# A block with more bytes of snapshots than this is not read: all of its versions stay in the list.
_LARGEST_BLOCK: Final = 128 * 1024

# Returns all versions of some blocks. The bytes of a block come with its first version.
_VERSIONS_OF_BLOCKS: Final = """
    SELECT id, stored_at, stored_version, position, version, updated_at,
        CASE WHEN position = 1 THEN packed END
    FROM {versions} AS stored
    WHERE position > 0
    ORDER BY id, stored_at, stored_version, position
"""
# Returns the blocks with the given keys. Leaves out blocks of a document that has a plain row in
# these days: that row may be the previous version. `plain` is joined by the id of `block`, because
# Citus must see that both are on one shard.
_BLOCK_ROWS: Final = """(
    SELECT block.* FROM unnest(%(ids)s::varchar[], %(moments)s::timestamptz[],
        %(numbers)s::int4[]) AS listed(id, updated_at, version)
    JOIN {table} AS block ON block.id = listed.id AND block.updated_at = listed.updated_at
        AND block.version = listed.version
    WHERE block.packed IS NOT NULL AND block.unpacked <= {largest}
        AND block.updated_at >= %(first)s AND block.updated_at <= %(last)s
        AND NOT EXISTS (
            SELECT FROM {table} AS plain
            WHERE plain.id = block.id AND plain.packed IS NULL
                AND plain.updated_at >= %(first_day)s AND plain.updated_at < %(end)s)
    OFFSET 0
)"""


def build_plain_condition(entity: EntityKind) -> str:
    """Build an SQL condition that is true only if a plain row's version did not change a field.

    The condition can be false although the version did not change the field. The statement that
    contains the condition must call the plain row `stored`, and must have the name of the field as
    the parameter `field`.
    """
    return format_sql(_UNCHANGED_PLAIN, entity, most_rows=str(MOST_ROWS))


def drop_unchanged_packed(changes: Sequence[ListedChange], field: str) -> list[ListedChange]:
    """Return `changes` without versions that are in a block and certainly did not change `field`.

    All versions of a block are kept if the block cannot be read. Runs one statement for every
    _BLOCKS_AT_ONCE blocks of a kind.
    """
    blocks: defaultdict[EntityKind, dict[BlockRef, None]] = defaultdict(dict)
    for change in changes:
        if change.in_block is not None:
            blocks[ENTITIES[change.position.kind]][change.in_block.block] = None
    unchanged = {
        (entity, in_block)
        for entity, kind_blocks in blocks.items()
        for in_block in _generate_unchanged(entity, list(kind_blocks), field)
    }
    return [
        change
        for change in changes
        if (ENTITIES[change.position.kind], change.in_block) not in unchanged
    ]


def _generate_unchanged(
    entity: EntityKind, blocks: Sequence[BlockRef], field: str
) -> Iterator[PositionInBlock]:
    """Generate the versions in `blocks` that certainly did not change `field`.

    The result identifies a version by its block and its position in the block.
    """
    for start in range(0, len(blocks), _BLOCKS_AT_ONCE):
        values = _make_block_values(blocks[start : start + _BLOCKS_AT_ONCE])
        rows = [
            _VersionInBlock(*row) for row in statements.fetch_rows(_make_blocks_sql(entity), values)
        ]
        for _, versions in groupby(rows, key=_VersionInBlock.get_block):
            yield from _compare_versions(entity, list(versions), field)


def _make_block_values(blocks: Sequence[BlockRef]) -> Values:
    moments = [block.stored_at for block in blocks]
    return {
        "ids": [block.id for block in blocks],
        "moments": moments,
        "numbers": [Int4(block.stored_version) for block in blocks],
        "first": min(moments),
        "last": max(moments),
        "first_day": find_midnight(min(moments)),
        "end": find_next_day(max(moments)),
    }


@cache
def _make_blocks_sql(entity: EntityKind) -> str:
    rows = format_sql(_BLOCK_ROWS, entity, largest=str(_LARGEST_BLOCK))
    return _VERSIONS_OF_BLOCKS.format(versions=queries.build_versions_query(entity, rows))


class _VersionInBlock(NamedTuple):
    """One version in a block, as the statement _VERSIONS_OF_BLOCKS returns it."""

    id: str
    stored_at: datetime
    stored_version: int
    position: int
    version: int
    updated_at: datetime
    packed: bytes | None  # the snapshots of the block, with its first version

    def get_block(self) -> BlockRef:
        return BlockRef(self.id, self.stored_at, self.stored_version)


def _compare_versions(
    entity: EntityKind, versions: Sequence[_VersionInBlock], field: str
) -> Iterator[PositionInBlock]:
    """Generate the versions of one block that certainly did not change `field`.

    A version is compared with the version before it in the block. That version is certainly the
    previous version if its number is lower by exactly one, and its moment is not later. Otherwise
    the version is not generated.

    Args:
        versions: All versions of the block, in the order of their positions.
    """
    first, block = versions[0], versions[0].get_block()
    try:
        texts = queries.read_snapshots(
            connection.connection, entity.table, first.id, first.stored_at, first.packed or b""
        )
    except DamagedBlockError:
        return
    if len(texts) != len(versions):
        return
    values = [read_field(text, field) for text in texts]
    for index in range(1, len(versions)):
        older, newer = versions[index - 1], versions[index]
        is_previous = older.version == newer.version - 1 and older.updated_at <= newer.updated_at
        if is_previous and values[index] is not None and values[index] == values[index - 1]:
            yield PositionInBlock(block, newer.position)
