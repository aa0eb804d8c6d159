"""Reads some blocks of a day, and compares each version there with the one before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg import sql

from history import diff, distribution, labels
from history.canonical import Connection
from history.capacity.estimate import Kind, SampledRow, Table, choose
from history.diff import Identity
from history.distribution import DISTRIBUTED_BY
from history.distribution.held import Held, held
from history.entities import Entity
from history.exactjson import loads
from history.nul_text import from_store
from history.record import ChangeType

# Documents in memory at a time: each may have megabytes.
AT_ONCE = 20
# What a row needs next to its document: the header and the other columns.
ROW_BYTES = 100

_SIZES = """
SELECT pg_relation_size({part}::regclass) / current_setting('block_size')::int,
    pg_table_size({part}::regclass), pg_indexes_size({part}::regclass)
"""
_BLOCK = """
SELECT id, version, updated_at, client_id, type, pg_column_size(data)
FROM {part} WHERE ctid >= %s::tid AND ctid < %s::tid{of_shard} ORDER BY ctid
"""
# Each shard has a block of this number.
_OF_SHARD = " AND get_shard_id_for_distribution_column({part}, {column}) = {shard}"
# The version and the one before it, in the order in which timelines have them.
_PAIRS = """
SELECT asked.number, own.data::text, before.data::text
FROM unnest(%s::text[], %s::int[], %s::timestamptz[])
    WITH ORDINALITY AS asked (id, version, updated_at, number)
JOIN {part} own USING (id, version, updated_at)
LEFT JOIN LATERAL (
    SELECT data FROM {table} old WHERE old.id = asked.id
        AND (old.version, old.updated_at) < (asked.version, asked.updated_at)
    ORDER BY old.version DESC, old.updated_at DESC LIMIT 1
) before ON true
ORDER BY asked.number
"""
# The same where the rows are on several nodes: each node has the versions of an application. The
# first version of a child in another application counts as its first one.
_PAIRS_SPREAD = """
SELECT DISTINCT ON (asked.number, own.{column}) asked.number, own.data::text, before.data::text
FROM unnest(%s::text[], %s::int[], %s::timestamptz[])
    WITH ORDINALITY AS asked (id, version, updated_at, number)
JOIN {part} own ON own.id = asked.id AND own.version = asked.version
    AND own.updated_at = asked.updated_at
LEFT JOIN {table} before ON before.id = own.id AND before.{column} = own.{column}
    AND (before.version, before.updated_at) < (own.version, own.updated_at)
ORDER BY asked.number, own.{column}, before.version DESC, before.updated_at DESC
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows of the chosen blocks of a day, in their order."""

    table: Table
    chosen: Sequence[int]
    rows: Sequence[SampledRow]


@dataclass(frozen=True, slots=True)
class _Found:
    block: int
    id: str
    version: int
    updated_at: datetime
    client_id: str
    type: int
    bytes: int


def _places(
    connection: Connection, part: str, blocks: int
) -> tuple[Table, list[tuple[int, int, int | None]]]:
    """The size of a partition, and of the blocks to read: a number, the number in its file, and the
    shard that has it, if there are several."""
    if distribution.active(connection):
        found = held(connection, [part]).get(part, Held())
        every = [
            (place, shard)
            for shard, (_, pages) in sorted(found.shards.items())
            for place in range(pages)
        ]
        chosen = choose(part, len(every), blocks)
        table = Table(len(every), found.table, found.indexes)
        return table, [(number, *every[number]) for number in chosen]
    with connection.cursor() as cursor:
        sizes = sql.SQL(_SIZES).format(part=sql.Literal(part))
        [(count, data, index)] = cursor.execute(sizes).fetchall()
    table = Table(count, data, index)
    return table, [(number, number, None) for number in choose(part, count, blocks)]


def sample(connection: Connection, entity: Entity, part: str, blocks: int) -> Sample:
    """The sample of a partition: `blocks` of its blocks, or all of them. The same at each call
    while nobody writes there. Reads only."""
    table, chosen = _places(connection, part, blocks)
    found = [row for place in chosen for row in _read(connection, entity, part, *place)]
    catalogue = labels.catalogue()
    identity = Identity(entity.list_keys, entity.list_places)
    rows = []
    for start in range(0, len(found), AT_ONCE):
        some = found[start : start + AT_ONCE]
        for one, own, before in _pairs(connection, entity, part, some):
            kind = judged(entity, one.type, own, before, catalogue, identity)
            rows.append(SampledRow(one.block, one.client_id, one.bytes + ROW_BYTES, kind))
    return Sample(table, [number for number, _, _ in chosen], rows)


def _read(
    connection: Connection, entity: Entity, part: str, number: int, block: int, shard: int | None
) -> Iterator[_Found]:
    of_shard: sql.Composable = sql.SQL("")
    if shard is not None:
        of_shard = sql.SQL(_OF_SHARD).format(
            part=sql.Literal(part),
            column=sql.Identifier(DISTRIBUTED_BY[entity.table]),
            shard=sql.Literal(shard),
        )
    query = sql.SQL(_BLOCK).format(part=sql.Identifier(part), of_shard=of_shard)
    with connection.cursor() as cursor:
        for row in cursor.execute(query, [f"({block},0)", f"({block + 1},0)"], prepare=True):
            yield _Found(number, *row)


def _pairs(
    connection: Connection, entity: Entity, part: str, rows: Sequence[_Found]
) -> Iterator[tuple[_Found, str, str | None]]:
    """Each row with its snapshot and the one before. Without rows that somebody has removed since
    they were found: maintain drops whole days."""
    spread = distribution.active(connection)
    pairs = sql.SQL(_PAIRS_SPREAD if spread else _PAIRS)
    query = pairs.format(
        part=sql.Identifier(part),
        table=sql.Identifier(entity.table),
        column=sql.Identifier(DISTRIBUTED_BY[entity.table]),
    )
    asked = [[getattr(row, name) for row in rows] for name in ("id", "version", "updated_at")]
    with connection.cursor() as cursor:
        for number, own, before in cursor.execute(query, asked, prepare=True):
            yield rows[number - 1], own, before


def judged(
    entity: Entity,
    type_: int,
    own: str,
    before: str | None,
    catalogue: labels.Catalogue,
    identity: Identity,
) -> Kind:
    """What a version changed. own, before: the snapshots as the store has them; None: there is none
    before."""
    if before is None:
        return Kind.FIRST
    if type_ == ChangeType.DELETE:
        return Kind.REAL
    if own == before:
        return Kind.NOTHING
    old, new = (loads(from_store(text.encode())) for text in (before, own))
    changed = [catalogue.find(entity.name, each.path) for each in diff.changes(old, new, identity)]
    if not changed:
        return Kind.NOTHING
    technical = all(label is not None and label.technical for label in changed)
    return Kind.TECHNICAL if technical else Kind.REAL
