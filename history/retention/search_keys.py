"""Indexes versions that were stored before a business key was declared, and removes old keys.

On a cluster, the module also lists the children of applications in the table search_key (see
history.store.search_index.children). It reads each partition page by page.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple

from django.db import ProgrammingError, connection, transaction
from psycopg import errors, sql

from history.documents.json_pointer import split_pointer
from history.documents.record import Record
from history.kinds.entities import ENTITIES, EntityKind
from history.models import MaintainRun
from history.retention import catalog
from history.retention.catalog import Partition
from history.store import distribution
from history.store.blocks.codec import DamagedBlockError
from history.store.blocks.queries import (
    EPOCH,
    build_damage_error,
    build_version_count,
    read_snapshots,
)
from history.store.days import day_locks
from history.store.days.canonical import Connection
from history.store.days.days import DayState
from history.store.distribution.disk_use import measure_disk_use
from history.store.search_index import children
from history.store.search_index.children import NewChildren, upsert_children
from history.store.search_index.keys import NewSearchKeys
from history.store.search_index.upsert import upsert_keys

# How many pages one short transaction reads: 4 MB, about 2,000 versions or 30,000 keys.
PAGES_AT_ONCE = 512

# Selects name, number of pages and oid of each named table that exists.
_MEASURE_TABLES = """
SELECT name, ceil(pg_relation_size(oid) / current_setting('block_size')::numeric)::int AS pages,
    oid::bigint
FROM unnest(%(names)s::text[]) AS name
CROSS JOIN LATERAL (SELECT to_regclass(quote_ident(name))::oid AS oid) AS part
WHERE oid IS NOT NULL
"""
# Selects the rows on some pages of a partition. From each snapshot it selects only the members that
# contain business keys. A snapshot that is stored as a string is selected whole.
_SELECT_ROWS = """
SELECT id, version, (extract(epoch FROM updated_at) * 1000000)::bigint,
    convert_to((CASE WHEN jsonb_typeof(data) = 'string' THEN data
        ELSE jsonb_build_object({members}) END)::text, 'UTF8'),
    packed, {version_count}, {application}
FROM {table} WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid
"""
# Removes the old keys on some pages. A key that a consumer is storing again is locked, and stays.
# The outer DELETE names rows by ctid, so it does not read further pages.
_REMOVE_KEYS = """
DELETE FROM search_key WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM search_key
    WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND day < %(before)s
    FOR UPDATE SKIP LOCKED))
