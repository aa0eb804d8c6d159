"""What the sources give: the rows of versions, the keys that name them, and which key comes before
which."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from history.documents.exactjson import Json, loads_shallow
from history.entities import ENTITIES, Entity
from history.record import MAX_VERSION


class Key(NamedTuple):
    """Identifies a version of one entity; ordered by version number. Two keys with one number
    exist only where a producer gave the number twice."""

    version: int
    updated_at: datetime


# Before and after every version. Real moments and not infinity: a parameter of one type all the
# time means one prepared statement.
FIRST = Key(-1, datetime.min.replace(tzinfo=UTC))
LAST = Key(MAX_VERSION, datetime.max.replace(tzinfo=UTC))


def parse(snapshot: bytes) -> Json:
    """The values in a snapshot, numbers exact.

    What is nested too deep becomes a msgspec.Raw, which compares and encodes as a whole; so does a
    snapshot that PostgreSQL holds and Python cannot (exponents beyond Decimal's).
    """
    try:
        return loads_shallow(snapshot)
    except ValueError:
        return cast(Json, msgspec.Raw(snapshot))


class Subject(NamedTuple):
    """What a timeline is of: an entity, or (kind None) an application with all its children."""

    kind: Entity | None
    id: str


# Identifies an entity, and a version.
Named: TypeAlias = tuple[Entity, str]
Located: TypeAlias = tuple[Entity, str, Key]
# What cannot be read, with the error: versions, or (key None) all of an entity.
DamagedPlace: TypeAlias = tuple[Entity, str, Key | None]
Damaged: TypeAlias = dict[DamagedPlace, Exception]


class VersionRow(NamedTuple):
    """One version. updated_at: aware, UTC. data: the snapshot as JSON text in UTF-8, as
    history.documents.jsonb.shortened gives it; b"null" for a deletion that has none. old: of the
    old service. names: name and kind of its author and of its service, where they were looked up
    with it."""

    version: int
    updated_at: datetime
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    data: bytes
    id: str
    entity: Entity
    old: bool = False
    names: tuple[Any, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.version, self.updated_at)

    @property
    def located(self) -> Located:
        return self.entity, self.id, self.key

    @property
    def application(self) -> str:
        """The id of its application, its own for one that is no child."""
        return self.product_instance_id or self.id


class Read(NamedTuple):
    """The versions that were read. unread: those whose documents are too large to be read together
    with these."""

    rows: list[VersionRow]
    unread: list[Located]

    @property
    def places(self) -> list[Located]:
        """Of all these versions, read or not."""
        return [*(row.located for row in self.rows), *self.unread]


class Newest(NamedTuple):
    """The newest version of an entity. application: that it names; its own id if it is no child."""

    key: Key
    application: str


# Entity, id and number of a version.
Numbered: TypeAlias = tuple[Entity, str, int]


class Place(NamedTuple):
    """The position of a version in any timeline, also a merged one. kind: an index of ENTITIES."""

    updated_at: datetime
    kind: int
    id: str
    version: int

    @classmethod
    def of(cls, located: Located) -> Place:
        entity, id, key = located
        return cls(key.updated_at, ENTITIES.index(entity), id, key.version)


# How wrong clocks may be before times prove nothing.
CLOCK_TOLERANCE = timedelta(days=1)


class Pair(NamedTuple):
    """A version and the one it is compared with; None where the store has no lower one. trusted:
    as in Keys."""

    row: VersionRow
    before: VersionRow | None
    trusted: bool = True

    @property
    def entity(self) -> Entity:
        return self.row.entity

    @property
    def named(self) -> Named:
        return self.row.entity, self.row.id
