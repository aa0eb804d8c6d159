"""The rows of versions that sources give, and the keys that name them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from history.documents.exactjson import Json, loads_shallow
from history.documents.record import MAX_VERSION
from history.kinds.entities import ENTITIES, EntityKind


class VersionKey(NamedTuple):
    """The number and the moment of a version of one entity; ordered by number.

    Two keys have the same number only if a producer gave it twice.
    """

    version: int
    updated_at: datetime


# Before and after every version. Real moments and not infinity: a parameter of one type all the
# time means one prepared statement.
FIRST = VersionKey(-1, datetime.min.replace(tzinfo=UTC))
LAST = VersionKey(MAX_VERSION, datetime.max.replace(tzinfo=UTC))


def parse_snapshot(snapshot: bytes) -> Json:
    """Return the values in a snapshot, with exact numbers.

    A part that is nested too deep becomes a msgspec.Raw, which is compared and encoded as a whole.
    So does a snapshot that PostgreSQL holds and Python cannot, with exponents beyond those of
    Decimal.
    """
    try:
        return loads_shallow(snapshot)
    except ValueError:
        return cast(Json, msgspec.Raw(snapshot))


class TimelineSubject(NamedTuple):
    """The subject of a timeline: an entity, or (kind None) an application with all its children."""

    kind: EntityKind | None
    id: str


# Identifies an entity, and a version.
EntityRef: TypeAlias = tuple[EntityKind, str]
VersionRef: TypeAlias = tuple[EntityKind, str, VersionKey]
# What cannot be read, with the error: versions, or (key None) all of an entity.
DamagedPlace: TypeAlias = tuple[EntityKind, str, VersionKey | None]
Damaged: TypeAlias = dict[DamagedPlace, Exception]


class VersionRow(NamedTuple):
    """One version."""

    version: int
    updated_at: datetime  # aware, UTC
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    data: bytes  # the snapshot as JSON text in UTF-8, shortened; b"null" for a deletion without one
    id: str
    entity: EntityKind
    old: bool = False  # of the old service
    names: tuple[Any, ...] = ()  # name and kind of author and of service, if they were read with it

    @property
    def key(self) -> VersionKey:
        return VersionKey(self.version, self.updated_at)

    @property
    def ref(self) -> VersionRef:
        return self.entity, self.id, self.key

    @property
    def application(self) -> str:
        """The id of its application, its own for one that is no child."""
        return self.product_instance_id or self.id


class FetchedVersions(NamedTuple):
    """Versions that were read, and those whose documents were too large to be read with them."""

    rows: list[VersionRow]
    unread: list[VersionRef]

    @property
    def refs(self) -> list[VersionRef]:
        """All these versions, read or not."""
        return [*(row.ref for row in self.rows), *self.unread]


class NewestVersion(NamedTuple):
    """The newest version of an entity, and the application that it names: its own id if it is no
    child.
    """

    key: VersionKey
    application: str


# Entity, id and number of a version.
VersionNumberRef: TypeAlias = tuple[EntityKind, str, int]


class TimelinePosition(NamedTuple):
    """The position of a version in any timeline, also in a merged one. `kind` is an index of
    ENTITIES.
    """

    updated_at: datetime
    kind: int
    id: str
    version: int

    @classmethod
    def from_ref(cls, ref: VersionRef) -> TimelinePosition:
        entity, id, key = ref
        return cls(key.updated_at, ENTITIES.index(entity), id, key.version)


# How wrong clocks may be before times prove nothing.
CLOCK_TOLERANCE = timedelta(days=1)


class VersionWithPrevious(NamedTuple):
    """A version and the previous one, with which it is compared; None if the store has none.

    `trusted` is has_trusted_times of the VersionIndex.
    """

    row: VersionRow
    previous: VersionRow | None
    trusted: bool = True  # as VersionIndex.has_trusted_times

    @property
    def entity(self) -> EntityKind:
        return self.row.entity

    @property
    def entity_ref(self) -> EntityRef:
        return self.row.entity, self.row.id
