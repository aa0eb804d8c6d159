"""The archive as a source of versions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date

from django.conf import settings
from django.db import connection

from history.kinds.entities import EntityKind
from history.models import ArchivedDay
from history.store.versions import EntityRef, SourceRow, VersionKey
from history.timeline.query import ArchiveUnavailableError


@dataclass(frozen=True, slots=True)
class ArchiveSource:
    """The archive as a source that MergedSource combines with the tables, for one request.

    The source reads the files of a document only once, and keeps the versions. It also returns
    the versions of restored days. The tables have these versions, too: MergedSource keeps only one
    copy of each.
    """

    url: str
    _read: dict[EntityRef, Mapping[VersionKey, SourceRow]] = field(default_factory=dict)
    _oldest: dict[EntityKind, date | None] = field(default_factory=dict)
    by_number = False

    def find_oldest_day(self, entity: EntityKind) -> date | None:
        """Return the oldest archived day of a kind, or None if there is none.

        Only the first call for a kind runs a query. Its answer is kept.
        """
        if entity not in self._oldest:
            days = ArchivedDay.objects.filter(table=entity.table).order_by("day")
            self._oldest[entity] = days.values_list("day", flat=True).first()
        return self._oldest[entity]

    def may_have(self, entity: EntityKind, id: str) -> bool:
        """Return whether the id lies between the first and the last id of any archived file."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM archived_day, jsonb_array_elements(files) AS file"
                ' WHERE archived_day."table" = %s AND %s COLLATE "C"'
                " BETWEEN file->>'first' AND file->>'last')",
                [entity.table, id],
            )
            (has_file,) = cursor.fetchone() or (False,)
            return bool(has_file)

    def load_rows(self, entity: EntityKind, id: str) -> Mapping[VersionKey, SourceRow]:
        """Return all archived versions of a document by key.

        Raises:
            ArchiveUnavailableError: A file cannot be read.
        """
        # Imported here, because most processes never need pyarrow.
        from history.retention.archive import read
        from history.retention.archive.store import ArchiveError, ArchiveStore

        entity_ref = EntityRef(entity, id)
        if entity_ref not in self._read:
            try:
                rows = read.read_versions(ArchiveStore(self.url), entity, id)
            except (OSError, ArchiveError) as error:
                raise ArchiveUnavailableError(str(error)) from error
            self._read[entity_ref] = {row.key: row for row in rows}
        return self._read[entity_ref]

    def list_members(self, _: str) -> Collection[EntityRef]:
        """Return nothing: the files are sorted by id, and cannot be searched by application."""
        return ()

    def may_hide_owners(self, _entity: EntityKind, _id: str) -> bool:
        """Return whether a document might belong to applications that no archived row names.

        Always False: each archived row names the application to which the document belonged.
        """
        return False


def open_archive() -> ArchiveSource | None:
    """Return the archive of this installation, or None if it has none."""
    url: str | None = settings.ANNALS.archive_url
    return ArchiveSource(url) if url else None
