"""Runs an export: one day after another, into a directory or into a stream."""

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

from history.archive import manifest, provenance
from history.archive.parquet import Row
from history.archive.rows import union
from history.archive.store import ArchiveError, Store
from history.blocks.form import DamagedBlockError
from history.blocks.stored import count
from history.daily.canonical import Connection, versions
from history.documents.jsonb import from_store
from history.entities import Entity
from history.export.days import Day
from history.export.formats import FORMATS, Format
from history.masking import Mask

BUFFER = 1 << 20
TICK_ROWS = 5_000
# What can go wrong with one day.
FAILURES = (ArchiveError, DatabaseError, psycopg.Error, OSError)


@dataclass(frozen=True, slots=True)
class Export:
    """What to export and how. store: the archive, None if none is set. kind: a name in FORMATS.
    mask: for the documents, None where they are exported as they are. tick: called with the rows
    done since the last call."""

    entity: Entity
    store: Store | None
    kind: str
    mask: Mask | None = None
    tick: Callable[[int], None] = lambda _: None

    def note(self, rows: int) -> str:
        """What is noted of a complete file: a file with other masks is not kept."""
        return str(rows) if self.mask is None else f"{rows} masked {' '.join(self.mask.paths)}"


@dataclass(frozen=True, slots=True)
class Exported:
    """What became of one day. rows: those in its file. kept: an earlier export has written it.
    error: why it was not written. damaged: what its file lacks because it cannot be read."""

    day: Day
    rows: int = 0
    kept: bool = False
    error: Exception | None = None
    damaged: tuple[str, ...] = ()


def to_directory(export: Export, days: Sequence[Day], folder: Path) -> Iterator[Exported]:
    """Write each day to its own file; yields each day when it is done. A file gets its name when it
    is complete, and is kept if the day still has as many rows. Rows that cannot be read are left
    out, and such a file is written again next time. A day that fails stops no other. One block of
    rows is in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    for day in days:
        yield _to_file(export, day, folder)


def to_stream(export: Export, days: Sequence[Day], sink: IO[bytes]) -> Iterator[Exported]:
    """Write all days into one stream, in the given order; yields each day when it is done. Raises
    one of FAILURES where a day cannot be read: the stream is incomplete then."""
    connection.ensure_connection()
    with closing(FORMATS[export.kind](sink, export.entity)) as output:
        for day in days:
            yield _write(export, day, output, connection.connection)
    sink.flush()


def _to_file(export: Export, day: Day, folder: Path) -> Exported:
    target = folder / f"{day.name}.{export.kind}"
    note = folder / f".{target.name}.rows"
    try:
        connection.ensure_connection()
        plain = connection.connection
        if target.exists() and note.exists():
            now = _rows_now(export, day, plain)
            if now is not None and note.read_text().strip() == export.note(now):
                export.tick(day.rows)
                return Exported(day, kept=True)
        with (
            _complete(target) as sink,
            closing(FORMATS[export.kind](sink, export.entity)) as output,
        ):
            done = _write(export, day, output, plain)
        # After the file: a note that does not belong to it would keep an incomplete file.
        if done.damaged:
            note.unlink(missing_ok=True)
        else:
            with _complete(note) as sink:
                sink.write(f"{export.note(done.rows)}\n".encode())
    except FAILURES as error:
        return Exported(day, error=error)
    finally:
        connection.close()
    return done


def _write(export: Export, day: Day, output: Format, plain: Connection) -> Exported:
    """Write the rows of a day that can be read."""
    done = 0
    damaged: list[str] = []
    with closing(_rows(export, day, plain, lambda error: damaged.append(str(error)))) as rows:
        for row in rows:
            data = from_store(row[-1] if isinstance(row[-1], bytes) else row[-1].encode())
            output.add((*row[:-1], data if export.mask is None else export.mask(row[0], data)))
            done += 1
            if done % TICK_ROWS == 0:
                export.tick(TICK_ROWS)
    export.tick(done % TICK_ROWS)
    return Exported(day, done, damaged=tuple(damaged))


def _rows(
    export: Export, day: Day, plain: Connection, damaged: Callable[[DamagedBlockError], None]
) -> Generator[Row]:
    """The rows of a day: of the database, in no particular order; of the archive; or of both.
    damaged: gets the error of each row of the database that cannot be read."""
    archived = None if day.archived is None else _archived(export, day, plain)
    if archived is not None and day.part is None:
        yield from archived
        return
    source = day.source(export.entity.table)
    if archived is None:
        yield from versions(
            plain, export.entity, source, ordered=False, data="bytea", damaged=damaged
        )
    else:
        yield from union(archived, versions(plain, export.entity, source, damaged=damaged))


def _archived(export: Export, day: Day, plain: Connection) -> Iterator[Row]:
    if export.store is None:
        raise ArchiveError(f"{day.name} is in the archive, and no archive is set")
    known = manifest.load(export.store, export.entity.table, day.day)
    if known is None:
        raise ArchiveError(f"{day.name} is not in the archive, and the database says that it is")
    provenance.check(plain, export.store, export.entity, day.day)
    return manifest.checked_rows(export.store, known)


def _rows_now(export: Export, day: Day, plain: Connection) -> int | None:
    """The rows of a day; None for a day that is in the table and in the archive."""
    if day.part is None:
        return day.archived
    return count(plain, day.source(export.entity.table)) if day.archived is None else None


@contextmanager
def _complete(target: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when the block ends without an error."""
    # A name of its own: another export may be writing the same day.
    unfinished = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with unfinished.open("wb", BUFFER) as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
