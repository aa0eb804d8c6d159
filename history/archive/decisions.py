"""Seals follow the archive: the newest seal of an archived day is that of its archived rows."""

from dataclasses import dataclass
from datetime import date, datetime

import msgspec

from history.archive import manifest, provenance, scrubbing
from history.archive.manifest import Manifest
from history.archive.parquet import row_hash
from history.archive.store import ArchiveError, Store, folder
from history.base import clock
from history.base.table import counted
from history.daily import days
from history.daily.canonical import Connection, Digest
from history.entities import Entity
from history.models import ArchivedDay, DaySeal
from history.seals import late_rows
from history.seals.seal import add


class Adopted(msgspec.Struct, frozen=True, rename="camel"):
    """What was taken over. before: the digest that the database had noted, None if it had none."""

    rows: int
    digest: str
    before: str | None
    why: str
    adopted_at: datetime


def adopt(store: Store, table: str, day: date, why: str) -> int:
    """Note the archived rows of a day in the database; returns how many. All files are read; the
    reason stays in `adopted.json` of the day's folder. Only with the lock of maintain's runs.
    Raises ArchiveError if the day is not archived, damaged, noted already, or has fewer rows than
    noted."""
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
    if wrong := scrubbing.damaged(store, found):
        raise ArchiveError(wrong)
    for _ in manifest.checked_rows(store, found):
        pass
    before = known.digest if known else None
    entry = Adopted(found.rows, found.digest, before, why, clock.now())
    manifest.add(store, f"{folder(table, day)}/adopted.json", Adopted, entry)
    provenance.note(found)
    return found.rows


class Forgotten(msgspec.Struct, frozen=True, rename="camel"):
    """What was removed. rows, digest: those of the manifest, None if there was none."""

    rows: int | None
    digest: str | None
    why: str
    forgotten_at: datetime


def forget(store: Store, table: str, day: date, why: str) -> int:
    """Remove a day of one table from the archive; returns how many rows it had. The reason stays in
    `forgotten.json` of the day's folder. Can be repeated. Only with the lock of maintain's runs.
    Raises ArchiveError if nothing of the day is in the archive."""
    try:
        found = manifest.load(store, table, day)
    except ArchiveError:
        found = None  # a manifest that nobody can use must not stay
    known = ArchivedDay.objects.filter(table=table, day=day)
    reasons, adopted = (f"{folder(table, day)}/{name}.json" for name in ("forgotten", "adopted"))
    left = set(store.names(folder(table, day))) - {reasons, adopted}
    if not left and not known.exists():
        raise ArchiveError(f"{table} {day} is not in the archive")
    rows, digest = (found.rows, found.digest) if found else (None, None)
    _add(store, reasons, Forgotten(rows, digest, why, clock.now()))
    manifest.delete(store, table, day)
    manifest.tidy(store, table, day, ())
    known.delete()
    return rows or 0


def _add(store: Store, name: str, entry: Forgotten) -> None:
    """Add an entry to a list in a file, unless an interrupted call has done it."""
    entries = manifest.read(store, name, Forgotten)
    last = entries[-1] if entries else None
    if last is None or last.why != entry.why or entry.digest not in (None, last.digest):
        manifest.add(store, name, Forgotten, entry)


@dataclass(frozen=True, slots=True)
class Before:
    """What is known of a day before it is archived. late: the late rows. archived: the digest of
    the rows that are in the archive already; None if there are none."""

    late: int
    archived: str | None


def before(connection: Connection, table: str, day: date) -> Before:
    """To be called before a day is archived."""
    archived = ArchivedDay.objects.filter(table=table, day=day).first()
    return Before(late_rows.count(connection, table, day), archived.digest if archived else None)


def follow(
    connection: Connection, store: Store, entity: Entity, earlier: Before, done: Manifest
) -> None:
    """Seal the archived rows of a day if they are the sealed rows and rows that came late; else
    nothing, and `verify` reports the day. Call it after the day is archived and before the database
    says so, with the lock of maintain's runs."""
    table, day = entity.table, done.day
    newest = DaySeal.objects.filter(table=table, day=day).order_by("-id").first()
    if newest is None:
        return
    with late_rows.one_snapshot(connection):
        count = late_rows.count(connection, table, day)
        if not count or count != earlier.late:  # a row that came meanwhile waits for the next run
            return
        found = late_rows.digests(
            connection, entity, day, days.locate(connection, table, day).child
        )
        rows, rest = found.rows.finish(), found.rest.finish()
        whole = rest == newest.digest and rows == done.digest
        returned = not found.rest.rows and earlier.archived == newest.digest
        if found.late != count or not (whole or returned):
            return
        if done.digest != newest.digest:
            add(connection, table, day, found.rows if whole else _read(store, done))
        late_rows.include(connection, table, day)


def _read(store: Store, done: Manifest) -> Digest:
    """The digest of the archived rows, with its ranges."""
    digest = Digest()
    for row in manifest.checked_rows(store, done):
        digest.add(row[0], row[1], row_hash(row))
    return digest
