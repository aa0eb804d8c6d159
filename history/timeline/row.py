"""What the sources give: the rows of versions, and the keys that name them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

from history.entities import Entity
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
    old: bool = False
    names: tuple[Any, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.version, self.updated_at)


# Identifies a version of any entity of one kind.
IdKey: TypeAlias = tuple[str, Key]
# Reads as first_bodies does.
FirstBodies: TypeAlias = Callable[
    [Entity, Sequence[IdKey]], tuple[dict[IdKey, VersionRow], Sequence[IdKey]]
]


class Read(NamedTuple):
    """The rows that a statement found. unread: the places of those whose documents are too large to
    be read together with these."""

    rows: list[VersionRow]
    unread: list[IdKey]


# A version in a merged timeline: updated_at, index of the kind, id, version.
Position: TypeAlias = tuple[datetime, int, str, int]


class Newest(NamedTuple):
    """The newest version of a child. application: the id of the application that it names."""

    key: Key
    application: str


# Entity, id and number of a version.
Numbered: TypeAlias = tuple[Entity, str, int]
