"""Reading the versions of one entity from the archive, by row groups and never by whole files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from history.archive import parquet
from history.archive.store import ArchiveError, Store
from history.canonical import columns
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
    of version and time. A day that was restored comes from both places.

    Opens the files whose ids span the given one, and of those reads the row groups that may hold
    it. Raises OSError where the archive does not answer, ArchiveError where a file is broken.
    """
    days = ArchivedDay.objects.filter(table=entity.table)
    if since is not None:
        days = days.filter(day__gte=since)
    if until is not None:
        days = days.filter(day__lte=until)
    names = [
        file["name"]
        for day in days.values_list("files", flat=True)
        for file in day
        if file["first"] <= id_ <= file["last"]
    ]
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda name: _from_file(store, entity, name, id_), names)
        return sorted(
            (version for part in found for version in part),
            key=lambda version: (version.version, version.updated_at),
        )


def _from_file(store: Store, entity: Entity, name: str, id_: str) -> list[ArchivedVersion]:
    try:
        with store.open(name) as file:
            groups = parquet.groups_of(file, id_)
            if not groups:
                return []
            file.seek(0)
            return [_version(entity, row) for row in parquet.rows(file, groups) if row[0] == id_]
    except pa.ArrowException as error:
        raise ArchiveError(f"{name}: {error}") from error


def _version(entity: Entity, row: parquet.Row) -> ArchivedVersion:
    named: dict[str, Any] = dict(zip(columns(entity), row, strict=True))
    named.setdefault("product_instance_id", None)
    named["updated_at"] = EPOCH + timedelta(microseconds=named["updated_at"])
    named["data"] = named["data"].encode()
    return ArchivedVersion(**named)
