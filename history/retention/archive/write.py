"""Archives one day of one table, and proves that all its rows are in the archive."""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date

from psycopg import sql

from history.common import clock
from history.common.text_tables import pluralize
from history.kinds.entities import BY_TABLE, EntityKind
from history.models import ArchivedDay
from history.retention.archive import archive_check, manifest, provenance
from history.retention.archive.manifest import ArchivedFile, Manifest
from history.retention.archive.operator_decisions import seal_archived_rows
from history.retention.archive.parquet import ArchivedRow, ArchiveFileWriter, hash_row
from history.retention.archive.rows import MergedDayRows
from history.retention.archive.store import ArchiveError, ArchiveStore, build_day_folder
from history.retention.seals import late_rows
from history.store.blocks.queries import count_versions
from history.store.days import days
from history.store.days.canonical import Connection, DayDigest
from history.store.distribution.disk_use import measure_disk_use

FILE_ROWS = 500_000


@dataclass
class _Generation:
    """The files that one call of `archive_day` writes for a day.

    Once the manifest of these files is saved, they replace the files of the previous generation.
    """

    store: ArchiveStore
    entity: EntityKind
    day: date
    number: int
    # A part of the file names, so that two runs never write to the same file.
    run: str = field(default_factory=lambda: secrets.token_hex(4))
    digest: DayDigest = field(default_factory=DayDigest)  # of the rows written so far
    files: list[ArchivedFile] = field(default_factory=list)  # the finished files


def archive_day(
    connection: Connection,
    store: ArchiveStore,
    entity: EntityKind,
    day: date,
    source: sql.Composable,
) -> Manifest:
    """Archive all rows of a day's table. Rows that were archived before stay archived.

    The rows of the table and of the former files are written to new files. The new files are read
    back. Then a new manifest replaces the former one. The former files stay until
    `manifest.delete_unneeded_files`. If the archive has all rows already, nothing is written. One
    row group is in memory at a time. Needs the run lock.

    Args:
        source: The table of the day.

    Raises:
        ArchiveError: An archived file is damaged, a row of the table differs from the archived row
            with the same key, or the table changed while the files were written.
    """
    table = MergedDayRows(connection, store, entity, source)
    former_manifest = manifest.load_manifest(store, entity.table, day)
    if former_manifest is None:
        return _write_generation(table, _Generation(store, entity, day, 1))
    damage = archive_check.find_damaged_file(store, former_manifest)
    generation = _Generation(store, entity, day, former_manifest.generation + 1)
    if table.compute_digest() == former_manifest.digest:
        return (
            _write_generation(table, generation, former_manifest, former_manifest.digest)
            if damage
            else former_manifest
        )
    if damage:
        raise ArchiveError(damage)
    if count_versions(connection, source) == 0:
        return former_manifest
    all_rows = replace(table, archived=former_manifest)
    expected_digest = all_rows.compute_digest()
    return (
        former_manifest
        if expected_digest == former_manifest.digest
        else _write_generation(all_rows, generation, former_manifest, expected_digest)
    )


def _write_generation(
    rows: MergedDayRows,
    generation: _Generation,
    former_manifest: Manifest | None = None,
    expected_digest: str | None = None,
) -> Manifest:
    """Write and check the files of a generation, then its manifest.

    Args:
        former_manifest: The manifest that is replaced; None if there is none.
        expected_digest: The digest of all rows. None: compare only the number of rows.
    """
    with rows.read_in_order() as stream:
        while _write_file(generation, stream):
            pass
    row_count, digest = generation.digest.rows, generation.digest.finish()
    if expected_digest is None:
        is_complete = count_versions(rows.connection, rows.source) == row_count
    else:
        is_complete = digest == expected_digest
    if not is_complete or (former_manifest and row_count < former_manifest.rows):
        raise ArchiveError(
            f"{generation.entity.table} {generation.day} was not archived because its rows changed "
            f"while {pluralize(row_count, 'row was', 'rows were')} written to the archive. "
            "Run the command again"
        )
    new_manifest = Manifest(
        table=generation.entity.table,
        day=generation.day,
        rows=row_count,
        digest=digest,
        table_bytes=max(
            _measure_table(rows.connection, rows.source),
            former_manifest.table_bytes if former_manifest else 0,
        ),
        archived_at=clock.now(),
        files=tuple(generation.files),
        generation=generation.number,
    )
    # This fails if the session has ended: then another run may have the run lock.
    rows.connection.execute("SELECT 1")
    manifest.save_manifest(generation.store, new_manifest)
    return new_manifest


