"""The load measured from real partitions, and the server settings that the model uses."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from django.db.backends.base.base import BaseDatabaseWrapper

from history import distribution
from history.capacity.model import Load, Server
from history.distribution.disk_use import Held, held
from history.entities import ENTITIES
from history.partitions.catalog import Partition

SAMPLE_DAYS = 7

SIZES = """
SELECT name, pg_table_size(name::regclass), pg_indexes_size(name::regclass)
FROM unnest(%s::text[]) AS name
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """The loads, measured from the days since..until, both included."""

    loads: list[Load]
    since: date
    until: date


def loads(
    connection: BaseDatabaseWrapper, parts: Sequence[Partition], today: date
) -> Measured | None:
    """The loads of the last SAMPLE_DAYS complete days with rows, by ANALYZE; else None."""
    complete = [part for part in parts if part.day and part.day < today and part.rows]
    days = sorted({part.day for part in complete if part.day})[-SAMPLE_DAYS:]
    if not days:
        return None
    span = (days[-1] - days[0]).days + 1
    found = []
    for entity in ENTITIES:
        mine = [part for part in complete if part.table == entity.table and part.day in days]
        rows = sum(part.rows for part in mine)
        data, index = _sizes(connection, [part.name for part in mine])
        if rows:
            found.append(Load(entity.table, rows / span, data / rows, index / rows))
    return Measured(found, days[0], days[-1])


def _sizes(connection: BaseDatabaseWrapper, names: Sequence[str]) -> tuple[int, int]:
    """Bytes of the tables and of their indexes."""
    if distribution.active(connection.connection):
        there = held(connection.connection, names)
        found = [there.get(name, Held()) for name in names]
        return sum(each.table for each in found), sum(each.indexes for each in found)
    with connection.cursor() as cursor:
        cursor.execute(SIZES, [list(names)])
        sizes = cursor.fetchall()
    return sum(size[1] for size in sizes), sum(size[2] for size in sizes)


def server(connection: BaseDatabaseWrapper) -> Server:
    """The server settings that the model uses."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM current_setting('checkpoint_timeout')::interval)::float,"
            " current_setting('wal_compression') <> 'off'"
        )
        seconds, compressed = cursor.fetchone() or (300.0, False)
    return Server(seconds, compressed)


def disk(connection: BaseDatabaseWrapper) -> int | None:
    """Bytes of disk space for the database: free space and what the database uses. None if the
    server runs on another machine or does not report where its files are, which it does to
    superusers and members of pg_read_all_settings."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT setting FROM pg_settings WHERE name = 'data_directory'),"
            " pg_database_size(current_database()),"
            " inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8'"
            " OR inet_server_addr() = '::1'"
        )
        folder, ours, near = cursor.fetchone() or (None, 0, False)
    if not near or not folder or not Path(folder).is_dir():
        return None
    return shutil.disk_usage(folder).free + int(ours)


def stored(parts: Sequence[Partition], today: date) -> list[tuple[date, float]]:
    """Bytes of each day before today, summed over all tables, oldest first."""
    sizes: dict[date, float] = {}
    for part in parts:
        if part.day and part.day < today:
            sizes[part.day] = sizes.get(part.day, 0.0) + part.bytes
    return sorted(sizes.items())
