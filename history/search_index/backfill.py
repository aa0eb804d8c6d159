"""Indexes what was stored before a business key was declared, partition by partition and page by
page; and removes keys that were last seen too long ago."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial

from django.db import ProgrammingError, connection, transaction
from psycopg import errors, sql

from history import distribution
from history.blocks.form import DamagedBlockError
from history.blocks.stored import EPOCH, texts, versions_in_row
from history.blocks.stored import damaged as damaged_row
from history.daily import days
from history.daily.canonical import Connection
from history.daily.days import DayState
from history.distribution.disk_use import held
from history.documents.json_pointer import segments
from history.entities import ENTITIES, Entity
from history.models import MaintainRun
from history.partitions import catalog
from history.partitions.catalog import Partition
from history.record import Record
from history.search_index.keys import NewKeys
from history.search_index.upsert import upsert

# 4 MB: about 2,000 versions, or 30,000 keys. One short transaction each.
PAGES_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to index. pages: how many it has, or the largest of its shards. table: the oid
    of the table that has the name; a day that is packed or unpacked gets another one."""

    entity: Entity
    name: str
    pages: int
    shards: int
    table: int


@dataclass(frozen=True, slots=True)
class Step:
    """What one transaction did. keys: rows of search_key, new or seen again. damaged: what could
    not be read."""

    pages: int
    rows: int
    keys: int
    damaged: tuple[str, ...] = ()


def targets() -> list[Target]:
    """The attached partitions of the kinds with business keys, newest day first."""
    kinds = {entity.table: entity for entity in ENTITIES if entity.search}
    parts = [each for each in catalog.read(connection, [*kinds]) if each.state is DayState.ATTACHED]
    tables = {each.name: kinds[each.table] for each in parts}
    with connection.wrap_database_errors:
        sizes = _sizes(connection.connection, [*tables])
    found = [Target(tables[name], name, *size) for name, size in sizes.items()]
    return sorted(found, key=lambda target: target.name[-8:], reverse=True)


def backfill(target: Target) -> Iterator[Step]:
    """Index a partition, a step for each transaction. Begins again if the day is packed or unpacked
    meanwhile: its rows are on other pages then. Ends early if the partition is dropped."""
    select = _select(target)
    first = 0
    while first < target.pages:
        end = min(first + max(1, PAGES_AT_ONCE // target.shards), target.pages)
        try:
            with transaction.atomic():
                done = _index(target, select, first, end) if _is_there(target) else None
        except ProgrammingError as error:
            if isinstance(error.__cause__, errors.UndefinedTable):
                return
            raise
        if done is None:
            with connection.wrap_database_errors:
                sizes = _sizes(connection.connection, [target.name])
            if target.name not in sizes:
                return
            target, first = Target(target.entity, target.name, *sizes[target.name]), 0
            continue
        first = end
        yield done


def _is_there(target: Target) -> bool:
    """Lock the partition, and return whether it is the table whose pages were counted."""
    with connection.cursor() as cursor:
        if not distribution.active(connection.connection):
            cursor.execute(f'LOCK TABLE "{target.name}" IN ACCESS SHARE MODE')
        cursor.execute("SELECT %s::regclass::oid::bigint", [f'"{target.name}"'])
        return bool(cursor.fetchone() == (target.table,))


def _index(target: Target, select: sql.Composed, first: int, end: int) -> Step:
    keys, count = NewKeys(), 0
    damaged: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(select, [f"({first},0)", f"({end},0)"])
        for id, version, moment, data, packed, inside in cursor:
            found = [data]
            try:
                at = EPOCH + timedelta(microseconds=moment)
                if not inside:
                    raise damaged_row(target.entity.table, id, at)
                if packed is not None:
                    found = texts(connection.connection, target.entity.table, id, at, packed)
            except DamagedBlockError as error:
                damaged.append(str(error))
                continue
            count += len(found)
            for each in found:
                keys.add(Record(target.entity.name, id, version, 0, moment, "", None, None, each))
        rows = keys.rows()
        if rows:
            # Sorted, as a consumer does it, so that the two do not deadlock.
            with connection.wrap_database_errors:
                upsert(connection.connection, rows)
    return Step(end - first, count, len(rows), tuple(damaged))


def _sizes(connection: Connection, names: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """How many pages and shards these tables have, and their oids, as far as they exist."""
    there = held(connection, names)
    found = connection.execute(
        "SELECT name, ceil(pg_relation_size(oid) / current_setting('block_size')::numeric)::int,"
        "   oid::bigint"
        " FROM unnest(%s::text[]) AS name"
        " CROSS JOIN LATERAL (SELECT to_regclass(quote_ident(name))::oid AS oid) AS part"
        " WHERE oid IS NOT NULL",
        [list(names)],
    )
    return {
        name: (it.pages, len(it.shards), oid) if (it := there.get(name)) else (pages, 1, oid)
        for name, pages, oid in found.fetchall()
    }


def _select(target: Target) -> sql.Composed:
    """The rows of some pages, each with a document that has only the members with keys."""
    members = dict.fromkeys(segments(pointer)[0] for _, pointer in target.entity.search)
    parts = sql.SQL(", ").join(
        sql.SQL("{0}, data -> {0}").format(sql.Literal(member)) for member in members
    )
    return sql.SQL(
        "SELECT id, version, (extract(epoch FROM updated_at) * 1000000)::bigint,"
        " convert_to((CASE WHEN jsonb_typeof(data) = 'string' THEN data"
        "   ELSE jsonb_build_object({parts}) END)::text, 'UTF8'), packed, {inside}"
        " FROM {table} WHERE ctid >= %s::tid AND ctid < %s::tid"
    ).format(
        parts=parts,
        inside=sql.SQL(versions_in_row(target.entity)),
        table=sql.Identifier(target.name),
    )


# A key that is stored again now is locked, and stays. By ctid each statement reads its pages once.
_REMOVE = """
DELETE FROM search_key WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM search_key WHERE ctid >= %s::tid AND ctid < %s::tid AND day < %s
    FOR UPDATE SKIP LOCKED))
"""
# On several nodes: the same pages of each shard. A locked key is waited for.
_REMOVE_SPREAD = """
DELETE FROM search_key WHERE ctid >= %s::tid AND ctid < %s::tid AND day < %s
"""


def oldest_searched(partitions: Iterable[Partition], oldest: date) -> date:
    """The oldest day whose versions must be found."""
    days = [
        part.day for part in partitions if part.state is DayState.ATTACHED and not part.restored
    ]
    return min([oldest, *(day for day in days if day is not None)])


def remove_old(connection: Connection, before: date) -> int:
    """Remove the keys that were seen last before this day; returns their number. Reads the whole
    table, once for each day of maintain. `connection` is in autocommit mode."""
    if MaintainRun.objects.filter(search_keys_before__gte=before).exists():
        return 0
    [(pages, shards, _)] = _sizes(connection, ["search_key"]).values()
    statement = _REMOVE_SPREAD if distribution.active(connection) else _REMOVE
    step = max(1, PAGES_AT_ONCE // shards)
    removed = 0
    for first in range(0, pages, step):
        place = (f"({first},0)", f"({first + step},0)")
        remove = partial(connection.execute, statement, (*place, before))
        removed += days.retry_lock(remove, days.LOCK_WAIT_S).rowcount
    return removed
