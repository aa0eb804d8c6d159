"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from history.archive import parquet
from history.archive.store import ArchiveError, Store
from history.daily.canonical import columns
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


def versions(store: Store, entity: Entity, id_: str) -> list[ArchivedVersion]:
    """The archived versions of one entity by version and time; restored days too. Opens only files
    and row groups that may hold the id. Raises OSError if the archive does not answer,
    ArchiveError if a file is broken."""
    wanted = _listed(entity, id_)
    while True:
        try:
            with ThreadPoolExecutor(READERS) as pool:
                found = list(pool.map(lambda name: list(_of(store, name, entity, id_)), wanted))
            return sorted(
                (version for part in found for version in part),
                key=lambda version: (version.version, version.updated_at),
            )
        except FileNotFoundError:
            # A merge may have replaced files since the database was asked for them.
            before, wanted = wanted, _listed(entity, id_)
            if wanted == before:
                raise


def _listed(entity: Entity, id_: str) -> list[str]:
    """The files that may have the id, as the database noted them; the manifests are not asked."""
    days = ArchivedDay.objects.filter(table=entity.table).values_list("files", flat=True)
    return [each["name"] for day in days for each in day if each["first"] <= id_ <= each["last"]]


def _of(store: Store, name: str, entity: Entity, id_: str) -> Iterator[ArchivedVersion]:
    try:
        with store.open(name) as file:
            if groups := parquet.groups_of(file, id_):
                file.seek(0)
                rows = parquet.rows(file, groups)
                yield from (_version(entity, row) for row in rows if row[0] == id_)
    except pa.ArrowException as error:
        raise ArchiveError(f"{name}: {error}") from error


def _version(entity: Entity, row: parquet.Row) -> ArchivedVersion:
    named: dict[str, Any] = dict(zip(columns(entity), row, strict=True))
    named.setdefault("product_instance_id", None)
    named["updated_at"] = EPOCH + timedelta(microseconds=named["updated_at"])
    named["data"] = from_store(named["data"].encode())
    return ArchivedVersion(**named)
