"""Whether archived rows are ours: the database notes which it archived."""

from dataclasses import replace
from datetime import date

import msgspec
from psycopg import sql

from history.archive import manifest, scrubbing
from history.archive.manifest import File, Manifest
from history.archive.parquet import row_hash
from history.archive.rows import Rows
from history.archive.store import ArchiveError, Store
from history.base import clock
from history.base.table import counted
from history.daily.canonical import Connection, Digest
from history.daily.day_reading import open_day
from history.daily.days import DayState, DayTable
from history.entities import Entity
from history.models import ArchivedDay


def noted(table: str, day: date) -> Manifest | None:
    """The archived day as the database noted it; None if it did not."""
    found = ArchivedDay.objects.filter(table=table, day=day).first()
    if found is None:
        return None
    return Manifest(
        table=table,
        day=day,
        rows=found.rows,
        digest=found.digest,
        table_bytes=found.table_bytes,
        archived_at=found.archived_at,
        files=tuple(msgspec.convert(found.files, list[File])),
    )


def note(done: Manifest) -> None:
    """Note in the database what is archived of a day. done: what this process wrote or read; what
    is noted already stays as it is."""
    known = noted(done.table, done.day)
    if known and _same(known, done):
        return
    ArchivedDay.objects.update_or_create(
        table=done.table,
        day=done.day,
        defaults={
            "rows": done.rows,
            "table_bytes": done.table_bytes,
            "file_bytes": done.file_bytes,
            "digest": done.digest,
            "files": msgspec.to_builtins(done.files),
            "archived_at": min(done.archived_at, clock.now()),
        },
    )


def _same(one: Manifest, other: Manifest) -> bool:
    return (one.rows, one.digest, one.files) == (other.rows, other.digest, other.files)


def check(connection: Connection, store: Store, entity: Entity, day: date) -> None:
    """Raise ArchiveError if the archive has a row of the day that is neither noted nor in the
    table, or lacks a noted one. Reads nothing if the manifest is the noted one; else all rows, in
    one transaction. `connection` is in autocommit mode."""
    found, known = manifest.load(store, entity.table, day), noted(entity.table, day)
    if found is None or (known and _same(known, found)):
        return
    with open_day(connection, entity.table, day) as place:
        table = Rows(connection, store, entity, _source(place))
        if scrubbing.damaged(store, found):
            again = known is None or known.digest == found.digest
            # The files will be written again, from the table alone.
            ours, more = again and table.digest() == found.digest, 0
        else:
            archived = expected = _digest(table, found)
            ours = not (known and scrubbing.damaged(store, known))
            if ours:
                expected = _digest(table, known)
                ours = (archived.rows, archived.finish()) == (expected.rows, expected.finish())
            more = archived.rows - expected.rows
    if not ours:
        raise ArchiveError(_strange(found, entity, more))


def _source(place: DayTable) -> sql.Composable:
    """The table of a day; without one, no row of its table."""
    if place.state is not DayState.ABSENT:
        return place.child
    return sql.SQL("(SELECT * FROM {} LIMIT 0) AS absent").format(place.parent)


def _digest(table: Rows, archived: Manifest | None) -> Digest:
    """The digest of a table's rows and archived ones."""
    digest = Digest()
    with replace(table, archived=archived).ordered() as rows:
        for row in rows:
            digest.add(row[0], row[1], row_hash(row))
    return digest


def _strange(found: Manifest, entity: Entity, more: int) -> str:
    """more: how many rows the archive has that are neither noted nor in the table, if known."""
    what = counted(more, "row") if more > 0 else "other or damaged rows"
    return (
        f"the archive has {what} of {found.table} {found.day} that the database did not note and "
        "its table does not have. The database is older than the archive, or somebody else wrote "
        "there. Nothing was changed. If these rows are yours: "
        f"`partitions adopt {found.day} --entity {entity.name} --why TEXT`; if not: `partitions "
        "forget` removes the day from the archive"
    )
