"""Versions, made of rows: who, when, and what changed; with names and labels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

import msgspec

from history import diff as differ
from history import labels, people
from history.diff import Change, Diff, Identity, Operation, matching_first
from history.documents.exactjson import Alike, Json, dumps
from history.entities import Entity
from history.held_messages import Quarantined, VersionRange
from history.labels import Label
from history.people import Author, unnamed
from history.record import ChangeType
from history.requests import deadline
from history.timeline import absence, budget
from history.timeline.gate import Reader
from history.timeline.query import Absence, Include
from history.versions import Located, Pair, VersionRow, parse

_NOTHING = Diff((), [])


class LabelledChange(msgspec.Struct, frozen=True, gc=False):
    """One change with the label of its field; None for a field without a label."""

    change: Change
    label: Label | None

    @property
    def technical(self) -> bool:
        return self.label is not None and self.label.technical


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a version, and when. updated_at: aware, UTC. service: the one of client_id. author:
    None where the message named nobody."""

    version: int
    type: ChangeType
    updated_at: datetime
    client_id: str
    service: Author
    author: Author | None


class Version(Made, frozen=True, kw_only=True):
    """One version of one entity, compared with the version before it.

    snapshot: JSON text in UTF-8, as the database gives it; data: the same parsed, not to be
    modified.
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
        return msgspec.structs.replace(self, snapshot=b"", data=known)

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


@cache
def identity(entity: Entity) -> Identity:
    """Which fields identify the items of lists in the snapshots of this kind."""
    return Identity(entity.list_keys, entity.list_places)


@dataclass
class Composer:
    """Makes versions of these pairs, one after another. At most one query for all authors, and one
    for the labels when they are no longer fresh. first: a path; the changes that fit it come before
    the others, so that a list that ends early has them."""

    reader: Reader
    pairs: Sequence[Pair]
    include: frozenset[Include]
    first: str | None = None

    def __post_init__(self) -> None:
        self.snapshots = Alike(parse)
        self._wants_patch = Include.DIFF in self.include
        self._wants_changes = Include.CHANGES in self.include

    @cached_property
    def _authors(self) -> Mapping[str, Author]:
        return _people(self.pairs)

    def version(self, pair: Pair) -> Version:
        deadline.check()
        row, before = pair.row, pair.before
        found = _NOTHING
        if before is not None and (self._wants_patch or self._wants_changes):
            both = self.snapshots.both(before.data, row.data)
            found = differ.compare(*both, identity(pair.entity))
        patch = found.patch if before and self._wants_patch else None
        changes = found.changes if self._wants_changes else ()
        if self.first is not None:
            changes = matching_first(self.first, changes)
        listed = budget.listed(changes)
        missing = range(before.version + 1, row.version) if before else range(0)
        older = None if before else absence.below(self.reader, pair)
        gone = missing or (range(row.version) if older else range(0))
        came = self._came.get(pair.named, {}) if gone else {}
        return Version(
            **_made(row, self._authors),
            entity=pair.entity,
            id=row.id,
            product_instance_id=row.product_instance_id,
            snapshot=row.data,
            data=self.snapshots.value(row.data),
            previous_version=before.version if before else None,
            previous_updated_at=before.updated_at if before else None,
            missing=missing,
            missing_why=absence.between(self.reader, pair),
            older=older,
            came={number: each for number, each in came.items() if number in gone},
            patch=patch,
            changes=labelled(pair.entity, changes),
            listed=listed.number,
            size=len(row.data) + len(dumps(patch)) + listed.size,
            old=row.old,
            other_moment=self.reader.shown_old.other_moment(row),
        )

    @cached_property
    def _came(self) -> Mapping[tuple[Entity, str], Mapping[int, Quarantined]]:
        """What is in quarantine of the versions that are missing in these pairs. A query for each
        kind with a gap."""
        wanted: dict[Entity, list[VersionRange]] = {}
        for pair in self.pairs:
            entity, row, before = pair.entity, pair.row, pair.before
            low = before.version + 1 if before else 0
            if low < row.version and (before or row.type != ChangeType.CREATE):
                wanted.setdefault(entity, []).append((row.id, low, row.version - 1))
        return {
            (entity, id): each
            for entity, ranges in wanted.items()
            for id, each in self.reader.came(entity, ranges).items()
        }


def versions(
    reader: Reader, pairs: Sequence[Pair], include: frozenset[Include], first: str | None = None
) -> list[Version]:
    """The pairs as versions, in their order. first: as in Composer."""
    composer = Composer(reader, pairs, include, first)
    return [composer.version(pair) for pair in pairs]


def labelled(entity: Entity, found: Sequence[Change]) -> tuple[LabelledChange, ...]:
    """Changes with the labels of their fields."""
    catalogue = labels.catalogue()
    return tuple(
        LabelledChange(change, catalogue.find(entity.name, change.path)) for change in found
    )


def _people(pairs: Iterable[Pair]) -> dict[str, Author]:
    """The people and services that made these versions, by login and client id. No query, where
    the sources gave their names with all of them; otherwise one."""
    known: dict[str, Author] = {}
    unknown: set[str] = set()
    for row in (pair.row for pair in pairs):
        for login, named in ((row.author, row.names[:2]), (row.client_id, row.names[2:])):
            if login is None or login in known:
                continue
            if not named:
                unknown.add(login)
            else:
                known[login] = unnamed(login) if named[0] is None else Author(login, *named)
    return known | people.authors(unknown - known.keys())


def _made(row: VersionRow, authors: Mapping[str, Author]) -> dict[str, Any]:
    """The fields of Made."""
    return {
        "version": row.version,
        "type": ChangeType(row.type),
        "updated_at": row.updated_at,
        "client_id": row.client_id,
        "service": authors[row.client_id],
        "author": None if row.author is None else authors[row.author],
    }


class Origin(Made, frozen=True, kw_only=True):
    """The version that set a value. exact: False if an older version, which the store does not
    have, may have set it."""

    exact: bool


def origins(pairs: Collection[Pair]) -> Mapping[Located, Origin]:
    """The version of each pair as an origin. No query where all were read before. The same pair may
    be given for many values; it is looked at once."""
    each_once = {pair.row.located: pair for pair in pairs}
    authors = _people(each_once.values())
    return {
        place: Origin(**_made(pair.row, authors), exact=_exact(pair))
        for place, pair in each_once.items()
    }


def _exact(pair: Pair) -> bool:
    """Whether no version is missing before it that may have set the value."""
    row, before = pair.row, pair.before
    if before is not None:
        return before.version == row.version - 1
    return row.version == 0 or (row.type == ChangeType.CREATE and row.version == 1)
