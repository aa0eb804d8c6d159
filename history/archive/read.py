"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from history.archive import parquet
from history.archive.manifest import File
from history.archive.store import ArchiveError, Store
from history.canonical import columns
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
    """The archived versions of one entity from the days since..until, both included, in the order
    of version and time. A restored day is in the archive too.

    Opens the files whose ids span the given one, and of those reads the row groups that may hold
    it. Raises OSError if the archive does not answer, ArchiveError if a file is broken.
    """
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
