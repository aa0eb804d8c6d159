"""The manifest of an archived day: its files, their checksums, and the digest of its rows."""

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Annotated

import msgspec
import pyarrow as pa

from history.retention.archive import parquet
from history.retention.archive.parquet import ArchivedRow, hash_row
from history.retention.archive.store import ArchiveError, ArchiveStore, build_day_folder
from history.store.days.canonical import DayDigest

FORMAT = 1
# The name of a file in the folder of its day, without a path.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.parquet")
# A number that fits into a bigint column.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ArchivedFile(msgspec.Struct, frozen=True, rename="camel"):
    """One Parquet file of a day."""

    name: str
    rows: Count
    bytes: Count
    sha256: str  # of the bytes of the file
    digest: str  # SHA-256 over the SHA-256 of all rows
    first: str  # the id of the first row
    last: str  # the id of the last row


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """The manifest of one archived day of one table: the files that have all of its rows."""

    table: str
    day: date
    rows: Count
    digest: str  # of the ordered rows, as history.store.days.canonical computes it
    table_bytes: Count  # the size of the day in PostgreSQL, with indexes and TOAST
    archived_at: datetime
    files: tuple[ArchivedFile, ...]
    generation: Count = 1  # how many times the files of the day have been written
    format: int = FORMAT

    @property
    def file_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def load_manifest(store: ArchiveStore, table: str, day: date) -> Manifest | None:
    """Return the manifest of a day, or None if the day is not archived.

    Raises:
        ArchiveError: The manifest cannot be read.
    """
    name = _build_path(table, day)
    text = store.read(name)
    if text is None:
        return None
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{name}: {error}") from None
    if (manifest.format, manifest.table, manifest.day) != (FORMAT, table, day):
        raise ArchiveError(
            f"{name} is not the manifest of {table} {day} in format {FORMAT}: it names "
            f"{manifest.table}, {manifest.day} and format {manifest.format}"
        )
    if not _are_files_of_day(table, day, manifest.files) or manifest.rows != sum(
        file.rows for file in manifest.files
    ):
        raise ArchiveError(
            f"{name} is wrong: a file is in another folder or listed twice, or the numbers of "
            "rows do not add up"
        )
    return manifest


def save_manifest(store: ArchiveStore, manifest: Manifest) -> None:
    """Write the manifest. From then on the archived day consists of exactly the files in it."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    store.put(_build_path(manifest.table, manifest.day), text)


def delete_manifest(store: ArchiveStore, table: str, day: date) -> None:
    """Delete the manifest of a day: the day no longer counts as archived. The files stay."""
    store.delete(_build_path(table, day))


def delete_unneeded_files(
    store: ArchiveStore, table: str, day: date, needed: Iterable[ArchivedFile]
) -> None:
    """Delete the Parquet files of a day, also unfinished ones, unless they are in `needed`."""
    store.delete(f"{build_day_folder(table, day)}/progress.json")  # from an earlier release
    needed_names = {file.name for file in needed}
    for name in store.list_names(build_day_folder(table, day)):
        if ".parquet" in name and name not in needed_names:
            store.delete(name)


def _are_files_of_day(table: str, day: date, files: tuple[ArchivedFile, ...]) -> bool:
    """Return whether all files are in the folder of the day and none is listed twice."""
    names = [file.name for file in files]
    start = build_day_folder(table, day) + "/"
    all_in_folder = all(n.startswith(start) and FILE_NAME.fullmatch(n[len(start) :]) for n in names)
    return all_in_folder and len(set(names)) == len(names)


def _build_path(table: str, day: date) -> str:
    return f"{build_day_folder(table, day)}/manifest.json"


def read_checked_rows(store: ArchiveStore, manifest: Manifest) -> Iterator[ArchivedRow]:
    """Yield the archived rows of a day in their order, with one row group in memory.

    Raises:
        ArchiveError: A file cannot be read. Or, after the last row: the rows do not have the digest
            that the manifest names.
    """
    digest = DayDigest()
    try:
        for file in manifest.files:
            with store.open(file.name) as content:
                for row in parquet.read_rows(content):
                    digest.add(row[0], row[1], hash_row(row))
                    yield row
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(
            f"the archived files of {manifest.table} {manifest.day} cannot be read: {error}"
        ) from error
    if (digest.rows, digest.finish()) != (manifest.rows, manifest.digest):
        raise ArchiveError(
            f"the archived rows of {manifest.table} {manifest.day} differ from those that the"
            f" manifest names: the files have {digest.rows} rows, the manifest names"
            f" {manifest.rows} rows, and the digests differ"
        )
