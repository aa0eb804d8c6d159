"""The versions that sources return, and the keys and references that name versions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from history.documents.exactjson import Json, loads_shallow
from history.documents.record import MAX_VERSION
from history.kinds.entities import ENTITIES, EntityKind


class VersionKey(NamedTuple):
    """The number and the moment of a version of one document. Ordered by number.

    Two keys of a document have the same number only if a producer used it twice.
    """

    version: int
    updated_at: datetime


# FIRST is before every version, LAST is after every version. Their moments are datetimes and not
# PostgreSQL's infinity: a parameter that always has one type needs only one prepared statement.
FIRST = VersionKey(-1, datetime.min.replace(tzinfo=UTC))
LAST = VersionKey(MAX_VERSION, datetime.max.replace(tzinfo=UTC))


def parse_snapshot(snapshot: bytes) -> Json:
    """Return the values in a snapshot, with exact numbers.

    A part that is nested too deep becomes a msgspec.Raw, which is compared and encoded as a whole.
    If a number has an exponent that PostgreSQL can store and Decimal cannot, the whole snapshot
    becomes a msgspec.Raw.
    """
    try:
        return loads_shallow(snapshot)
    except ValueError:
        return cast(Json, msgspec.Raw(snapshot))


class TimelineSubject(NamedTuple):
    """The subject of a timeline: a document, or an application with its children (kind None)."""

    kind: EntityKind | None
    id: str


class EntityRef(NamedTuple):
    """A reference to a document."""

    entity: EntityKind
    id: str


class VersionRef(NamedTuple):
    """A reference to a version: its document, and its key."""

    entity: EntityKind
    id: str
    key: VersionKey

    @property
    def entity_ref(self) -> EntityRef:
        return EntityRef(self.entity, self.id)


class VersionNumberRef(NamedTuple):
    """A reference to all versions of a document that have the same number."""

    entity: EntityKind
    id: str
    version: int


class DamagedRef(NamedTuple):
    """A reference to a version that cannot be read, or to a document that cannot be read at all."""

    entity: EntityKind
    id: str
    key: VersionKey | None  # None: the whole document

    @property
    def entity_ref(self) -> EntityRef:
        return EntityRef(self.entity, self.id)


# The versions and documents that cannot be read, each with its error.
Damaged: TypeAlias = dict[DamagedRef, Exception]


LoginKind: TypeAlias = Literal["person", "service", "unknown"]


class LoginNames(NamedTuple):
    """The full names of a version's author and service, if they were read with the version.

    A name is None if history_person does not have a row for its login.
    """

    author: str | None
    author_kind: LoginKind | None
    service: str | None
    service_kind: LoginKind | None


class SourceRow(NamedTuple):
    """One version as a source returns it, before the policy has decided who may see it.

    ViewerPolicy.apply makes a VersionRow from it. All code above the sources works with
    VersionRows.
    """

    version: int
    updated_at: datetime  # aware, UTC
    type: int
    client_id: str
    author: str | None
    product_instance_id: str | None
    # the snapshot as JSON text in UTF-8, after jsonb.shorten_zeros; b"null" if a deletion has none
    data: bytes
    id: str
    entity: EntityKind
    is_from_old_service: bool = False
    names: LoginNames | None = None  # None if they were not read with the version

    @property
    def key(self) -> VersionKey:
        return VersionKey(self.version, self.updated_at)

    @property
    def ref(self) -> VersionRef:
        return VersionRef(self.entity, self.id, self.key)

    @property
    def entity_ref(self) -> EntityRef:
        return EntityRef(self.entity, self.id)

    @property
    def application(self) -> str:
        """The id of the document's application, which is its own id if it is not a child."""
        return self.product_instance_id or self.id


class VersionRow(SourceRow):
    """One version that the viewer may see. The values of its marked fields are masked.

    Only ViewerPolicy makes these.
    """

    __slots__ = ()


class FetchedVersions(NamedTuple):
    """Versions that a query found."""

    rows: list[SourceRow]
    unread: list[VersionRef]  # the versions with snapshots that were too large for the query

    @property
    def refs(self) -> list[VersionRef]:
        """The references of all these versions, with and without a snapshot."""
        return [*(row.ref for row in self.rows), *self.unread]


class NewestVersions(NamedTuple):
    """All version keys of a document in number order, and the rows of its newest versions."""

    keys: list[VersionKey]
    rows: list[SourceRow]


class ApplicationPage(NamedTuple):
    """One page of the timeline of an application and its children: versions without snapshots."""

    # the versions on the page, in the order of the page

    refs: list[VersionRef]
    # all keys of each document on the page, in number order; damaged documents are left out
    keys: dict[EntityRef, list[VersionKey]]


Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class SourceAnswer(Generic[Content]):
    """A closed answer: the answer of a source, before the policy has released it for the viewer.

    Only `ViewerPolicy.release` reads `unreleased`.
    """

    # the answer, or the DamagedBlockError with which the source could not read it
    unreleased: Content | Exception
    revealed_documents: Collection[EntityRef] = ()  # the answer reveals that they exist
    revealed_applications: Collection[str] = ()  # the answer reveals that they exist


class NewestVersion(NamedTuple):
    """The newest version of a document, and the application that it names."""

    key: VersionKey
    application: str  # the document's own id if it is not a child


class TimelinePosition(NamedTuple):
    """The position of a version in any timeline, also in one with several documents."""

    updated_at: datetime
    kind: int  # the index of the kind in ENTITIES
    id: str
    version: int

    @classmethod
    def from_ref(cls, ref: VersionRef) -> TimelinePosition:
        return cls(ref.key.updated_at, ENTITIES.index(ref.entity), ref.id, ref.key.version)


# Clocks may be wrong by this much. Times that differ by less do not prove an order.
CLOCK_TOLERANCE = timedelta(days=1)


class VersionWithPrevious(NamedTuple):
    """A version, and the previous version with which it is compared."""

    row: VersionRow
    previous: VersionRow | None  # None if the store has none
    # whether the moments of the document grow with its numbers, see VersionIndex.has_trusted_times
    trusted: bool = True

    @property
    def entity(self) -> EntityKind:
        return self.row.entity

    @property
    def entity_ref(self) -> EntityRef:
        return self.row.entity_ref
