"""Runs an export: writes the days one by one into a directory or into a stream."""

import os
import secrets
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psycopg
from django.db import Error as DatabaseError
from django.db import connection

from history.documents.jsonb import from_store
from history.kinds.entities import EntityKind
from history.policy.masking import KindMask
from history.retention.archive import manifest, provenance
from history.retention.archive.parquet import ArchivedRow
from history.retention.archive.rows import merge_rows
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.retention.export.days import ExportDay
from history.retention.export.formats import FORMATS, ExportWriter
from history.store.blocks.codec import DamagedBlockError
from history.store.blocks.queries import count_versions
from history.store.days.canonical import Connection, stream_versions

BUFFER = 1 << 20
TICK_ROWS = 5_000
# The errors of one day. An export into a directory goes on with the next day.
FAILURES = (ArchiveError, DatabaseError, psycopg.Error, OSError)


@dataclass(frozen=True, slots=True)
class ExportJob:
    """A request for an export.

    Attributes:
        store: The archive; None if ANNALS_ARCHIVE_URL is not set.
        format: A name in FORMATS.
        mask: Masks the snapshots; None: they are exported unmasked.
        tick: Called with the number of rows that were written since the last call.
    """

    entity: EntityKind
    store: ArchiveStore | None
    format: str
    mask: KindMask | None = None
    tick: Callable[[int], None] = lambda _: None

    def build_note(self, rows: int) -> str:
        """Return the note that is stored beside a complete file.

        It has the number of rows and the masked paths. A later export keeps the file only if both
        are still the same.
        """
        return str(rows) if self.mask is None else f"{rows} masked {' '.join(self.mask.paths)}"


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """The outcome of one day.

    Attributes:
        rows: How many rows its file has.
        was_exported: Whether an earlier export has written the file.
        error: Why the file was not written.
        damaged: A complaint about each row that cannot be read. The file does not have these rows.
    """

    day: ExportDay
    rows: int = 0
    was_exported: bool = False
    error: Exception | None = None
    damaged: tuple[str, ...] = ()


def to_directory(
    export: ExportJob, days: Sequence[ExportDay], folder: Path
) -> Iterator[ExportedDay]:
    """Write one file for each day, and yield each day when its file is written.

    A file gets its name when it is finished. Rows that cannot be read are left out. An existing
    file is kept if no rows were left out, and if the number of rows and the masked paths have not
    changed. A failed day does not stop the export. Only some rows of a day are in memory at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        yield _to_file(export, day, folder)


def to_stream(
    export: ExportJob, days: Sequence[ExportDay], sink: IO[bytes]
) -> Iterator[ExportedDay]:
    """Write all days into one stream, in the given order. Yield each day when it is done.

    Raises:
        ArchiveError, DatabaseError, psycopg.Error, OSError: A day cannot be read. The stream is
            incomplete then. The constant FAILURES lists these exceptions.
    """
    connection.ensure_connection()
    with closing(FORMATS[export.format](sink, export.entity)) as output:
        for day in days:
            yield _write_day(export, day, output, connection.connection)
    sink.flush()


def _to_file(export: ExportJob, day: ExportDay, folder: Path) -> ExportedDay:
    target = folder / f"{day.name}.{export.format}"
    note = folder / f".{target.name}.rows"
    try:
        connection.ensure_connection()
        pg_connection = connection.connection
        if target.exists() and note.exists():
            row_count = _count_rows(export, day, pg_connection)
            if row_count is not None and note.read_text().strip() == export.build_note(row_count):
                export.tick(day.rows)
                return ExportedDay(day, was_exported=True)
        with (
            _write_complete_file(target) as sink,
            closing(FORMATS[export.format](sink, export.entity)) as output,
        ):
            result = _write_day(export, day, output, pg_connection)
        # The note is written after the file. Otherwise, if the export ended between the two, the
        # note would stand beside an old file, and the next export would keep that file.
        if result.damaged:
            note.unlink(missing_ok=True)
        else:
            with _write_complete_file(note) as sink:
                sink.write(f"{export.build_note(result.rows)}\n".encode())
    except FAILURES as error:
        return ExportedDay(day, error=error)
    finally:
        connection.close()
    return result


def _write_day(
    export: ExportJob, day: ExportDay, output: ExportWriter, pg_connection: Connection
) -> ExportedDay:
    """Write the rows of a day, except rows that cannot be read."""
    row_count = 0
    damaged: list[str] = []
    with closing(
        _read_rows(export, day, pg_connection, lambda error: damaged.append(str(error)))
    ) as rows:
        for row in rows:
            data = from_store(row[-1] if isinstance(row[-1], bytes) else row[-1].encode())
            output.add((*row[:-1], data if export.mask is None else export.mask(row[0], data)))
            row_count += 1
            if row_count % TICK_ROWS == 0:
                export.tick(TICK_ROWS)
    export.tick(row_count % TICK_ROWS)
    return ExportedDay(day, row_count, damaged=tuple(damaged))


def _read_rows(
    export: ExportJob,
    day: ExportDay,
    pg_connection: Connection,
    on_damage: Callable[[DamagedBlockError], None],
) -> Generator[ArchivedRow]:
    """Yield the rows of a day from the table, from the archive, or merged from both.

    If the archive does not have the day, the rows come in any order.

    Args:
        on_damage: Called with the error of each row of the table that cannot be read.
    """
    archived_rows = (
        None if day.archived is None else _read_archived_rows(export, day, pg_connection)
    )
    if archived_rows is not None and day.partition is None:
        yield from archived_rows
        return
    source = day.build_source(export.entity.table)
    if archived_rows is None:
        yield from stream_versions(
            pg_connection, export.entity, source, ordered=False, data="bytea", on_damage=on_damage
        )
    else:
        yield from merge_rows(
            archived_rows,
            stream_versions(pg_connection, export.entity, source, on_damage=on_damage),
        )


def _read_archived_rows(
    export: ExportJob, day: ExportDay, pg_connection: Connection
) -> Iterator[ArchivedRow]:
    if export.store is None:
        raise ArchiveError(f"{day.name} is in the archive, but ANNALS_ARCHIVE_URL is not set")
    stored_manifest = manifest.load_manifest(export.store, export.entity.table, day.day)
    if stored_manifest is None:
        raise ArchiveError(
            f"{day.name} is not in the archive, although the database says that it was archived"
        )
    provenance.check_provenance(pg_connection, export.store, export.entity, day.day)
    return manifest.read_checked_rows(export.store, stored_manifest)


def _count_rows(export: ExportJob, day: ExportDay, pg_connection: Connection) -> int | None:
    """Count the rows of a day. Return None if both table and archive may have rows of it."""
    if day.partition is None:
        return day.archived
    return (
        count_versions(pg_connection, day.build_source(export.entity.table))
        if day.archived is None
        else None
    )


@contextmanager
def _write_complete_file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name if the `with` block ends without an error."""
    # The unfinished file has a random name, because another export may be writing the same day.
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("wb", BUFFER) as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
