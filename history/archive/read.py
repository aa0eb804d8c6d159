"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa

from history.archive import parquet
from history.archive.store import ArchiveError, Store
from history.blocks.stored import EPOCH
from history.daily.canonical import columns
from history.documents.jsonb import from_store, shortened
from history.entities import Entity
from history.models import ArchivedDay
from history.versions import VersionRow

READERS = 8


def versions(store: Store, entity: Entity, id_: str) -> list[VersionRow]:
    """The archived versions of one entity, those of restored days too. Opens only files and row
    groups that may hold the id. Raises OSError if the archive does not answer, ArchiveError if a
    file is broken."""
    wanted = _listed(entity, id_)
    while True:
        try:
            with ThreadPoolExecutor(READERS) as pool:
                found = list(pool.map(lambda name: list(_of(store, name, entity, id_)), wanted))
            return [version for part in found for version in part]
        except FileNotFoundError:
            # A merge may have replaced files since the database was asked for them.
            before, wanted = wanted, _listed(entity, id_)
            if wanted == before:
                raise


def _listed(entity: Entity, id_: str) -> list[str]:
    """The files that may have the id, as the database noted them; the manifests are not asked."""
    days = ArchivedDay.objects.filter(table=entity.table).values_list("files", flat=True)
    return [each["name"] for day in days for each in day if each["first"] <= id_ <= each["last"]]


def _of(store: Store, name: str, entity: Entity, id_: str) -> Iterator[VersionRow]:
    try:
        with store.open(name) as file:
            if groups := parquet.groups_of(file, id_):
                file.seek(0)
                rows = parquet.rows(file, groups)
                yield from (_version(entity, row) for row in rows if row[0] == id_)
    except pa.ArrowException as error:
        raise ArchiveError(f"{name}: {error}") from error


def _version(entity: Entity, row: parquet.Row) -> VersionRow:
    named = {"product_instance_id": None, **dict(zip(columns(entity), row, strict=True))}
    named["updated_at"] = EPOCH + timedelta(microseconds=named["updated_at"])
    named["data"] = shortened(from_store(named["data"].encode()))
    return VersionRow(**named, entity=entity)
