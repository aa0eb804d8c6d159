"""Turns rows into versions to show: who made each one, when, and what changed, with labels.

Begin with `compose_versions`. Pages of timelines and of changes call
`VersionComposer.compose_version` instead, until the page has reached a limit of size or time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

import msgspec

from history import diff as differ
from history.common import deadline
from history.diff import Diff, ListIdentity, Operation, ValueChange, order_matching_first
from history.documents.exactjson import Json, SnapshotCache, dumps
from history.documents.record import ChangeType
from history.kinds.entities import EntityKind
from history.store.catalogue import labels, people
from history.store.catalogue.labels import FieldText
from history.store.catalogue.people import NamedLogin, make_unnamed_login
from history.store.quarantined_messages import QuarantinedMessage, VersionRange
from history.store.versions import (
    EntityRef,
    LoginKind,
    VersionRef,
    VersionRow,
    VersionWithPrevious,
    parse_snapshot,
)
from history.timeline import absence, budget
from history.timeline.open_messages import find_quarantined
from history.timeline.query import Absence, Include
from history.timeline.reader import HistoryReader

_NOTHING = Diff((), [])


class LabelledChange(msgspec.Struct, frozen=True, gc=False):
    """One change, with the label of its field."""

    change: ValueChange
    label: FieldText | None  # None if the field has no label

    @property
    def technical(self) -> bool:
        """Whether the label says that the field does not interest people."""
        return self.label is not None and self.label.technical


class VersionAuthorship(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a version, and when."""

    version: int
    type: ChangeType
    updated_at: datetime  # aware, UTC
    client_id: str
    service: NamedLogin  # the name of client_id
    author: NamedLogin | None  # None if the message named no person


class Version(VersionAuthorship, frozen=True, kw_only=True):
    """One version of one document, compared with its previous version."""

    entity: EntityKind
    id: str
    product_instance_id: str | None
    snapshot: bytes  # JSON text in UTF-8, as the database gives it
    data: Json  # the parsed snapshot; do not modify it
    previous_version: int | None  # the next lower number in the store; None if there is none
    previous_updated_at: datetime | None  # the moment of the previous version
    # the missing numbers between the previous version and this one; a range, as there may be many
    missing: range
    # why the numbers in `missing` are missing; None if none is missing
    missing_reason: Absence | None
    # why the store has no older version; None if it has one, or if this is the document's first one
    nothing_older_reason: Absence | None
    # the messages in quarantine that brought missing or older versions, by number, ascending
    quarantined: Mapping[int, QuarantinedMessage]
    # the RFC 6902 patch from the previous snapshot to this one; None if there is no previous
    # version, or if the patch was not requested
    patch: list[Operation] | None
    # the same differences for people, with labels; empty if they were not requested
    changes: tuple[LabelledChange, ...]
    listed_count: int  # how many of the changes one answer lists
    answer_bytes: int  # size of the snapshot, the patch and the listed changes in an answer
    is_from_old_service: bool = False  # the old service has this version, and the store does not
    # the moment that the old service has for this version, if it differs from `updated_at`
    old_service_moment: datetime | None = None

    @property
    def entity_ref(self) -> EntityRef:
        return EntityRef(self.entity, self.id)

    def drop_snapshot(self) -> Version:
        """Return a copy of the version without the snapshot.

        The attribute `snapshot` of the copy is empty. The attribute `data`, which is the parsed
        snapshot, keeps only the fields that say when the document was created and closed.
        """
        shown_fields = {self.entity.created_at: self.created_at}
        if self.entity.closed_at is not None:
            shown_fields[self.entity.closed_at] = self.closed_at
        return msgspec.structs.replace(self, snapshot=b"", data=shown_fields)

    @property
    def created_at(self) -> Json:
        """When the document was created; None if the snapshot does not say so."""
        return self.data.get(self.entity.created_at) if isinstance(self.data, dict) else None

    @property
    def closed_at(self) -> Json:
        """When the document was closed; None if it is open, or its kind has no field for it."""
        if self.entity.closed_at is None or not isinstance(self.data, dict):
            return None
        return self.data.get(self.entity.closed_at)


def compose_versions(
    reader: HistoryReader,
    pairs: Sequence[VersionWithPrevious],
    include: frozenset[Include],
    first_path: str | None = None,
) -> list[Version]:
    """Return the newer version of each pair, with its changes, in the order of `pairs`.

    Args:
        include: The expensive parts to make.
        first_path: A path. Changes that match it come first; see `VersionComposer`.
    """
    composer = VersionComposer(reader, pairs, include, first_path)
    return [composer.compose_version(pair) for pair in pairs]


