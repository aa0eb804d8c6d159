"""Archiving one day of one table, with proof that all its rows are in the archive."""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date

from psycopg import sql

from history.archive import manifest, provenance, scrubbing
from history.archive.decisions import follow
from history.archive.manifest import File, Manifest
from history.archive.parquet import Row, Writer, row_hash
from history.archive.rows import Rows
from history.archive.store import ArchiveError, Store, folder
from history.base import clock
from history.base.table import counted
from history.blocks.stored import count
from history.daily import days
from history.daily.canonical import Connection, Digest
from history.distribution.disk_use import held
from history.entities import BY_TABLE, Entity
from history.models import ArchivedDay
from history.seals import late_rows

FILE_ROWS = 500_000


@dataclass
class _Generation:
    """The files of a day that are being written: the digest so far, the files that are finished.
    run: in the names of this run's files, so that no two runs write to one name."""

    store: Store
    entity: Entity
    day: date
    number: int
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    digest: Digest = field(default_factory=Digest)
    files: list[File] = field(default_factory=list)


def archive(
    connection: Connection,
    store: Store,
    entity: Entity,
    day: date,
    source: sql.Composable,
) -> Manifest:
    """Make the archive have every row of `source`, the table of a day, and every row it had before.

    All rows go to new files, which are read back, and one manifest replaces the other; former files
    stay until `manifest.tidy`. Memory: one row group. Only with the lock of maintain's runs. Raises
    ArchiveError if an archived file is damaged, a row differs from its archived one, or the table
    changes meanwhile.
    """
    table = Rows(connection, store, entity, source)
    known = manifest.load(store, entity.table, day)
    if known is None:
        return _write(table, _Generation(store, entity, day, 1))
    damage = scrubbing.damaged(store, known)
    new = _Generation(store, entity, day, known.generation + 1)
    if table.digest() == known.digest:
        return _write(table, new, known, known.digest) if damage else known
    if damage:
        raise ArchiveError(damage)
    if count(connection, source) == 0:
        return known
    both = replace(table, archived=known)
    expected = both.digest()
    return known if expected == known.digest else _write(both, new, known, expected)


def _write(
    rows: Rows, new: _Generation, known: Manifest | None = None, expected: str | None = None
) -> Manifest:
    """Write and check the files of a generation, then its manifest. known: the manifest that it
    replaces. expected: the digest of all rows, where it is computed already."""
    with rows.ordered() as stream:
        while _file(new, stream):
            pass
    written, digest = new.digest.rows, new.digest.finish()
    if expected is None:
        same = count(rows.connection, rows.source) == written
    else:
        same = digest == expected
    if not same or (known and written < known.rows):
        raise ArchiveError(
            f"{new.entity.table} {new.day} changed while it was archived: "
            f"{counted(written, 'row was', 'rows were')} written, the table has "
            f"{count(rows.connection, rows.source)}, or others; run it again"
        )
    done = Manifest(
        table=new.entity.table,
        day=new.day,
        rows=written,
        digest=digest,
        table_bytes=max(_bytes(rows.connection, rows.source), known.table_bytes if known else 0),
        archived_at=clock.now(),
        files=tuple(new.files),
        generation=new.number,
    )
    rows.connection.execute("SELECT 1")  # our session still exists, and so does its run lock
    manifest.save(new.store, done)
    return done


def _file(new: _Generation, stream: Iterator[Row]) -> bool:
    """Write the next file and read it back; False if there are no more rows."""
    row = next(stream, None)
    if row is None:
        return False
    name = f"{folder(new.entity.table, new.day)}/part-{len(new.files):05}-{new.run}.parquet"
    written, done = hashlib.sha256(), 0
    with new.store.write(name) as sink:
        writer = Writer(sink, new.entity)
        while row is not None:
            writer.add(row)
            hashed = row_hash(row)
            written.update(hashed)
            new.digest.add(row[0], row[1], hashed)
            done += 1
            row = next(stream, None) if done < FILE_ROWS else None
        writer.close()
    file = scrubbing.read(new.store, name)
    if (file.rows, file.digest) != (done, written.hexdigest()):
        raise ArchiveError(
            f"{name}: read back {counted(file.rows, 'row')}, not as the {done} written"
        )
    new.files.append(file)
    return True


def _bytes(connection: Connection, source: sql.Composable) -> int:
    """The size of a table with indexes and TOAST."""
    name = source.as_string(connection)
    if there := held(connection, [name.strip('"')]):
        return sum(each.bytes for each in there.values())
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [name]).fetchone()
    return int(row[0]) if row else 0


# If none of this many days can be found, it is not the archive that they were written to.
LAST_DAYS = 10


class DayArchiver:
    """Archives days, and lets no day be dropped that is not in the archive."""

    def __init__(self, store: Store) -> None:
        self.archived: dict[tuple[str, date], Manifest] = {}
        self._rows: dict[tuple[str, date], int] = {}
        self._store = store

    def archive(self, connection: Connection, table: str, day: date) -> None:
        """Archive a day. Raises ArchiveError or OSError if that is not possible."""
        self._check_known(table, day)
        provenance.check(connection, self._store, BY_TABLE[table], day)
        place = days.locate(connection, table, day)
        self._rows[table, day] = count(connection, place.child)
        late, known = late_rows.count(connection, table, day), provenance.noted(table, day)
        done = archive(connection, self._store, BY_TABLE[table], day, place.child)
        before = known.digest if known else None
        follow(connection, self._store, BY_TABLE[table], done, late, before)
        self.archived[table, day] = done
        provenance.note(done)
        manifest.tidy(self._store, table, day, done.files)

    def confirm(self, connection: Connection, table: str, day: date) -> None:
        """Archive the day again if rows came after archive(), when nobody can write to the table
        any more. Raises ArchiveError or OSError if that is not possible."""
        place = days.locate(connection, table, day)
        if count(connection, place.child) != self._rows[table, day]:
            self.archive(connection, table, day)

    def _check_known(self, table: str, day: date) -> None:
        """Raise ArchiveError if the archive has less of a day than the database says, or if it has
        none of the days that were archived last."""
        known = ArchivedDay.objects.filter(table=table, day=day).first()
        if known is None:
            self._check_place()
            return
        found = manifest.load(self._store, table, day)
        if (found.rows if found else 0) < known.rows:
            raise ArchiveError(
                f"The archive had {counted(known.rows, 'row')} of {table} {day}, and "
                f"{self._store.place} has fewer. Check ANNALS_ARCHIVE_URL and the files there, or "
                "give up the archived rows of this day with `partitions forget`"
            )

    def _check_place(self) -> None:
        last = list(ArchivedDay.objects.order_by("-archived_at")[:LAST_DAYS])
        if last and not any(self._store.names(folder(each.table, each.day)) for each in last):
            raise ArchiveError(
                f"{self._store.place} has none of the {len(last)} days that were archived last. "
                "Check ANNALS_ARCHIVE_URL and whether its volume is mounted, or give these days up "
                "with `partitions forget`"
            )
