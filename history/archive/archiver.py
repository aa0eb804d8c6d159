"""What maintain does with a day before it drops it, if an archive is set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial

from history import days
from history.archive import manifest, origin
from history.archive.manifest import Manifest
from history.archive.reseal import before, follow
from history.archive.store import ArchiveError, Store, folder
from history.archive.write import archive, count
from history.base.table import counted
from history.canonical import Connection
from history.entities import BY_TABLE
from history.models import ArchivedDay

# If none of this many days can be found, it is not the archive that they were written to.
LAST_DAYS = 10


class Archiver:
    """Archives days, and lets no day be dropped that is not in the archive."""

    def __init__(
        self, store: Store, progress: Callable[[str, date, int], None] = lambda *_: None
    ) -> None:
        """progress: called with table, day and rows done so far."""
        self.archived: dict[tuple[str, date], Manifest] = {}
        self._rows: dict[tuple[str, date], int] = {}
        self._store = store
        self._progress = progress

    def archive(self, connection: Connection, table: str, day: date) -> None:
        """Archive a day. Raises ArchiveError or OSError if that is not possible."""
        self._check_known(table, day)
        origin.check(connection, self._store, BY_TABLE[table], day)
        place = days.locate(connection, table, day)
        progress = partial(self._progress, table, day)
        self._rows[table, day] = count(connection, place.child)
        earlier = before(connection, table, day)
        done = archive(connection, self._store, BY_TABLE[table], day, place.child, progress)
        follow(connection, self._store, BY_TABLE[table], earlier, done)
        self.archived[table, day] = done
        origin.note(done)
        manifest.tidy(self._store, table, day, done.files)

    def confirm(self, connection: Connection, table: str, day: date) -> None:
        """Archive the day again if rows came after archive(), when nobody can write to the table
        any more. Raises ArchiveError or OSError if that is not possible."""
        place = days.locate(connection, table, day)
        if count(connection, place.child) != self._rows[table, day]:
            self.archive(connection, table, day)

    def _check_known(self, table: str, day: date) -> None:
        """Raise ArchiveError if the archive has less of a day than the database says, or if it has
        none of the days that were archived last: a volume that is not mounted is empty, and what
        is written to it instead is gone when it is mounted."""
        known = ArchivedDay.objects.filter(table=table, day=day).first()
        if known is None:
            self._check_place()
            return
        found = manifest.load(self._store, table, day)
        if (found.rows if found else 0) < known.rows:
            raise ArchiveError(
                f"The archive had {counted(known.rows, 'row')} of {table} {day}, and "
                f"{self._store.place} has fewer. Check ANNALS_ARCHIVE_URL and the files there, or "
                "give up the archived rows of this day with `partitions forget`"
            )

    def _check_place(self) -> None:
        last = list(ArchivedDay.objects.order_by("-archived_at")[:LAST_DAYS])
        if last and not any(self._store.names(folder(each.table, each.day)) for each in last):
            raise ArchiveError(
                f"{self._store.place} has none of the {len(last)} days that were archived last. "
                "Check ANNALS_ARCHIVE_URL and whether its volume is mounted, or give these days up "
                "with `partitions forget`"
            )