"""
# Removes the old keys on a cluster, on these pages of each shard. Waits for locked keys.
_REMOVE_KEYS_OF_SHARDS = """
DELETE FROM search_key WHERE ctid >= %(first)s::tid AND ctid < %(end)s::tid AND day < %(before)s
"""


class TableSize(NamedTuple):
    """The size of a table, for reading it page by page."""

    pages: int  # on a cluster: the pages of the largest shard
    shards: int  # 1 if the database is not a cluster
    oid: int


@dataclass(frozen=True, slots=True)
class BackfillTarget:
    """A partition whose versions must be entered in the table search_key."""

    entity: EntityKind
    name: str
    pages: int  # on a cluster: the pages of the largest shard
    shards: int  # 1 if the database is not a cluster
    oid: int  # of the partition; packing or unpacking replaces the partition by one with a new oid


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """The result of entering some pages of a partition in search_key, in one transaction."""

    pages: int
    rows: int
    keys: int  # how many different search keys the rows have
    damaged: tuple[str, ...] = ()  # a complaint about each row that could not be read


def list_targets() -> list[BackfillTarget]:
    """Return the attached partitions of all kinds with business keys, newest day first.

    On a cluster, also return the attached partitions of all kinds of children.
    """
    has_cluster = is_distributed()
    kinds = {
        entity.table: entity
        for entity in ENTITIES
        if entity.search or (has_cluster and entity.parent is not None)
    }
    partitions = [
        partition
        for partition in catalog.read_partitions(connection, [*kinds])
        if partition.state is DayState.ATTACHED
    ]
    tables = {partition.name: kinds[partition.table] for partition in partitions}
    with connection.wrap_database_errors:
        sizes = _measure_tables(connection.connection, [*tables])
    targets = [BackfillTarget(tables[name], name, *size) for name, size in sizes.items()]
    return sorted(targets, key=lambda target: target.name[-8:], reverse=True)


def is_distributed() -> bool:
    """Return whether the tables of this database are distributed over a cluster."""
    with connection.wrap_database_errors:
        connection.ensure_connection()
        return distribution.is_distributed(connection.connection)


def note_children_listed() -> None:
    """Record that search_key lists every child that has a stored version.

    Call this once, after the last partition from `list_targets` was indexed. Does nothing on a
    single server, because only on a cluster search_key lists children.
    """
    if is_distributed():
        with connection.wrap_database_errors:
            children.mark_complete(connection.connection)


def backfill_target(target: BackfillTarget) -> Iterator[BackfillStep]:
    """Index a partition, and yield a step for each transaction.

    If the day is packed or unpacked meanwhile, its rows are on other pages, so indexing begins
    again. If the partition is dropped meanwhile, indexing ends.
    """
    select = _make_select(target)
    first_page = 0
    while first_page < target.pages:
        end_page = min(first_page + max(1, PAGES_AT_ONCE // target.shards), target.pages)
        try:
            with transaction.atomic():
                result = (
                    _index_pages(target, select, first_page, end_page)
                    if _lock_if_same(target)
                    else None
                )
        except ProgrammingError as error:
            if isinstance(error.__cause__, errors.UndefinedTable):
                return
            raise
        if result is None:
            with connection.wrap_database_errors:
                sizes = _measure_tables(connection.connection, [target.name])
            if target.name not in sizes:
                return
            target, first_page = BackfillTarget(target.entity, target.name, *sizes[target.name]), 0
            continue
        first_page = end_page
        yield result


def _lock_if_same(target: BackfillTarget) -> bool:
    """Lock the partition. Return False if it was replaced since its pages were counted.

    Packing or unpacking a day replaces its partition. On a cluster the partition is not locked.
    """
    with connection.cursor() as cursor:
        if not distribution.is_distributed(connection.connection):
            cursor.execute(f'LOCK TABLE "{target.name}" IN ACCESS SHARE MODE')
        cursor.execute("SELECT %s::regclass::oid::bigint", [f'"{target.name}"'])
        return bool(cursor.fetchone() == (target.oid,))


def _index_pages(
    target: BackfillTarget, select: sql.Composed, first_page: int, end_page: int
) -> BackfillStep:
    keys, new_children, count = NewSearchKeys(), NewChildren(), 0
    damaged: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute(select, _make_page_range(first_page, end_page))
        for id, version, moment, data, packed, version_count, application in cursor:
            texts_of_row = [data]
            new_children.add(target.entity.name, id, application, moment)
            try:
                stored_at = EPOCH + timedelta(microseconds=moment)
                if not version_count:
                    raise build_damage_error(target.entity.table, id, stored_at)
                if packed is not None and target.entity.search:
                    texts_of_row = read_snapshots(
                        connection.connection, target.entity.table, id, stored_at, packed
                    )
            except DamagedBlockError as error:
                damaged.append(str(error))
                continue
            count += len(texts_of_row)
            for text in texts_of_row:
                keys.add_record(
                    Record(target.entity.name, id, version, 0, moment, "", None, None, text)
                )
        rows = keys.list_rows()
        if rows:
            # The keys are sorted. A consumer sorts its keys, too, so the two do not deadlock.
            with connection.wrap_database_errors:
                upsert_keys(connection.connection, rows)
        child_rows = new_children.list_rows()
        if child_rows and is_distributed():
            with connection.wrap_database_errors:
                upsert_children(connection.connection, child_rows)
    return BackfillStep(end_page - first_page, count, len(rows), tuple(damaged))


def _measure_tables(connection: Connection, names: Sequence[str]) -> dict[str, TableSize]:
    """Return the sizes of these tables. Tables that do not exist are left out."""
    disk_use = measure_disk_use(connection, names)
    rows = connection.execute(_MEASURE_TABLES, {"names": list(names)})
    return {
        name: TableSize(use.pages, len(use.shards), oid)
        if (use := disk_use.get(name))
        else TableSize(pages, 1, oid)
        for name, pages, oid in rows.fetchall()
    }


def _make_page_range(first_page: int, end_page: int) -> dict[str, str]:
    """Return the bounds of some pages as ctids: `first` is included, `end` is not."""
    return {"first": f"({first_page},0)", "end": f"({end_page},0)"}


def _make_select(target: BackfillTarget) -> sql.Composed:
    """Make the query that reads business keys from a range of disk pages of a partition."""
    members = dict.fromkeys(split_pointer(pointer)[0] for _, pointer in target.entity.search)
    return sql.SQL(_SELECT_ROWS).format(
        members=sql.SQL(", ").join(
            sql.SQL("{0}, data -> {0}").format(sql.Literal(member)) for member in members
        ),
        version_count=sql.SQL(build_version_count(target.entity)),
        application=sql.SQL("product_instance_id" if target.entity.parent else "NULL"),
        table=sql.Identifier(target.name),
    )


def find_oldest_searchable_day(partitions: Iterable[Partition], oldest: date) -> date:
    """Return the oldest day on which a search must find versions.

    Args:
        partitions: The partitions of the tables of versions. A day before the window counts while
            it has a partition, for example because it is held. A restored day does not count.
        oldest: The oldest day of the window.
    """
    days = [
        partition.day
        for partition in partitions
        if partition.state is DayState.ATTACHED and not partition.restored
    ]
    return min([oldest, *(day for day in days if day is not None)])


def remove_old_keys(connection: Connection, before: date) -> int:
    """Remove the search keys that only versions before the day `before` have. Return how many.

    Reads the whole table search_key. Does nothing if an earlier run has recorded that it removed
    these keys. Needs a `connection` in autocommit mode.
    """
    if MaintainRun.objects.filter(search_keys_before__gte=before).exists():
        return 0
    [size] = _measure_tables(connection, ["search_key"]).values()
    statement = _REMOVE_KEYS_OF_SHARDS if distribution.is_distributed(connection) else _REMOVE_KEYS
    pages_at_once = max(1, PAGES_AT_ONCE // size.shards)
    removed = 0
    for first_page in range(0, size.pages, pages_at_once):
        page_range = _make_page_range(first_page, first_page + pages_at_once)
        remove = partial(connection.execute, statement, {**page_range, "before": before})
        removed += day_locks.retry_lock(remove, day_locks.LOCK_WAIT_S).rowcount
    return removed
