"""Reads the versions of one document from the archive: only row groups, never whole files."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa

from history.documents.jsonb import from_store, shorten_zeros
from history.kinds.entities import EntityKind
from history.models import ArchivedDay
from history.retention.archive import parquet
from history.retention.archive.store import ArchiveError, ArchiveStore
from history.store.blocks.queries import EPOCH
from history.store.days.canonical import list_columns
from history.store.versions import SourceRow

READERS = 8


def read_versions(store: ArchiveStore, entity: EntityKind, id_: str) -> list[SourceRow]:
    """Return the archived versions of one document, also from days that were restored.

    Opens only files and row groups that may have the id.

    Raises:
        OSError: The archive does not answer.
        ArchiveError: A file is broken.
    """
    names = _list_files(entity, id_)
    while True:
        try:
            with ThreadPoolExecutor(READERS) as pool:
                versions_by_file = list(
                    pool.map(lambda name: list(_read_file(store, name, entity, id_)), names)
                )
            return [version for versions in versions_by_file for version in versions]
        except FileNotFoundError:
            # `maintain` may have replaced files of a day since the database named them.
            former_names, names = names, _list_files(entity, id_)
            if names == former_names:
                raise


def _list_files(entity: EntityKind, id_: str) -> list[str]:
    """Return the names of the files that may contain the id, as the database noted them."""
    days = ArchivedDay.objects.filter(table=entity.table).values_list("files", flat=True)
    return [file["name"] for day in days for file in day if file["first"] <= id_ <= file["last"]]


def _read_file(store: ArchiveStore, name: str, entity: EntityKind, id_: str) -> Iterator[SourceRow]:
    try:
        with store.open(name) as file:
            if groups := parquet.find_row_groups(file, id_):
                file.seek(0)
                rows = parquet.read_rows(file, groups)
                yield from (_to_version_row(entity, row) for row in rows if row[0] == id_)
    except pa.ArrowException as error:
        raise ArchiveError(f"{name}: {error}") from error


def _to_version_row(entity: EntityKind, row: parquet.ArchivedRow) -> SourceRow:
    values = {"product_instance_id": None, **dict(zip(list_columns(entity), row, strict=True))}
    values["updated_at"] = EPOCH + timedelta(microseconds=values["updated_at"])
    values["data"] = shorten_zeros(from_store(values["data"].encode()))
    return SourceRow(**values, entity=entity)
