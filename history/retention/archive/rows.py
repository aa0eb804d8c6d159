"""The rows of a day from its table and from its archived files, as one ordered stream."""

import heapq
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from psycopg import sql

from history.kinds.entities import EntityKind
from history.retention.archive import manifest
from history.retention.archive.manifest import Manifest
from history.retention.archive.parquet import ArchivedRow, hash_row
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.store.days.canonical import Connection, DayDigest, compute_digest, stream_versions


@dataclass(frozen=True, slots=True)
class MergedDayRows:
    """The rows of a day: the rows of the day's table, merged with the archived rows of the day."""

    connection: Connection
    store: ArchiveStore
    entity: EntityKind
    source: sql.Composable  # the table of the day
    archived: Manifest | None = None  # the manifest of the archived rows; None: only the table

    @contextmanager
    def read_in_order(self) -> Iterator[Iterator[ArchivedRow]]:
        """Yield one iterator over the rows of the archive and of the day's table.

        A row that is in the archive and in the table comes once. The rows come in the order in
        which the archive stores them. The iterator ends with the `with` block.

        Raises:
            ArchiveError: A row of the table differs from the archived row with the same key. Or, at
                the end: the archived rows do not have the digest that the manifest names.
        """
        with closing(stream_versions(self.connection, self.entity, self.source)) as rows:
            if self.archived is None:
                yield rows
            else:
                yield merge_rows(manifest.read_checked_rows(self.store, self.archived), rows)

    def compute_digest(self) -> str:
        """Compute the digest of all rows. PostgreSQL hashes them if all are in the table."""
        if self.archived is None:
            return compute_digest(self.connection, self.entity, self.source).finish()
        digest = DayDigest()
        with self.read_in_order() as rows:
            for row in rows:
                digest.add(row[0], row[1], hash_row(row))
        return digest.finish()


def merge_rows(
    archived: Iterable[ArchivedRow], table: Iterable[ArchivedRow]
) -> Iterator[ArchivedRow]:
    """Merge two ordered streams. A row that is in both is yielded once.

    Raises:
        ArchiveError: Two rows have equal keys and different contents.
    """
    previous: ArchivedRow | None = None
    for row in heapq.merge(archived, table, key=_build_sort_key):
        if previous is not None and row[:3] == previous[:3]:
            if tuple(row) != tuple(previous):
                raise ArchiveError(
                    f"{row[0]} version {row[1]} differs from its archived row. Correct the table, "
                    "or give up the archived rows of this day with `partitions forget`"
                )
            continue
        previous = row
        yield row


def _build_sort_key(row: ArchivedRow) -> tuple[bytes, int, int]:
    """Return the key that sorts rows as PostgreSQL does: ids by their bytes."""
    return row[0].encode(), row[1], row[2]
