"""Reads the archive and compares its files with manifest, database and seal, one day at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import pyarrow as pa
from django.db import connection
from django.db.models import F, QuerySet

from history import days
from history.archive import manifest, sound
from history.archive.manifest import File, Manifest
from history.archive.parquet import Row
from history.archive.store import ArchiveError, Store
from history.base import clock
from history.base.table import counted
from history.canonical import Digest
from history.days import State
from history.entities import Entity
from history.models import ArchivedDay, DaySeal

TRIES = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking one archived day. bytes: how many were read. fault: what is wrong,
    None if nothing is. note: what the files were compared with."""

    table: str
    day: date
    rows: int
    bytes: int
    fault: str | None
    note: str


@dataclass(slots=True)
class Pace:
    """Slows down reading to a number of bytes per second; 0: as fast as possible.

    tick: called with the bytes read since the last call.
    """

    rate: int = 0
    tick: Callable[[int], None] = lambda _: None
    bytes: int = 0
    _began: float | None = None

    def read(self, count: int) -> None:
        """Count bytes, and wait until as many may have been read."""
        if self._began is None:
            self._began = time.monotonic()
        self.bytes += count
        self.tick(count)
        if self.rate:
            ahead = self.bytes / self.rate - (time.monotonic() - self._began)
            if ahead > 0:
                time.sleep(ahead)


def waiting(entity: Entity | None = None, day: date | None = None) -> QuerySet[ArchivedDay]:
    """The archived days in the order in which they should be checked: those with a fault, those
    that were never checked, then by their last check."""
    found = ArchivedDay.objects.all()
    if entity is not None:
        found = found.filter(table=entity.table)
    if day is not None:
        found = found.filter(day=day)
    return found.order_by(F("fault").desc(), F("checked_at").asc(nulls_first=True), "day", "table")


def scrub(
    store: Store, found: QuerySet[ArchivedDay], pace: Pace, seconds: float | None = None
) -> Iterator[Checked]:
    """Check archived days in the given order, and store the result of each: the next run goes on
    with the others. A day that cannot be read has that as its fault.

    seconds: start no day after this time. The first day is always checked, so that every run makes
    progress.
    """
    began = time.monotonic()
    for number, (key, table, day) in enumerate(list(found.values_list("id", "table", "day"))):
        if number and seconds is not None and time.monotonic() - began >= seconds:
            return
        result = _check(store, table, day, pace)
        if result is not None:
            ArchivedDay.objects.filter(id=key).update(
                checked_at=clock.now(), fault=result.fault or ""
            )
            yield result


def _check(store: Store, table: str, day: date, pace: Pace) -> Checked | None:
    """Check a day; None if it is not archived any more. A generation that maintain replaces
    meanwhile is not a fault: then the new one is checked."""
    before = pace.bytes
    for _ in range(TRIES):
        known = ArchivedDay.objects.filter(table=table, day=day).first()
        if known is None:
            return None
        rows, files = known.rows, known.files
        try:
            fault, note = _compare(store, known, pace)
        except (ArchiveError, OSError, pa.ArrowException) as error:
            fault, note = f"cannot be read: {error}", "not compared"
        if fault is None or not _replaced(known):
            break
    return Checked(
        table, day, rows, pace.bytes - before, fault, f"{counted(len(files), 'file')}, {note}"
    )


def _replaced(known: ArchivedDay) -> bool:
    """Whether the day has got a newer generation since, or was removed from the archive."""
    now = ArchivedDay.objects.filter(id=known.id).first()
    return now is None or now.archived_at != known.archived_at


def _compare(store: Store, known: ArchivedDay, pace: Pace) -> tuple[str | None, str]:
    found = manifest.load(store, known.table, known.day)
    if found is None:
        return "the archive has no manifest of the day", "not compared"
    whole = Digest()

    def add(row: Row, hashed: bytes) -> None:
        whole.add(row[0], row[1], hashed)

    for said in found.files:
        if fault := sound.damage(store, said, add, pace.read):
            return fault, "not compared"
    if (whole.rows, whole.finish()) != (found.rows, found.digest):
        return "the rows of the files are not those of the manifest", "manifest"
    return _compare_database(known, found)


def _compare_database(known: ArchivedDay, found: Manifest) -> tuple[str | None, str]:
    """Compare a manifest with what the database says of the day. Its files are sound."""
    in_table = days.locate(connection.connection, known.table, known.day).state is not State.ABSENT
    if (found.rows, found.digest) != (known.rows, known.digest):
        newer = found.rows >= known.rows and found.archived_at > known.archived_at
        if newer and in_table:
            return None, "manifest; maintain was interrupted, its next run records it"
        counts = f"{counted(found.rows, 'row')}, the database {known.rows}"
        return f"the manifest names {counts}; their digests differ", "manifest"
    fault, note = _compare_seals(known, found, in_table)
    if fault is None and msgspec.convert(known.files, tuple[File, ...]) != found.files:
        if found.archived_at > known.archived_at and in_table:
            return None, "manifest; maintain was interrupted, its next run records it"
        return "the manifest names other files than the database, or other ids in them", "manifest"
    return fault, note


def _compare_seals(known: ArchivedDay, found: Manifest, in_table: bool) -> tuple[str | None, str]:
    """Compare the manifest with the day's seals."""
    seals = list(
        DaySeal.objects.filter(table=known.table, day=known.day)
        .order_by("-id")
        .values_list("digest", flat=True)
    )
    if not seals:
        return None, "manifest; the day has no seal"
    if found.digest == seals[0]:
        return None, "manifest and seal"
    if found.digest in seals and in_table:
        return None, "manifest and an earlier seal; the table has further rows"
    return "the archived rows are not the sealed rows", "manifest and seal"
