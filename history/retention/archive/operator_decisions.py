"""Decisions of an operator about archived days, and their effect on the seals of these days."""

from datetime import date
from typing import Final

from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.models import ArchivedDay, DaySeal
from history.retention.archive import archive_check, manifest, provenance
from history.retention.archive.manifest import Manifest
from history.retention.archive.parquet import hash_row
from history.retention.archive.store import ArchiveError, ArchiveStore, build_day_folder
from history.retention.seals import late_rows
from history.retention.seals.seal import add_seal
from history.store.days.canonical import Connection, DayDigest
from history.store.days.day_reading import open_day


def adopt_day(store: ArchiveStore, table: str, day: date) -> int:
    """Make this database accept archive files of a day that this database did not write.

    Reads all files of the day, then notes their manifest in the database. Needs the run lock.

    Returns:
        The number of archived rows.

    Raises:
        ArchiveError: The day is not archived, its files are damaged, or the database has noted
            these files already. Or the database has noted different files of the day, with more
            rows than these files have.
    """
    archived, noted = (
        manifest.load_manifest(store, table, day),
        provenance.load_noted_manifest(table, day),
    )
    if archived is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    if noted and (noted.digest, noted.files) == (archived.digest, archived.files):
        raise ArchiveError(
            f"the database has already noted these rows of {table} {day}, so `partitions adopt` "
            "has nothing to do"
        )
    if noted and archived.rows < noted.rows:
        raise ArchiveError(
            f"the archive has only {pluralize(archived.rows, 'row')} of {table} {day}, but the "
            f"database noted {noted.rows}. Restore the missing files, or give up all archived rows "
            "of this day with `partitions forget`"
        )
    if problem := archive_check.find_fault(store, archived):
        raise ArchiveError(problem)
    provenance.note_archived_day(archived)
    return archived.rows


# Earlier releases wrote the operator's reasons into these files of a day's folder.
REASON_FILES: Final = ("/adopted.json", "/forgotten.json")


def forget_day(store: ArchiveStore, table: str, day: date) -> int:
    """Remove a day of one table from the archive, and return the number of its rows.

    An interrupted call can be repeated. Needs the run lock.

    Raises:
        ArchiveError: The archive does not have rows of the day.
    """
    try:
        archived = manifest.load_manifest(store, table, day)
    except ArchiveError:
        archived = None  # remove an unusable manifest, too
    noted_days = ArchivedDay.objects.filter(table=table, day=day)
    has_files = any(
        not name.endswith(REASON_FILES) for name in store.list_names(build_day_folder(table, day))
    )
    if not has_files and not noted_days.exists():
        raise ArchiveError(f"{table} {day} is not in the archive")
    manifest.delete_manifest(store, table, day)
    manifest.delete_unneeded_files(store, table, day, ())
    noted_days.delete()
    return archived.rows if archived else 0


def seal_archived_rows(
    connection: Connection,
    store: ArchiveStore,
    entity: EntityKind,
    new_manifest: Manifest,
    late_before: int,
    digest_before: str | None,
) -> None:
    """Seal an archived day again if its rows are exactly the sealed rows and the late rows.

    Otherwise the seal stays, and `verify` reports the day. Call this after the files of the day
    were written, and before note_archived_day(). Needs the run lock.

    Args:
        new_manifest: The manifest of the files that were written.
        late_before: The number of late rows before the files were written.
        digest_before: The digest of the rows that the archive had before; None if it had none.
    """
    table, day = entity.table, new_manifest.day
    newest = DaySeal.objects.filter(table=table, day=day).order_by("-id").first()
    if newest is None:
        return
    with open_day(connection, table, day) as day_table:
        count = late_rows.count_late_rows(connection, table, day)
        # If a row came meanwhile, the next run seals the day again.
        if not count or count != late_before:
            return
        digests = late_rows.compute_digests(connection, entity, day, day_table.child)
        is_sealed_and_late = (
            digests.without_late.finish() == newest.digest
            and digests.all_rows.finish() == new_manifest.digest
        )
        is_returned = not digests.without_late.rows and digest_before == newest.digest
        if digests.late_count != count or not (is_sealed_and_late or is_returned):
            return
        if new_manifest.digest != newest.digest:
            add_seal(
                connection,
                table,
                day,
                digests.all_rows
                if is_sealed_and_late
                else _digest_archived_rows(store, new_manifest),
            )
        late_rows.include_late_rows(connection, table, day)


def _digest_archived_rows(store: ArchiveStore, new_manifest: Manifest) -> DayDigest:
    """Read the archived rows of a day, and compute their digest and the digests of ranges of rows.

    A seal stores all these digests. The manifest has only the digest of all rows.
    """
    digest = DayDigest()
    for row in manifest.read_checked_rows(store, new_manifest):
        digest.add(row[0], row[1], hash_row(row))
    return digest
