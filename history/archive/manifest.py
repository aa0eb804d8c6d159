"""What the archive says of a day: its files, their sums, and the digest of its rows."""

from __future__ import annotations

from datetime import date, datetime

import msgspec

from history.archive.store import ArchiveError, Store, folder

FORMAT = 1


class File(msgspec.Struct, frozen=True, rename="camel"):
    """One Parquet file. first, last: the ids of its first and last row; sha256: of the file;
    digest: SHA-256 over the SHA-256 of each row."""

    name: str
    rows: int
    bytes: int
    sha256: str
    digest: str
    first: str
    last: str


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """One day of one table, complete. digest: as history.canonical computes it, the same that the
    day's seal has. table_bytes: what the day took in PostgreSQL, with indexes and TOAST."""

    table: str
    day: date
    rows: int
    digest: str
    table_bytes: int
    archived_at: datetime
    files: tuple[File, ...]
    format: int = FORMAT

    @property
    def file_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def load(store: Store, table: str, day: date) -> Manifest | None:
    """The manifest of a day; None where the day is not in the archive. Raises ArchiveError for one
    that cannot be understood."""
    name = f"{folder(table, day)}/manifest.json"
    text = store.read(name)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{name}: {error}") from None
    if (found.format, found.table, found.day) != (FORMAT, table, day):
        raise ArchiveError(f"{name} is of format {found.format}, {found.table}, {found.day}")
    return found


def save(store: Store, manifest: Manifest) -> None:
    """Write the manifest: from here on the day counts as archived."""
    _write(store, f"{folder(manifest.table, manifest.day)}/manifest.json", manifest)


def load_progress(store: Store, table: str, day: date) -> list[File]:
    """The files of a day that an interrupted run has finished."""
    text = store.read(f"{folder(table, day)}/progress.json")
    return [] if text is None else msgspec.json.decode(text, type=list[File])


def save_progress(store: Store, table: str, day: date, files: list[File]) -> None:
    _write(store, f"{folder(table, day)}/progress.json", files)


def clear_progress(store: Store, table: str, day: date) -> None:
    store.delete(f"{folder(table, day)}/progress.json")


def _write(store: Store, name: str, what: object) -> None:
    with store.write(name) as sink:
        sink.write(msgspec.json.format(msgspec.json.encode(what), indent=2))
