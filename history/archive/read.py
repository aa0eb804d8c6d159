"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from psycopg import sql

from history.archive import manifest, parquet
from history.archive.manifest import File, Manifest
from history.archive.parquet import GROUP_ROWS, Row, row_hash
from history.archive.store import ArchiveError, Store
from history.daily.canonical import Connection, Digest, columns, digest
from history.daily.canonical import versions as table_rows
from history.documents.jsonb import from_store
from history.entities import Entity
from history.models import ArchivedDay

READERS = 8
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ArchivedVersion(NamedTuple):
    """One version from the archive. data: the snapshot as JSON text in UTF-8."""

    id: str
    version: int
    updated_at: datetime
    client_id: str
    author: str | None
    type: int
    product_instance_id: str | None
    data: bytes


def versions(
    store: Store, entity: Entity, id_: str, since: date | None = None, until: date | None = None
) -> list[ArchivedVersion]:
    """The archived versions of one entity from the days since..until, both included, by version and
    time; restored days too. Opens only files and row groups that may hold the id. Raises OSError if
    the archive does not answer, ArchiveError if a file is broken."""
    wanted = _listed(entity, since, until)
    while True:
        try:
            return _read(store, entity, wanted, id_)
        except FileNotFoundError:
            # A merge may have replaced files since the database was asked for them.
            before, wanted = wanted, _listed(entity, since, until)
            if wanted == before:
                raise


def _listed(entity: Entity, since: date | None, until: date | None) -> list[list[File]]:
    """The files of each archived day, as the database noted them; the manifests are not asked."""
    days = ArchivedDay.objects.filter(table=entity.table)
    if since is not None:
        days = days.filter(day__gte=since)
    if until is not None:
        days = days.filter(day__lte=until)
    return [msgspec.convert(files, list[File]) for files in days.values_list("files", flat=True)]


def _read(
    store: Store, entity: Entity, wanted: Sequence[Sequence[File]], id_: str
) -> list[ArchivedVersion]:
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda files: _from_files(store, entity, files, id_), wanted)
        return sorted(
            (version for part in found for version in part),
            key=lambda version: (version.version, version.updated_at),
        )


def _from_files(
    store: Store, entity: Entity, files: Sequence[File], id_: str
) -> list[ArchivedVersion]:
    found = []
    for each in files:
        if not each.first <= id_ <= each.last:
            continue
        try:
            with store.open(each.name) as file:
                if groups := parquet.groups_of(file, id_):
                    file.seek(0)
                    rows = parquet.rows(file, groups)
                    found += [_version(entity, row) for row in rows if row[0] == id_]
        except pa.ArrowException as error:
            raise ArchiveError(f"{each.name}: {error}") from error
    return found


def _version(entity: Entity, row: parquet.Row) -> ArchivedVersion:
    named: dict[str, Any] = dict(zip(columns(entity), row, strict=True))
    named.setdefault("product_instance_id", None)
    named["updated_at"] = EPOCH + timedelta(microseconds=named["updated_at"])
    named["data"] = from_store(named["data"].encode())
    return ArchivedVersion(**named)


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