@dataclass
class VersionComposer:
    """A composer that compares the two stored versions of a pair, and makes a `Version` from them.

    Runs at most one query for all authors. If the cached labels are too old, one more query loads
    the labels.
    """

    reader: HistoryReader
    pairs: Sequence[VersionWithPrevious]  # all pairs for which `compose_version` will be called
    include: frozenset[Include]
    # A path. Changes that match it come first, because an answer may list only the first changes.
    first_path: str | None = None

    def __post_init__(self) -> None:
        self.snapshots = SnapshotCache(parse_snapshot)
        self._includes_patch = Include.DIFF in self.include
        self._includes_changes = Include.CHANGES in self.include

    @cached_property
    def _logins(self) -> Mapping[str, NamedLogin]:
        return _load_logins(self.pairs)

    def compose_version(self, pair: VersionWithPrevious) -> Version:
        """Return the newer version of `pair`, with its changes. `self.pairs` must have the pair."""
        deadline.check()
        row, previous = pair.row, pair.previous
        difference = _NOTHING
        if previous is not None and (self._includes_patch or self._includes_changes):
            snapshots = self.snapshots.parse_pair(previous.data, row.data)
            difference = differ.compare_snapshots(*snapshots, get_identity(pair.entity))
        patch = difference.patch if previous and self._includes_patch else None
        changes = difference.changes if self._includes_changes else ()
        if self.first_path is not None:
            changes = order_matching_first(self.first_path, changes)
        listed_entries = budget.limit_changes(changes)
        missing = range(previous.version + 1, row.version) if previous else range(0)
        nothing_older_reason = None
        if previous is None:
            nothing_older_reason = absence.explain_missing_below(self.reader, pair)
        absent_numbers = missing or (range(row.version) if nothing_older_reason else range(0))
        messages = self._quarantined.get(pair.entity_ref, {}) if absent_numbers else {}
        return Version(
            **_make_authorship_fields(row, self._logins),
            entity=pair.entity,
            id=row.id,
            product_instance_id=row.product_instance_id,
            snapshot=row.data,
            data=self.snapshots.parse(row.data),
            previous_version=previous.version if previous else None,
            previous_updated_at=previous.updated_at if previous else None,
            missing=missing,
            missing_reason=absence.explain_missing_between(self.reader, pair),
            nothing_older_reason=nothing_older_reason,
            quarantined={
                number: message for number, message in messages.items() if number in absent_numbers
            },
            patch=patch,
            changes=label_changes(pair.entity, changes),
            listed_count=listed_entries.number,
            answer_bytes=len(row.data) + len(dumps(patch)) + listed_entries.size,
            is_from_old_service=row.is_from_old_service,
            old_service_moment=self.reader.shown_old_service.find_other_moment(row),
        )

    @cached_property
    def _quarantined(self) -> Mapping[EntityRef, Mapping[int, QuarantinedMessage]]:
        """The messages that brought missing versions, by document, then by version number.

        They are in quarantine, or were discarded, or could not be stored when they were retried.

        A version is missing if its number lies between the two versions of a pair, or below a
        version that has no previous version. Runs one query for each kind.
        """
        ranges_by_kind: dict[EntityKind, list[VersionRange]] = {}
        for pair in self.pairs:
            entity, row, previous = pair.entity, pair.row, pair.previous
            low = previous.version + 1 if previous else 0
            if low < row.version and (previous or row.type != ChangeType.CREATE):
                ranges_by_kind.setdefault(entity, []).append(
                    VersionRange(row.id, low, row.version - 1)
                )
        return {
            EntityRef(entity, id): messages
            for entity, ranges in ranges_by_kind.items()
            for id, messages in find_quarantined(self.reader, entity, ranges).items()
        }


@cache
def get_identity(entity: EntityKind) -> ListIdentity:
    """Return the fields that identify the items of lists in the snapshots of a kind."""
    return ListIdentity(entity.list_keys, entity.list_places)


def label_changes(entity: EntityKind, changes: Sequence[ValueChange]) -> tuple[LabelledChange, ...]:
    """Return the changes, each with the label of its field."""
    catalogue = labels.get_catalogue()
    return tuple(
        LabelledChange(change, catalogue.find(entity.name, change.path)) for change in changes
    )


def _load_logins(pairs: Iterable[VersionWithPrevious]) -> dict[str, NamedLogin]:
    """Return the people and services that made these versions, by login and client id.

    Runs one query, unless the sources gave all names together with the rows.
    """
    logins: dict[str, NamedLogin] = {}
    logins_to_load: set[str] = set()
    for row in (pair.row for pair in pairs):
        names = row.names
        if names is None:
            logins_to_load.update(
                login for login in (row.author, row.client_id) if login is not None
            )
            continue
        if row.author is not None and row.author not in logins:
            logins[row.author] = _make_named_login(row.author, names.author, names.author_kind)
        if row.client_id not in logins:
            logins[row.client_id] = _make_named_login(
                row.client_id, names.service, names.service_kind
            )
    return logins | people.fetch_named_logins(logins_to_load - logins.keys())


def _make_named_login(login: str, name: str | None, kind: LoginKind | None) -> NamedLogin:
    if name is None or kind is None:
        return make_unnamed_login(login)
    return NamedLogin(login, name, kind)


def _make_authorship_fields(row: VersionRow, authors: Mapping[str, NamedLogin]) -> dict[str, Any]:
    """Return the fields of VersionAuthorship for a row."""
    return {
        "version": row.version,
        "type": ChangeType(row.type),
        "updated_at": row.updated_at,
        "client_id": row.client_id,
        "service": authors[row.client_id],
        "author": None if row.author is None else authors[row.author],
    }


class ValueOrigin(VersionAuthorship, frozen=True, kw_only=True):
    """The version that set a value."""

    exact: bool  # False if an older version, which the store does not have, may have set the value


def find_origins(pairs: Collection[VersionWithPrevious]) -> Mapping[VersionRef, ValueOrigin]:
    """Return who made the newer version of each pair, and when. Runs at most one query.

    `exact` in the result says whether the version certainly set the values that differ in the pair.

    Args:
        pairs: The same pair can occur several times.
    """
    pairs_by_ref = {pair.row.ref: pair for pair in pairs}
    authors = _load_logins(pairs_by_ref.values())
    return {
        ref: ValueOrigin(**_make_authorship_fields(pair.row, authors), exact=_is_exact(pair))
        for ref, pair in pairs_by_ref.items()
    }


def _is_exact(pair: VersionWithPrevious) -> bool:
    """Return whether the version of a pair certainly set the values that differ in the pair.

    This is not certain if the version right before it is missing: that version may have set them.
    """
    row, previous = pair.row, pair.previous
    if previous is not None:
        return previous.version == row.version - 1
    return row.version == 0 or (row.type == ChangeType.CREATE and row.version == 1)
