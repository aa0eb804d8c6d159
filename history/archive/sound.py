"""Whether a file of the archive is what is said of it: everything is computed from its bytes and
rows, because whoever can write a file can write a manifest that fits it, too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pyarrow as pa
from msgspec.structs import replace

from history.archive import parquet
from history.archive.manifest import File, Manifest
from history.archive.parquet import Row, row_hash
from history.archive.store import ArchiveError, Store

# A row and its SHA-256
Each = Callable[[Row, bytes], None]
# Bytes
Reading = Callable[[int], None]


def read(store: Store, name: str) -> File:
    """What a file is. Raises FileNotFoundError; ArchiveError as `_rows` does."""
    sha256, size = store.sha256(name)
    return _rows(store, name, size, sha256)


def damage(
    store: Store,
    said: File,
    each: Each = lambda *_: None,
    reading: Reading = lambda _: None,
) -> str | None:
    """What is wrong with a file; None if it is as it was written and as its manifest says.

    Reads its bytes, then its rows if the bytes are right; one row group in memory. each: called
    with every row. reading: called with the bytes that were read since the last call; each byte
    counts twice.
    """
    try:
        sha256, size = store.sha256(said.name, reading)
        if (said.sha256, said.bytes) != (sha256, size):
            other = "it has other bytes than its manifest says"
            return f"{said.name} has changed in the archive: {other}"
        found = _rows(store, said.name, size, sha256, each, reading)
    except FileNotFoundError:
        return f"{said.name} is missing in the archive"
    except ArchiveError as error:
        return str(error)
    if (said.rows, said.digest) != (found.rows, found.digest):
        return f"{said.name} has other rows than its manifest says"
    if said != found:
        return (
            f"{said.name} has the ids {found.first} to {found.last}, "
            f"its manifest says {said.first} to {said.last}"
        )
    return None


def damaged(store: Store, manifest: Manifest) -> str | None:
    """What is wrong with the first file of a day that is not as it was written; None if all are.
    Reads every byte and every row."""
    return next(filter(None, (damage(store, file) for file in manifest.files)), None)


def corrected(store: Store, known: Manifest) -> Manifest:
    """The manifest with the first and last ids that its files have. Raises ArchiveError if anything
    else in it is wrong."""
    files = tuple(_ids_of(store, said) for said in known.files)
    if wrong := damaged(store, corrected := replace(known, files=files)):
        raise ArchiveError(wrong)
    return corrected


def _ids_of(store: Store, said: File) -> File:
    """said, with the first and last id that the file has; said itself if it cannot be read."""
    try:
        found = read(store, said.name)
    except (ArchiveError, FileNotFoundError):
        return said
    return replace(said, first=found.first, last=found.last)


def _rows(
    store: Store,
    name: str,
    size: int,
    sha256: str,
    each: Each = lambda *_: None,
    reading: Reading = lambda _: None,
) -> File:
    """What a file is, by its rows. Raises ArchiveError if it has none, if it is no file of ours, or
    if an id would not be found by what the footer says of its row group."""
    digest, rows, counted = hashlib.sha256(), 0, 0
    first = last = ""
    try:
        with store.open(name) as opened:
            for row in parquet.checked_rows(opened):
                hashed = row_hash(row)
                digest.update(hashed)
                each(row, hashed)
                first, last, rows = first if rows else row[0], row[0], rows + 1
                if rows % parquet.READ_ROWS == 0:
                    share = min(max(opened.tell(), counted), size)
                    reading(share - counted)
                    counted = share
    except (pa.ArrowException, ValueError) as error:
        raise ArchiveError(f"{name} cannot be read: {error}") from error
    reading(size - counted)
    if not rows:
        raise ArchiveError(f"{name} has no rows")
    return File(name, rows, size, sha256, digest.hexdigest(), first, last)
