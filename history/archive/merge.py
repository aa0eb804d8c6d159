"""The union of the archived rows of a day and those of its table, by primary key."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from psycopg import sql

from history import canonical
from history.archive import checked
from history.archive.manifest import Manifest
from history.archive.parquet import GROUP_ROWS, Row, row_hash
from history.archive.store import ArchiveError, Store
from history.canonical import Connection, Digest, digest, fields, order, twins
from history.entities import Entity

# (id, version, updated_at in microseconds): the primary key, in the order of the files
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """All rows of a day: those of `source`, its table, and those that are archived already.

    archived: the manifest of the latter; None to leave them out.
    """

    connection: Connection
    store: Store
    entity: Entity
    source: sql.Composable
    archived: Manifest | None = None

    @contextmanager
    def ordered(self, after: Key | None = None) -> Iterator[Iterator[Row]]:
        """Each row once, in the order of the files, those after a key; streamed, so that no day is
        in memory. Raises ArchiveError where a row of the table differs from the archived one, and
        at the end if the archived rows are not those of the manifest."""
        where = sql.SQL("true") if after is None else canonical.after(after)
        query = sql.SQL("COPY (SELECT {} FROM {} WHERE {} ORDER BY {}) TO STDOUT (FORMAT BINARY)")
        child = () if self.entity.parent is None else ("text",)
        by, apart = order(self.connection, self.entity), twins(self.connection, self.entity)
        with (
            self.connection.cursor() as cursor,
            cursor.copy(query.format(fields(self.entity), self.source, where, by)) as copy,
        ):
            copy.set_types(["text", "int4", "int8", "text", "text", "int4", *child, "text"])
            if self.archived is None:
                yield copy.rows()
            else:
                known = checked.rows(self.store, self.archived)
                later = known if after is None else (r for r in known if _sortable(r) > _key(after))
                yield union(later, copy.rows(), apart)

    def digest(self, progress: Callable[[int], None]) -> str:
        """The digest of all rows; by the server if all are in the table."""
        if self.archived is None:
            return digest(self.connection, self.entity, self.source).finish()
        found = Digest()
        with self.ordered() as rows:
            for row in rows:
                found.add(row[0], row[1], row_hash(row))
                if found.rows % GROUP_ROWS == 0:
                    progress(found.rows)
        return found.finish()


def union(archived: Iterable[Row], table: Iterable[Row], apart: bool) -> Iterator[Row]:
    """Two ordered streams as one, a row that both have once. apart: rows of different applications
    are different rows. Raises ArchiveError for two rows with the same key and different contents.
    """
    last: Row | None = None
    for row in heapq.merge(archived, table, key=_with_application if apart else _sortable):
        if last is not None and row[:3] == last[:3] and not (apart and row[6] != last[6]):
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


def _with_application(row: Row) -> tuple[bytes, int, int, bytes]:
    """As _sortable, and of rows with one key the application, which comes before the snapshot."""
    return *_sortable(row), row[6].encode()


def _key(key: Key) -> tuple[bytes, int, int]:
    return key[0].encode(), key[1], key[2]
