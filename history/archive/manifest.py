"""What the archive says of a day: its files, their checksums, and the digest of its rows."""

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from typing import Annotated

import msgspec
import pyarrow as pa

from history.archive import parquet
from history.archive.parquet import Row, row_hash
from history.archive.store import ArchiveError, Store, folder
from history.daily.canonical import Digest

FORMAT = 1
# In the folder of its day; no path.
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\.parquet")
# What the database can note.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class File(msgspec.Struct, frozen=True, rename="camel"):
    """One Parquet file. first, last: the ids of its first and last row; sha256: of the file;
    digest: SHA-256 over the SHA-256 of each row."""

    name: str
    rows: Count
    bytes: Count
    sha256: str
    digest: str
    first: str
    last: str


class Manifest(msgspec.Struct, frozen=True, rename="camel"):
    """One day of one table, complete. digest: of the ordered rows, as history.daily.canonical
    computes it. table_bytes: the size of the day in PostgreSQL, with indexes and TOAST.
    generation: 1, and one more with each merge of rows that came later."""

    table: str
    day: date
    rows: Count
    digest: str
    table_bytes: Count
    archived_at: datetime
    files: tuple[File, ...]
    generation: Count = 1
    format: int = FORMAT

    @property
    def file_bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def load(store: Store, table: str, day: date) -> Manifest | None:
    """The manifest of a day; None if it is not in the archive. Raises ArchiveError."""
    name = _path(table, day)
    text = store.read(name)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise ArchiveError(f"{name}: {error}") from None
    if (found.format, found.table, found.day) != (FORMAT, table, day):
        raise ArchiveError(f"{name} is of format {found.format}, {found.table}, {found.day}")
    if not _listed(table, day, found.files) or found.rows != sum(each.rows for each in found.files):
        raise ArchiveError(f"{name} lists files that are not those of this day")
    return found


def save(store: Store, manifest: Manifest) -> None:
    """Write the manifest: from now on exactly these files are the archived day."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    store.put(_path(manifest.table, manifest.day), text)


def delete(store: Store, table: str, day: date) -> None:
    """Delete the manifest: the day is not archived any more. Its files are left to `tidy`."""
    store.delete(_path(table, day))


def tidy(store: Store, table: str, day: date, needed: Iterable[File]) -> None:
    """Delete the Parquet files of a day that are not needed, unfinished ones too."""
    store.delete(f"{folder(table, day)}/progress.json")  # of a release that kept one
    keep = {file.name for file in needed}
    for name in store.names(folder(table, day)):
        if ".parquet" in name and name not in keep:
            store.delete(name)


def _listed(table: str, day: date, files: tuple[File, ...]) -> bool:
    """Whether these can be the files of a day: each of its folder, none listed twice."""
    names = [each.name for each in files]
    start = folder(table, day) + "/"
    ours = all(n.startswith(start) and FILE_NAME.fullmatch(n[len(start) :]) for n in names)
    return ours and len(set(names)) == len(names)


def _path(table: str, day: date) -> str:
    return f"{folder(table, day)}/manifest.json"


def checked_rows(store: Store, known: Manifest) -> Iterator[Row]:
    """The archived rows of a day, in their order; one row group in memory. Raises ArchiveError if a
    file cannot be read, or after the last row if they are not those of the manifest."""
    digest = Digest()
    try:
        for file in known.files:
            with store.open(file.name) as opened:
                for row in parquet.rows(opened):
                    digest.add(row[0], row[1], row_hash(row))
                    yield row
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{known.table} {known.day} cannot be read: {error}") from error
    if (digest.rows, digest.finish()) != (known.rows, known.digest):
        raise ArchiveError(f"the archived rows of {known.table} {known.day} are not as written")
