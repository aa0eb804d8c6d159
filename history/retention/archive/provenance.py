"""Checks that Annals itself archived the rows of a day.

The database notes the manifest of each day that Annals archives.
"""

from dataclasses import replace
from datetime import date

import msgspec
from psycopg import sql

from history.common import clock
from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.models import ArchivedDay
from history.retention.archive import archive_check, manifest
from history.retention.archive.manifest import ArchivedFile, Manifest
from history.retention.archive.parquet import hash_row
from history.retention.archive.rows import MergedDayRows
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.store.days.canonical import Connection, DayDigest
from history.store.days.day_reading import open_day
from history.store.days.days import DayState, DayTable


def load_noted_manifest(table: str, day: date) -> Manifest | None:
    """Return the manifest that the database noted for a day, or None if it noted none."""
    archived_day = ArchivedDay.objects.filter(table=table, day=day).first()
    if archived_day is None:
        return None
    return Manifest(
        table=table,
        day=day,
        rows=archived_day.rows,
        digest=archived_day.digest,
        table_bytes=archived_day.table_bytes,
        archived_at=archived_day.archived_at,
        files=tuple(msgspec.convert(archived_day.files, list[ArchivedFile])),
    )


def note_archived_day(new_manifest: Manifest) -> None:
    """Note the manifest of an archived day in the database, unless it is noted there already.

    Args:
        new_manifest: The manifest of the files that this process has written or has checked.
    """
    noted = load_noted_manifest(new_manifest.table, new_manifest.day)
    if noted and _are_equal(noted, new_manifest):
        return
    ArchivedDay.objects.update_or_create(
        table=new_manifest.table,
        day=new_manifest.day,
        defaults={
            "rows": new_manifest.rows,
            "table_bytes": new_manifest.table_bytes,
            "file_bytes": new_manifest.file_bytes,
            "digest": new_manifest.digest,
            "files": msgspec.to_builtins(new_manifest.files),
            "archived_at": min(new_manifest.archived_at, clock.now()),
        },
    )


def _are_equal(first: Manifest, second: Manifest) -> bool:
    return (first.rows, first.digest, first.files) == (second.rows, second.digest, second.files)


def check_provenance(
    connection: Connection, store: ArchiveStore, entity: EntityKind, day: date
) -> None:
    """Check that all archived rows of a day come from Annals, and that none is missing.

    A row comes from Annals if the database noted it when it was archived, or if it is in the day's
    table. If the archive has the manifest that the database noted, nothing else is read. Otherwise
    all rows are read in one transaction. Needs a `connection` in autocommit mode.

    Raises:
        ArchiveError: The archive has a row that is neither noted nor in the table, or lacks a noted
            row.
    """
    stored_manifest, noted = (
        manifest.load_manifest(store, entity.table, day),
        load_noted_manifest(entity.table, day),
    )
    if stored_manifest is None or (noted and _are_equal(noted, stored_manifest)):
        return
    with open_day(connection, entity.table, day) as day_table:
        table = MergedDayRows(connection, store, entity, _build_source(day_table))
        if archive_check.find_damaged_file(store, stored_manifest):
            can_be_rewritten = noted is None or noted.digest == stored_manifest.digest
            # The files are damaged. Annals can write them again if the table has all their rows.
            is_ours, extra_rows = (
                can_be_rewritten and table.compute_digest() == stored_manifest.digest,
                0,
            )
        else:
            archived = expected = _compute_digest(table, stored_manifest)
            is_ours = not (noted and archive_check.find_damaged_file(store, noted))
            if is_ours:
                expected = _compute_digest(table, noted)
                is_ours = (archived.rows, archived.finish()) == (expected.rows, expected.finish())
            extra_rows = archived.rows - expected.rows
    if not is_ours:
        raise ArchiveError(_explain_foreign_rows(stored_manifest, entity, extra_rows))


def _build_source(day_table: DayTable) -> sql.Composable:
    """Return the table of a day, or a subquery without rows if the day does not have a table."""
    if day_table.state is not DayState.ABSENT:
        return day_table.child
    return sql.SQL("(SELECT * FROM {} LIMIT 0) AS absent").format(day_table.parent)


def _compute_digest(table: MergedDayRows, archived: Manifest | None) -> DayDigest:
    """Compute the digest of a table's rows together with archived rows."""
    digest = DayDigest()
    with replace(table, archived=archived).read_in_order() as rows:
        for row in rows:
            digest.add(row[0], row[1], hash_row(row))
    return digest


def _explain_foreign_rows(stored_manifest: Manifest, entity: EntityKind, extra_rows: int) -> str:
    """Return a sentence on archived rows that do not come from Annals.

    Args:
        extra_rows: The number of these rows; 0 if it is not known.
    """
    description = pluralize(extra_rows, "row") if extra_rows > 0 else "other or damaged rows"
    return (
        f"the archive has {description} of {stored_manifest.table} {stored_manifest.day} that "
        "the database did not note and that its table does not have. The database is older than "
        "the archive, or somebody else wrote into the archive. Nothing was changed. If these rows "
        f"are yours: `partitions adopt {stored_manifest.day} --entity {entity.name} --why TEXT`; "
        "if not: `partitions forget` removes the day from the archive"
    )
