"""All rows of a day, of its table and of its files."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from psycopg import sql

from history.archive import manifest
from history.archive.manifest import Manifest
from history.archive.parquet import Row, row_hash
from history.archive.store import ArchiveError, Store
from history.daily.canonical import Connection, Digest, digest
from history.daily.canonical import versions as table_rows
from history.entities import Entity


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a day: of `source`, its table, and those archived (None: without)."""

    connection: Connection
    store: Store
    entity: Entity
    source: sql.Composable
    archived: Manifest | None = None

    @contextmanager
    def ordered(self) -> Iterator[Iterator[Row]]:
        """Each row once, in the order of the files; streamed, so that no day is in memory. Raises
        ArchiveError where a row of the table differs from the archived one, and at the end if the
        archived rows are not those of the manifest."""
        with closing(table_rows(self.connection, self.entity, self.source)) as rows:
            if self.archived is None:
                yield rows
            else:
                yield union(manifest.checked_rows(self.store, self.archived), rows)

    def digest(self) -> str:
        """The digest of all rows; by the server if all are in the table."""
        if self.archived is None:
            return digest(self.connection, self.entity, self.source).finish()
        found = Digest()
        with self.ordered() as rows:
            for row in rows:
                found.add(row[0], row[1], row_hash(row))
        return found.finish()


def union(archived: Iterable[Row], table: Iterable[Row]) -> Iterator[Row]:
    """Two ordered streams as one, a row that both have once. Raises ArchiveError for
    two rows with one key and different contents."""
    last: Row | None = None
    for row in heapq.merge(archived, table, key=_sortable):
        if last is not None and row[:3] == last[:3]:
            if tuple(row) != tuple(last):
                raise ArchiveError(
                    f"{row[0]} version {row[1]} differs from its archived row. Correct the table, "
                    "or give up the archived rows of this day with `partitions forget`"
                )
            continue
        last = row
        yield row


def _sortable(row: Row) -> tuple[bytes, int, int]:
    """The key as the server orders it: ids by their bytes."""
    return row[0].encode(), row[1], row[2]
