"""Seals follow the archive: the newest seal of an archived day is that of its archived rows."""

from datetime import date
from typing import Final

from history.archive import manifest, provenance, scrubbing
from history.archive.manifest import Manifest
from history.archive.parquet import row_hash
from history.archive.store import ArchiveError, Store, folder
from history.base.table import counted
from history.daily.canonical import Connection, Digest
from history.daily.day_reading import open_day
from history.entities import Entity
from history.models import ArchivedDay, DaySeal
from history.seals import late_rows
from history.seals.seal import add


def adopt(store: Store, table: str, day: date) -> int:
    """Note the archived rows of a day in the database; returns how many. All files are read. Only
    with the lock of maintain's runs. Raises ArchiveError if the day is not archived, damaged, noted
    already, or has fewer rows than noted."""
    found, known = manifest.load(store, table, day), provenance.noted(table, day)
    if found is None:
        raise ArchiveError(f"{table} {day} is not in the archive")
    if known and (known.digest, known.files) == (found.digest, found.files):
        raise ArchiveError(f"the database knows these rows of {table} {day} already")
    if known and found.rows < known.rows:
        raise ArchiveError(
            f"the archive has {counted(found.rows, 'row')} of {table} {day}, the database "
            f"noted {known.rows}. Only `partitions forget` gives archived rows up"
        )
    if wrong := scrubbing.unsound(store, found):
        raise ArchiveError(wrong)
    provenance.note(found)
    return found.rows


# In these files of a day's folder earlier releases kept the reasons.
REASONS: Final = ("/adopted.json", "/forgotten.json")


def forget(store: Store, table: str, day: date) -> int:
    """Remove a day of one table from the archive; returns how many rows it had. Can be repeated.
    Only with the lock of maintain's runs. Raises ArchiveError if nothing of the day is in the
    archive."""
    try:
        found = manifest.load(store, table, day)
    except ArchiveError:
        found = None  # a manifest that nobody can use must not stay
    known = ArchivedDay.objects.filter(table=table, day=day)
    left = any(not name.endswith(REASONS) for name in store.names(folder(table, day)))
    if not left and not known.exists():
        raise ArchiveError(f"{table} {day} is not in the archive")
    manifest.delete(store, table, day)
    manifest.tidy(store, table, day, ())
    known.delete()
    return found.rows if found else 0


def follow(
    connection: Connection,
    store: Store,
    entity: Entity,
    done: Manifest,
    late: int,
    archived: str | None,
) -> None:
    """Seal the archived rows of a day if they are the sealed rows and rows that came late; else
    nothing, and `verify` reports the day. Call it after the day is archived and before the database
    says so, with the lock of maintain's runs. late, archived: the number of late rows, and the
    digest of the archived rows, before the day was archived; None: there were none."""
    table, day = entity.table, done.day
    newest = DaySeal.objects.filter(table=table, day=day).order_by("-id").first()
    if newest is None:
        return
    with open_day(connection, table, day) as place:
        count = late_rows.count(connection, table, day)
        if not count or count != late:  # a row that came meanwhile waits for the next run
            return
        rows, rest, found = late_rows.digests(connection, entity, day, place.child)
        whole = rest.finish() == newest.digest and rows.finish() == done.digest
        returned = not rest.rows and archived == newest.digest
        if found != count or not (whole or returned):
            return
        if done.digest != newest.digest:
            add(connection, table, day, rows if whole else _read(store, done))
        late_rows.include(connection, table, day)


def _read(store: Store, done: Manifest) -> Digest:
    """The digest of the archived rows, with its ranges."""
    digest = Digest()
    for row in manifest.checked_rows(store, done):
        digest.add(row[0], row[1], row_hash(row))
    return digest
