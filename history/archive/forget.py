"""Removing a day from the archive: the only way in which an archived row can disappear."""

from __future__ import annotations

from datetime import date, datetime

import msgspec

from history.archive import manifest, record
from history.archive.store import ArchiveError, Store, folder
from history.base import clock
from history.models import ArchivedDay


class Forgotten(msgspec.Struct, frozen=True, rename="camel"):
    """What was removed. rows, digest: those of the manifest, None if there was none."""

    rows: int | None
    digest: str | None
    why: str
    forgotten_at: datetime


def forget(store: Store, table: str, day: date, why: str) -> int:
    """Remove a day of one table from the archive; returns how many rows it had.

    The reason stays in `forgotten.json` of the day's folder. Rows that are in the table stay there.
    A call that was interrupted can be repeated. Only with the lock of maintain's runs. Raises
    ArchiveError if nothing of the day is in the archive.
    """
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
    entries = record.read(store, name, Forgotten)
    last = entries[-1] if entries else None
    if last is None or last.why != entry.why or entry.digest not in (None, last.digest):
        record.add(store, name, Forgotten, entry)
