"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from history.archive import manifest, parquet
from history.archive.manifest import File
from history.archive.store import ArchiveError, Store
from history.canonical import columns
from history.entities import Entity
from history.models import ArchivedDay
from history.nul_text import from_store

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
    days = ArchivedDay.objects.filter(table=entity.table)
    if since is not None:
        days = days.filter(day__gte=since)
    if until is not None:
        days = days.filter(day__lte=until)
    wanted = [
        (day, msgspec.convert(files, list[File])) for day, files in days.values_list("day", "files")
    ]
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda each: _from_day(store, entity, each[0], each[1], id_), wanted)
        return sorted(
            (version for part in found for version in part),
            key=lambda version: (version.version, version.updated_at),
        )


def _from_day(
    store: Store, entity: Entity, day: date, files: Sequence[File], id_: str
) -> list[ArchivedVersion]:
    try:
        return _from_files(store, entity, files, id_)
    except FileNotFoundError:
        # A merge has replaced the files since the database was asked for them.
        known = manifest.load(store, entity.table, day)
        if known is None:
            raise
        return _from_files(store, entity, known.files, id_)


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
