"""Archived rows, read with the proof that they are those of the manifest."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from history.archive import manifest
from history.archive.manifest import Manifest
from history.archive.parquet import Row, row_hash
from history.archive.store import ArchiveError, Store
from history.canonical import Digest


def rows(store: Store, known: Manifest) -> Iterator[Row]:
    """The archived rows of a day, in their order; one row group in memory.

    Raises ArchiveError if a file cannot be read, or after the last row if the rows are not those of
    the manifest: what was made of them must then be thrown away.
    """
    digest = Digest()
    try:
        for row in manifest.rows(store, known):
            digest.add(row[0], row[1], row_hash(row))
            yield row
    except (OSError, pa.ArrowException) as error:
        raise ArchiveError(f"{known.table} {known.day} cannot be read: {error}") from error
    if (digest.rows, digest.finish()) != (known.rows, known.digest):
        raise ArchiveError(f"the archived rows of {known.table} {known.day} are not as written")
