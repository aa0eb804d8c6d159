"""Reads the archive and compares its files with manifest, database and seal, day by day."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import pyarrow as pa
from django.db import connection
from django.db.models import F, QuerySet

from history.common import clock
from history.common.text_tables import pluralize
from history.kinds.entities import EntityKind
from history.models import ArchivedDay, DaySeal
from history.retention.archive import manifest, parquet
from history.retention.archive.manifest import ArchivedFile, Manifest
from history.retention.archive.parquet import ArchivedRow, hash_row
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.store.days import days
from history.store.days.canonical import DayDigest
from history.store.days.days import DayState

# Called with a row and its SHA-256.
RowCallback = Callable[[ArchivedRow, bytes], None]


def describe_file(store: ArchiveStore, name: str) -> ArchivedFile:
    """Read a file and return the entry for a manifest: the size, checksums, row count and ids.

    Raises:
        FileNotFoundError: The file does not exist.
        ArchiveError: The file does not have rows, or is not a file of the archive.
    """
    sha256, size = store.compute_sha256(name)
    return _describe_rows(store, name, size, sha256)


def find_damage(
    store: ArchiveStore, expected_file: ArchivedFile, on_row: RowCallback = lambda *_: None
) -> str | None:
    """Compare a file with its entry in the manifest, and return what is wrong, or None.

    Reads the file twice: its bytes, then its rows, with one row group in memory.

    Args:
        expected_file: The entry in the manifest.
        on_row: Called with every row and its SHA-256.
    """
    try:
        sha256, size = store.compute_sha256(expected_file.name)
        if (expected_file.sha256, expected_file.bytes) != (sha256, size):
            return (
                f"{expected_file.name} has changed in the archive: it has other bytes than "
                "its manifest says"
            )
        stored_file = _describe_rows(store, expected_file.name, size, sha256, on_row)
    except FileNotFoundError:
        return f"{expected_file.name} is missing in the archive"
    except ArchiveError as error:
        return str(error)
    is_equal = expected_file == stored_file
    return (
        None if is_equal else f"{expected_file.name} has other rows or ids than its manifest says"
    )


def find_damaged_file(store: ArchiveStore, manifest: Manifest) -> str | None:
    """Return what is wrong with the first damaged file of a day, or None."""
    return next(filter(None, (find_damage(store, file) for file in manifest.files)), None)


def find_fault(store: ArchiveStore, manifest: Manifest) -> str | None:
    """Return what is wrong with the files of an archived day, or None.

    Checks each file, and then the digest of the rows of all files.
    """
    day_digest = DayDigest()
    for file in manifest.files:
        if fault := find_damage(
            store, file, lambda row, row_hash: day_digest.add(row[0], row[1], row_hash)
        ):
            return fault
    is_equal = (day_digest.rows, day_digest.finish()) == (manifest.rows, manifest.digest)
    return (
        None if is_equal else "the rows of the files are not the rows that the manifest describes"
    )


def _describe_rows(
    store: ArchiveStore, name: str, size: int, sha256: str, on_row: RowCallback = lambda *_: None
) -> ArchivedFile:
    """Read the rows of a file, and return their number, digest, first id and last id.

    Args:
        size: The size of the file in bytes, copied to the result.
        sha256: The SHA-256 of the file, copied to the result.
        on_row: Called with every row and its SHA-256.

    Raises:
        ArchiveError: The file has no rows, or is not a file of the archive.
    """
    digest, rows = hashlib.sha256(), 0
    first = last = ""
    try:
        with store.open(name) as content:
            parquet.check_columns(content)
            content.seek(0)
            for row in parquet.read_rows(content):
                digest_of_row = hash_row(row)
                digest.update(digest_of_row)
                on_row(row, digest_of_row)
                first, last, rows = first if rows else row[0], row[0], rows + 1
    except (pa.ArrowException, ValueError) as error:
        raise ArchiveError(f"{name} cannot be read: {error}") from error
    if not rows:
        raise ArchiveError(
            f"{name} has no rows, and a file of the archive always has some: restore the file from "
            "a copy of the archive, or archive the day again"
        )
    return ArchivedFile(name, rows, size, sha256, digest.hexdigest(), first, last)


# How many times a day is read at most, if it is archived again while it is read.
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ArchiveCheckResult:
    """The result of checking one archived day."""

    table: str
    day: date
    rows: int
    bytes: int  # the size of the files
    fault: str | None  # what is wrong, or None
    note: str  # what the files were compared with


def list_days_to_check(
    entity: EntityKind | None = None, day: date | None = None
) -> QuerySet[ArchivedDay]:
    """Return archived days: first the days with a fault, then the days checked longest ago."""
    archived_days = ArchivedDay.objects.all()
    if entity is not None:
        archived_days = archived_days.filter(table=entity.table)
    if day is not None:
        archived_days = archived_days.filter(day=day)
    return archived_days.order_by(
        F("fault").desc(), F("checked_at").asc(nulls_first=True), "day", "table"
    )


def check_archived_days(
    store: ArchiveStore, archived_days: QuerySet[ArchivedDay], seconds: float | None = None
) -> Iterator[ArchiveCheckResult]:
    """Check archived days in the given order. Store the result of each day and yield it.

    If the files of a day cannot be read, the `fault` of the result says this.

    Args:
        seconds: After this many seconds no further day is begun. The first day is always checked.
            None: no limit.
    """
    began = time.monotonic()
    for number, (key, table, day) in enumerate(
        list(archived_days.values_list("id", "table", "day"))
    ):
        if number and seconds is not None and time.monotonic() - began >= seconds:
            return
        result = _check_day(store, table, day)
        if result is not None:
            ArchivedDay.objects.filter(id=key).update(
                checked_at=clock.now(), fault=result.fault or ""
            )
            yield result


def _check_day(store: ArchiveStore, table: str, day: date) -> ArchiveCheckResult | None:
    """Check a day. Return None if the day is not archived any more."""
    for _ in range(MOST_ATTEMPTS):
        archived_day = ArchivedDay.objects.filter(table=table, day=day).first()
        if archived_day is None:
            return None
        try:
            fault, note = _compare_day(store, archived_day)
        except (ArchiveError, OSError, pa.ArrowException) as error:
            fault, note = f"cannot be read: {error}", "not compared"
        comparison = f"{pluralize(len(archived_day.files), 'file')}, {note}"
        result = ArchiveCheckResult(
            table, day, archived_day.rows, archived_day.file_bytes, fault, comparison
        )
        same_generation = ArchivedDay.objects.filter(
            id=archived_day.id, archived_at=archived_day.archived_at
        )
        # If the day was archived again or removed meanwhile, the fault proves nothing: check again.
        if fault is None or same_generation.exists():
            break
    return result


def _compare_day(store: ArchiveStore, archived_day: ArchivedDay) -> tuple[str | None, str]:
    stored_manifest = manifest.load_manifest(store, archived_day.table, archived_day.day)
    if stored_manifest is None:
        return "the archive has no manifest of the day", "not compared"
    if fault := find_fault(store, stored_manifest):
        return fault, "not compared"
    return _compare_database(archived_day, stored_manifest)


def _compare_database(
    archived_day: ArchivedDay, stored_manifest: Manifest
) -> tuple[str | None, str]:
    """Compare the manifest of a day with what the database noted of the day.

    The files of the day were checked before and have no fault.

    Returns:
        What is wrong, or None; and a note on what was compared.
    """
    in_table = (
        days.locate_day(connection.connection, archived_day.table, archived_day.day).state
        is not DayState.ABSENT
    )
    if (stored_manifest.rows, stored_manifest.digest) != (archived_day.rows, archived_day.digest):
        newer = (
            stored_manifest.rows >= archived_day.rows
            and stored_manifest.archived_at > archived_day.archived_at
        )
        if newer and in_table:
            return (
                None,
                "manifest; maintain was interrupted, and its next run records this manifest",
            )
        counts = f"{pluralize(stored_manifest.rows, 'row')}, the database {archived_day.rows}"
        return f"the manifest names {counts}, and the digests differ", "manifest"
    fault, note = _compare_seals(archived_day, stored_manifest, in_table)
    if (
        fault is None
        and msgspec.convert(archived_day.files, tuple[ArchivedFile, ...]) != stored_manifest.files
    ):
        if stored_manifest.archived_at > archived_day.archived_at and in_table:
            return (
                None,
                "manifest; maintain was interrupted, and its next run records this manifest",
            )
        return "the manifest names other files or ids than the database", "manifest"
    return fault, note


def _compare_seals(
    archived_day: ArchivedDay, stored_manifest: Manifest, in_table: bool
) -> tuple[str | None, str]:
    """Compare the manifest of a day with the day's seals.

    Returns:
        What is wrong, or None; and a note on what was compared.
    """
    seals = list(
        DaySeal.objects.filter(table=archived_day.table, day=archived_day.day)
        .order_by("-id")
        .values_list("digest", flat=True)
    )
    if not seals:
        return None, "manifest; the day has no seal"
    if stored_manifest.digest == seals[0]:
        return None, "manifest and seal"
    if stored_manifest.digest in seals and in_table:
        return None, "manifest and an earlier seal; the table has further rows"
    return "the archived rows are not the sealed rows", "manifest and seal"
