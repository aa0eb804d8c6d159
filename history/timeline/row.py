"""What the sources give: the rows of versions, the keys that name them, and which key comes before
which."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
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


# Identifies an entity, and a version.
Named: TypeAlias = tuple[Entity, str]
Located: TypeAlias = tuple[Entity, str, Key]


class VersionRow(NamedTuple):
    """One version. `data` is the snapshot as JSON text in UTF-8. old: of the old service. names:
    name and kind of its author and of its service, where they were looked up with it."""

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


class Keys:
    """Keys of one entity, ascending: all that the store has, at least one."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = sorted(keys)

    @property
    def newest(self) -> Key:
        return self._keys[-1]

    @property
    def lowest(self) -> Key:
        return self._keys[0]

    @cached_property
    def trusted(self) -> bool:
        """Whether the times follow the numbers, up to CLOCK_TOLERANCE."""
        newest = FIRST.updated_at
        for key in self._keys:
            if newest - key.updated_at > CLOCK_TOLERANCE:
                return False
            newest = max(newest, key.updated_at)
        return True

    def current(self, moment: datetime) -> Key | None:
        """The highest key that was there at the moment; None before the first one."""
        there = (key for key in reversed(self._keys) if key.updated_at <= moment)
        return next(there, None)

    def previous(self, key: Key) -> Key | None:
        """The key with the nearest lower version number; None if there is none.

        Where a producer gave that number twice: the latest one that is not younger than `key`,
        else the oldest.
        """
        below = bisect_left(self._keys, (key.version,))
        if below == 0:
            return None
        low = self._keys[below - 1]
        if below > 1 and self._keys[below - 2].version == low.version:
            twins = self.of_version(low.version)
            return next(
                (twin for twin in reversed(twins) if twin.updated_at <= key.updated_at), twins[0]
            )
        return low

    def after_gap(self, version: int) -> Key | None:
        """The lowest key above this number; None where no number between the two is missing."""
        place = bisect_left(self._keys, (version + 1,))
        following = self._keys[place] if place < len(self._keys) else None
        return following if following and following.version > version + 1 else None

    def down(self, key: Key) -> Iterator[Key]:
        """This key, or the highest one below it; and each that is the previous one of the one
        before."""
        place = bisect_right(self._keys, key)
        lower = self._keys[place - 1] if place else None
        while lower is not None:
            yield lower
            lower = self.previous(lower)

    def proves(self, key: Key) -> bool:
        """Whether the previous key of this one is that of the entity, if these are all of its keys
        from some place of an order to another: no other one can be between the two."""
        if (low := self.previous(key)) is None:
            return key.version == 0
        return low.version == key.version - 1 and low.updated_at <= key.updated_at

    def of_version(self, version: int) -> Sequence[Key]:
        """Every key with this version number: none, one, or the twins."""
        start = bisect_left(self._keys, (version,))
        return self._keys[start : bisect_left(self._keys, (version + 1,))]
