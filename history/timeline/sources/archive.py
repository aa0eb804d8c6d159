"""The archived versions of an entity, in the form of the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date

from django.conf import settings
from django.db import connection

from history.entities import Entity
from history.models import ArchivedDay
from history.timeline.query import ArchiveUnavailableError
from history.versions import Key, Named, VersionRow


@dataclass(frozen=True, slots=True)
class Archive:
    """A history.timeline.sources.merged.Archived. Reads a document once; those of restored days
    too."""

    url: str
    _read: dict[Named, Mapping[Key, VersionRow]] = field(default_factory=dict)
    _oldest: dict[Entity, date | None] = field(default_factory=dict)
    by_number = False

    def oldest_day(self, entity: Entity) -> date | None:
        """The oldest day of a kind that is in the archive; None where none is. Asked once."""
        if entity not in self._oldest:
            days = ArchivedDay.objects.filter(table=entity.table).order_by("day")
            self._oldest[entity] = days.values_list("day", flat=True).first()
        return self._oldest[entity]

    def may_have(self, entity: Entity, id: str) -> bool:
        """Whether it may have versions of an entity: one of its files has a range with this id."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS (SELECT FROM archived_day, jsonb_array_elements(files) AS file"
                ' WHERE archived_day."table" = %s AND %s COLLATE "C"'
                " BETWEEN file->>'first' AND file->>'last')",
                [entity.table, id],
            )
            (found,) = cursor.fetchone() or (False,)
            return bool(found)

    def rows(self, entity: Entity, id: str) -> Mapping[Key, VersionRow]:
        """Raises ArchiveUnavailableError."""
        from history.archive import read  # with pyarrow, which most processes never need
        from history.archive.store import ArchiveError, Store

        if (entity, id) not in self._read:
            try:
                found = read.versions(Store(self.url), entity, id)
            except (OSError, ArchiveError) as error:
                raise ArchiveUnavailableError(str(error)) from error
            self._read[entity, id] = {row.key: row for row in found}
        return self._read[entity, id]

    def of_application(self, _: str) -> Collection[Named]:
        """None: the files have an order by id."""
        return ()


def configured() -> Archive | None:
    """The archive of this installation; None where it has none."""
    url: str | None = settings.ANNALS.archive_url
    return Archive(url) if url else None