def _write_file(generation: _Generation, stream: Iterator[ArchivedRow]) -> bool:
    """Write the next file of the archived day with rows from `stream`, and read it back.

    Returns:
        Whether a file was written. False: the stream had no row left.
    """
    row = next(stream, None)
    if row is None:
        return False
    name = (
        f"{build_day_folder(generation.entity.table, generation.day)}/"
        f"part-{len(generation.files):05}-{generation.run}.parquet"
    )
    file_hash, row_count = hashlib.sha256(), 0
    with generation.store.write(name) as sink:
        writer = ArchiveFileWriter(sink, generation.entity)
        while row is not None:
            writer.add(row)
            digest_of_row = hash_row(row)
            file_hash.update(digest_of_row)
            generation.digest.add(row[0], row[1], digest_of_row)
            row_count += 1
            row = next(stream, None) if row_count < FILE_ROWS else None
        writer.close()
    file = archive_check.describe_file(generation.store, name)
    if (file.rows, file.digest) != (row_count, file_hash.hexdigest()):
        raise ArchiveError(
            f"{name}: the {pluralize(file.rows, 'row')} read back from the file differ from the "
            f"{pluralize(row_count, 'row')} written to the file"
        )
    generation.files.append(file)
    return True


def _measure_table(connection: Connection, source: sql.Composable) -> int:
    """Return the size of a table in bytes, with indexes and TOAST."""
    name = source.as_string(connection)
    if uses := measure_disk_use(connection, [name.strip('"')]):
        return sum(use.bytes for use in uses.values())
    row = connection.execute("SELECT pg_total_relation_size(%s::regclass)", [name]).fetchone()
    return int(row[0]) if row else 0


# If the archive has none of the LAST_DAYS days that were archived last, it is the wrong archive.
LAST_DAYS = 10


class DayArchiver:
    """Archives days before they are dropped. A day that cannot be archived is not dropped."""

    def __init__(self, store: ArchiveStore) -> None:
        self.archived: dict[tuple[str, date], Manifest] = {}
        self._rows: dict[tuple[str, date], int] = {}
        self._store = store

    def archive(self, connection: Connection, table: str, day: date) -> None:
        """Archive a day.

        Raises:
            ArchiveError: The day cannot be archived.
            OSError: The archive does not answer.
        """
        self._check_noted_day(table, day)
        provenance.check_provenance(connection, self._store, BY_TABLE[table], day)
        day_table = days.locate_day(connection, table, day)
        self._rows[table, day] = count_versions(connection, day_table.child)
        late, noted = (
            late_rows.count_late_rows(connection, table, day),
            provenance.load_noted_manifest(table, day),
        )
        new_manifest = archive_day(connection, self._store, BY_TABLE[table], day, day_table.child)
        digest_before = noted.digest if noted else None
        seal_archived_rows(
            connection, self._store, BY_TABLE[table], new_manifest, late, digest_before
        )
        self.archived[table, day] = new_manifest
        provenance.note_archived_day(new_manifest)
        manifest.delete_unneeded_files(self._store, table, day, new_manifest.files)

    def archive_rest(self, connection: Connection, table: str, day: date) -> None:
        """Archive the day again if it got rows after `archive`.

        Call it while all writers are locked out.

        Raises:
            ArchiveError: The day cannot be archived.
            OSError: The archive does not answer.
        """
        day_table = days.locate_day(connection, table, day)
        if count_versions(connection, day_table.child) != self._rows[table, day]:
            self.archive(connection, table, day)

    def _check_noted_day(self, table: str, day: date) -> None:
        """Check that the archive is the one to which earlier days were archived.

        Raises:
            ArchiveError: The database has a note about the day, and the archive has fewer rows than
                noted. Or there is no such note, and the archive has none of the days that were
                archived last.
        """
        archived_day = ArchivedDay.objects.filter(table=table, day=day).first()
        if archived_day is None:
            self._check_archive_place()
            return
        stored_manifest = manifest.load_manifest(self._store, table, day)
        if (stored_manifest.rows if stored_manifest else 0) < archived_day.rows:
            raise ArchiveError(
                f"{table} {day} is not dropped: the archive at {self._store.place} should have "
                f"{pluralize(archived_day.rows, 'row')} of this day, and has fewer. Check "
                "ANNALS_ARCHIVE_URL and the files there, or give up the archived rows of this day "
                "with `partitions forget`"
            )

    def _check_archive_place(self) -> None:
        newest_days = list(ArchivedDay.objects.order_by("-archived_at")[:LAST_DAYS])
        if newest_days and not any(
            self._store.list_names(build_day_folder(archived_day.table, archived_day.day))
            for archived_day in newest_days
        ):
            raise ArchiveError(
                f"{self._store.place} has none of the {len(newest_days)} days that were "
                "archived last. "
                "Check ANNALS_ARCHIVE_URL and whether its volume is mounted, or give these days up "
                "with `partitions forget`"
            )
