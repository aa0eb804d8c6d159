"""The versions of a timeline: who, when, and what changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from history.diff import Change, Operation
from history.documents.exactjson import Json
from history.entities import Entity
from history.labels import Label
from history.people import Author
from history.quarantined import Quarantined
from history.record import ChangeType
from history.timeline.query import Absence


@dataclass(frozen=True, slots=True)
class LabelledChange:
    """One change with the label of its field; None for a field without a label."""

    change: Change
    label: Label | None

    @property
    def technical(self) -> bool:
        return self.label is not None and self.label.technical


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of one entity, compared with the version before it.

    updated_at: aware, UTC. snapshot: JSON text in UTF-8, as the database gives it; data: the same
    parsed, not to be modified. service: the one of client_id. author: None where the message named
    nobody.
    previous_version: the nearest lower version number in the store, previous_updated_at its
    moment; None where there is none. missing: the numbers in between; a range, so that a wide gap
    costs nothing. missing_why: never arrived, or unknown; None where none is missing. older: why
    there is nothing below the lowest version in the store; None for every other version, and
    where there never was anything. came: those of the missing or older versions that came and
    could not be stored, ascending; of the others missing_why and older say why.
    patch: RFC 6902 from the snapshot of previous_version to this one; None without a previous
    version. changes: the same for people. Both are empty or None where not asked for. listed: how
    many of the changes one answer lists; size: bytes of these, of the patch and the snapshot.
    old: the store does not have it, the old service does. other_moment: when the old service has
    it, if its clock differs from ours.
    """

    entity: Entity
    id: str
    version: int
    type: ChangeType
    updated_at: datetime
    client_id: str
    service: Author
    author: Author | None
    product_instance_id: str | None
    snapshot: bytes
    data: Json
    previous_version: int | None
    previous_updated_at: datetime | None
    missing: range
    missing_why: Absence | None
    older: Absence | None
    came: Mapping[int, Quarantined]
    patch: list[Operation] | None
    changes: tuple[LabelledChange, ...]
    listed: int
    size: int
    old: bool = False
    other_moment: datetime | None = None

    def without_snapshot(self) -> Version:
        """The same version with an empty snapshot; of data it has only what other answers show."""
        known = {self.entity.created_at: self.created_at}
        if self.entity.closed_at is not None:
            known[self.entity.closed_at] = self.closed_at
        return replace(self, snapshot=b"", data=known)

    @property
    def created_at(self) -> Json:
        """When the entity was created, as the snapshot says it; None where it does not."""
        return self.data.get(self.entity.created_at) if isinstance(self.data, dict) else None

    @property
    def closed_at(self) -> Json:
        """When it was closed, of a kind that declares where that is."""
        if self.entity.closed_at is None or not isinstance(self.data, dict):
            return None
        return self.data.get(self.entity.closed_at)

    @property
    def missing_reason(self) -> Absence | None:
        """missing_why, but never "never arrived" if one of the missing versions came."""
        return Absence.QUARANTINED if self.missing and self.came else self.missing_why

    @property
    def older_reason(self) -> Absence | None:
        """older in the same way."""
        return Absence.QUARANTINED if self.older and self.came else self.older


@dataclass(frozen=True, slots=True)
class Page:
    """Some versions in display order. next_token: None on the last page. A page that its budget
    ended has fewer versions than asked for, with a path filter even none, and a token."""

    versions: tuple[Version, ...]
    next_token: str | None
