"""The archived versions of an entity, in the form of the store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import date

from history.archive import noted
from history.documents.jsonb import shortened
from history.entities import Entity
from history.timeline.query import ArchiveUnavailableError
from history.timeline.row import Key, Named, VersionRow


@dataclass(frozen=True, slots=True)
class Archive:
    """A history.timeline.sources.merged.Supplement. Reads a document once; those of restored days
    too."""

    url: str
    _read: dict[Named, Mapping[Key, VersionRow]] = field(default_factory=dict)
    _oldest: dict[Entity, date | None] = field(default_factory=dict)
    by_number = False

    def oldest_day(self, entity: Entity) -> date | None:
        """The oldest day of a kind that is in the archive; None where none is. Asked once."""
        if entity not in self._oldest:
            self._oldest[entity] = noted.oldest_day(entity)
        return self._oldest[entity]

    def rows(
        self, entity: Entity, id: str, _: Callable[[], Collection[str]]
    ) -> Mapping[Key, VersionRow]:
        """Raises ArchiveUnavailableError."""
        if (entity, id) not in self._read:
            self._read[entity, id] = _versions(self.url, entity, id)
        return self._read[entity, id]

    def of_application(self, _: str) -> Collection[Named]:
        """None: the files have an order by id."""
        return ()


def _versions(url: str, entity: Entity, id: str) -> dict[Key, VersionRow]:
    from history.archive import read  # with pyarrow, which most processes never need
    from history.archive.store import ArchiveError, Store

    try:
        found = read.versions(Store(url), entity, id)
    except (OSError, ArchiveError) as error:
        raise ArchiveUnavailableError(str(error)) from error
    return {
        Key(each.version, each.updated_at): VersionRow(
            **each._replace(data=shortened(each.data))._asdict(), entity=entity
        )
        for each in found
    }
