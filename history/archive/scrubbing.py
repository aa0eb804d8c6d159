"""Reads the archive and compares its files with manifest, database and seal, one day at a time."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import pyarrow as pa
from django.db import connection
from django.db.models import F, QuerySet

from history.archive import manifest, parquet
from history.archive.manifest import File, Manifest
from history.archive.parquet import Row, row_hash
from history.archive.store import ArchiveError, Store
from history.base import clock
from history.base.table import counted
from history.daily import days
from history.daily.canonical import Digest
from history.daily.days import DayState
from history.entities import Entity
from history.models import ArchivedDay, DaySeal

# A row and its SHA-256
Each = Callable[[Row, bytes], None]


def read(store: Store, name: str) -> File:
    """What a file is. Raises FileNotFoundError; ArchiveError as `_rows` does."""
    sha256, size = store.sha256(name)
    return _rows(store, name, size, sha256)


def damage(store: Store, said: File, each: Each = lambda *_: None) -> str | None:
    """What is wrong with a file; None if it is as its manifest says. Reads its bytes, then its
    rows; one row group in memory. each: called with every row."""
    try:
        sha256, size = store.sha256(said.name)
        if (said.sha256, said.bytes) != (sha256, size):
            return (
                f"{said.name} has changed in the archive: it has other bytes than its manifest says"
            )
        found = _rows(store, said.name, size, sha256, each)
    except FileNotFoundError:
        return f"{said.name} is missing in the archive"
    except ArchiveError as error:
        return str(error)
    same = said == found
    return None if same else f"{said.name} has other rows than its manifest says, or other ids"


def damaged(store: Store, manifest: Manifest) -> str | None:
    """What is wrong with the first file of a day that is not as it was written; None if all are."""
    return next(filter(None, (damage(store, file) for file in manifest.files)), None)


def unsound(store: Store, manifest: Manifest) -> str | None:
    """As damaged; also whether the rows of all files are those of the manifest."""
    whole = Digest()
    for file in manifest.files:
        if fault := damage(store, file, lambda row, hashed: whole.add(row[0], row[1], hashed)):
            return fault
    same = (whole.rows, whole.finish()) == (manifest.rows, manifest.digest)
    return None if same else "the rows of the files are not those of the manifest"


def _rows(store: Store, name: str, size: int, sha256: str, each: Each = lambda *_: None) -> File:
    """What a file is, by its rows. Raises ArchiveError if it has none or is no file of ours."""
    digest, rows = hashlib.sha256(), 0
    first = last = ""
    try:
        with store.open(name) as opened:
            parquet.check_columns(opened)
            opened.seek(0)
            for row in parquet.rows(opened):
                hashed = row_hash(row)
                digest.update(hashed)
                each(row, hashed)
                first, last, rows = first if rows else row[0], row[0], rows + 1
    except (pa.ArrowException, ValueError) as error:
        raise ArchiveError(f"{name} cannot be read: {error}") from error
    if not rows:
        raise ArchiveError(f"{name} has no rows")
    return File(name, rows, size, sha256, digest.hexdigest(), first, last)


TRIES = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of checking one archived day. bytes: of its files. fault: what is wrong,
    None if nothing is. note: what the files were compared with."""

    table: str
    day: date
    rows: int
    bytes: int
    fault: str | None
    note: str


def waiting(entity: Entity | None = None, day: date | None = None) -> QuerySet[ArchivedDay]:
    """The archived days in the order in which they should be checked."""
    found = ArchivedDay.objects.all()
    if entity is not None:
        found = found.filter(table=entity.table)
    if day is not None:
        found = found.filter(day=day)
    return found.order_by(F("fault").desc(), F("checked_at").asc(nulls_first=True), "day", "table")


def scrub(
    store: Store, found: QuerySet[ArchivedDay], seconds: float | None = None
) -> Iterator[Checked]:
    """Check archived days in the given order, and store the result of each; a day that cannot be
    read has that as its fault. seconds: start no day after this time, except the first."""
    began = time.monotonic()
    for number, (key, table, day) in enumerate(list(found.values_list("id", "table", "day"))):
        if number and seconds is not None and time.monotonic() - began >= seconds:
            return
        result = _check(store, table, day)
        if result is not None:
            ArchivedDay.objects.filter(id=key).update(
                checked_at=clock.now(), fault=result.fault or ""
            )
            yield result


def _check(store: Store, table: str, day: date) -> Checked | None:
    """Check a day; None if it is not archived any more."""
    for _ in range(TRIES):
        known = ArchivedDay.objects.filter(table=table, day=day).first()
        if known is None:
            return None
        try:
            fault, note = _compare(store, known)
        except (ArchiveError, OSError, pa.ArrowException) as error:
            fault, note = f"cannot be read: {error}", "not compared"
        said = f"{counted(len(known.files), 'file')}, {note}"
        result = Checked(table, day, known.rows, known.file_bytes, fault, said)
        same = ArchivedDay.objects.filter(id=known.id, archived_at=known.archived_at)
        if fault is None or same.exists():
            break  # else it has a newer generation since, or was removed from the archive
    return result


def _compare(store: Store, known: ArchivedDay) -> tuple[str | None, str]:
    found = manifest.load(store, known.table, known.day)
    if found is None:
        return "the archive has no manifest of the day", "not compared"
    if fault := unsound(store, found):
        return fault, "not compared"
    return _compare_database(known, found)


def _compare_database(known: ArchivedDay, found: Manifest) -> tuple[str | None, str]:
    """Compare a manifest with what the database says of the day. Its files are sound."""
    in_table = (
        days.locate(connection.connection, known.table, known.day).state is not DayState.ABSENT
    )
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
