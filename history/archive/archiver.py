"""What maintain does with a day before it drops it, if an archive is set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial

import msgspec

from history import days
from history.archive.manifest import Manifest
from history.archive.store import ArchiveError, Store
from history.archive.write import archive, count
from history.canonical import Connection
from history.entities import ENTITIES
from history.models import ArchivedDay

BY_TABLE = {entity.table: entity for entity in ENTITIES}


class Archiver:
    """Archives days, and lets no day be dropped that is not in the archive."""

    def __init__(
        self, store: Store, progress: Callable[[str, date, int], None] = lambda *_: None
    ) -> None:
        """progress: called with table, day and rows done so far."""
        self.archived: dict[tuple[str, date], Manifest] = {}
        self._store = store
        self._progress = progress

    def archive(self, connection: Connection, table: str, day: date) -> None:
        """Archive a day. Raises ArchiveError or OSError if that is not possible."""
        place = days.locate(connection, table, day)
        progress = partial(self._progress, table, day)
        done = archive(connection, self._store, BY_TABLE[table], day, place.child, progress)
        self.archived[table, day] = done
        ArchivedDay.objects.update_or_create(
            table=table,
            day=day,
            defaults={
                "rows": done.rows,
                "table_bytes": done.table_bytes,
                "file_bytes": done.file_bytes,
                "digest": done.digest,
                "files": msgspec.to_builtins(done.files),
                "archived_at": done.archived_at,
            },
        )

    def confirm(self, connection: Connection, table: str, day: date) -> None:
        """Check that the table has exactly the rows that are in the archive, when nobody can write
        to it any more. Raises ArchiveError otherwise; the next run archives it again."""
        place = days.locate(connection, table, day)
        rows, kept = count(connection, place.child), self.archived[table, day].rows
        if rows != kept:
            raise ArchiveError(f"{table} {day} has {rows} rows by now, {kept} are in the archive")
