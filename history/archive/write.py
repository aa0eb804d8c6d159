"""Putting one day of one table into the archive, and being sure that it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date

from psycopg import sql

from history import canonical, clock
from history.archive import manifest, parquet
from history.archive.manifest import File, Manifest
from history.archive.parquet import Row, Writer, row_hash
from history.archive.store import ArchiveError, Store, folder
from history.canonical import Connection, Digest, digest, fields, order
from history.entities import Entity

FILE_ROWS = 500_000

# rows done so far
Progress = Callable[[int], None]


@dataclass
class _Day:
    """A day on its way into the archive: the digest so far, the files that are finished."""

    store: Store
    entity: Entity
    day: date
    progress: Progress
    digest: Digest = field(default_factory=Digest)
    files: list[File] = field(default_factory=list)
    last: tuple[str, int, int] | None = None  # the key of the last row that is in a finished file

    def name(self, number: int) -> str:
        return f"{folder(self.entity.table, self.day)}/part-{number:05}.parquet"


def archive(
    connection: Connection,
    store: Store,
    entity: Entity,
    day: date,
    source: sql.Composable,
    progress: Progress = lambda _: None,
) -> Manifest:
    """Write the rows of `source`, the table of a day, read them back, and write the manifest.

    What an interrupted run has finished is checked and kept. A day that is there already, with the
    same digest, is left as it is. Memory: one row group. Raises ArchiveError where what is read
    back is not what was written.
    """
    known = manifest.load(store, entity.table, day)
    if known is not None and known.digest == digest(connection, entity, source).finish():
        return known
    work = _Day(store, entity, day, progress)
    _resume(work)
    resumed = bool(work.files)
    with _ordered(connection, entity, source, work.last) as stream:
        while _file(work, stream):
            manifest.save_progress(store, entity.table, day, work.files)
    rows, whole = work.digest.rows, work.digest.finish()
    counted = count(connection, source)
    # Between an interrupted run and this one the table may have changed anywhere.
    same = not resumed or digest(connection, entity, source).finish() == whole
    if counted != rows or not same:
        manifest.clear_progress(store, entity.table, day)
        raise ArchiveError(
            f"{entity.table} {day}: {rows} rows written, {counted} are in the table, or others"
        )
    done = Manifest(
        table=entity.table,
        day=day,
        rows=counted,
        digest=whole,
        table_bytes=_bytes(connection, source),
        archived_at=clock.now(),
        files=tuple(work.files),
    )
    manifest.save(store, done)
    manifest.clear_progress(store, entity.table, day)
    return done


def _resume(work: _Day) -> None:
    """Take over the finished files of an interrupted run, up to the first that is not sound."""
    for known in manifest.load_progress(work.store, work.entity.table, work.day):
        try:
            found = work.store.sha256(known.name)
        except FileNotFoundError:
            return
        if found != (known.sha256, known.bytes):
            return
        with work.store.open(known.name) as file:
            for row in parquet.rows(file):
                work.digest.add(row[0], row[1], row_hash(row))
                work.last = (row[0], row[1], row[2])
        work.files.append(known)
        work.progress(work.digest.rows)


@contextmanager
def _ordered(
    connection: Connection,
    entity: Entity,
    source: sql.Composable,
    after: tuple[str, int, int] | None,
) -> Iterator[Iterator[Row]]:
    """The rows in their order, those after a key; streamed, so that no day is held in memory."""
    where = sql.SQL("true") if after is None else canonical.after(after)
    query = sql.SQL("COPY (SELECT {} FROM {} WHERE {} ORDER BY {}) TO STDOUT (FORMAT BINARY)")
    child = () if entity.root else ("text",)
    with (
        connection.cursor() as cursor,
        cursor.copy(query.format(fields(entity), source, where, order(connection))) as copy,
    ):
        copy.set_types(["text", "int4", "int8", "text", "text", "int4", *child, "text"])
        yield iter(copy.rows())


def _file(work: _Day, stream: Iterator[Row]) -> bool:
    """Write the next file and read it back; False where no row was left for one."""
    row = next(stream, None)
    if row is None:
        return False
    name = work.name(len(work.files))
    written, first, done = hashlib.sha256(), row[0], 0
    with work.store.write(name) as sink:
        writer = Writer(sink, work.entity)
        while row is not None:
            writer.add(row)
            hashed = row_hash(row)
            written.update(hashed)
            work.digest.add(row[0], row[1], hashed)
            last, done = row[0], done + 1
            if done % parquet.GROUP_ROWS == 0:
                work.progress(work.digest.rows)
            row = next(stream, None) if done < FILE_ROWS else None
        writer.close()
    sha256, size = work.store.sha256(name)
    file = File(name, done, size, sha256, written.hexdigest(), first, last)
    check(work.store, file)
    work.files.append(file)
    work.progress(work.digest.rows)
    return True


def check(store: Store, file: File) -> None:
    """Read a file back, row by row. Raises ArchiveError where it is not what was written."""
    found, seen = hashlib.sha256(), 0
    with store.open(file.name) as opened:
        for row in parquet.rows(opened):
            found.update(row_hash(row))
            seen += 1
    if (seen, found.hexdigest()) != (file.rows, file.digest):
        raise ArchiveError(
            f"{file.name}: read back {seen} rows that are not the {file.rows} written"
        )


def count(connection: Connection, source: sql.Composable) -> int:
    """How many rows a table has."""
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(source)).fetchone()
    return int(row[0]) if row else 0


def _bytes(connection: Connection, source: sql.Composable) -> int:
    """What a table takes with indexes and TOAST."""
    name = source.as_string(connection)
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [name]).fetchone()
    return int(row[0]) if row else 0
