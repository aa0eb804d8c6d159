"""Makes versions of rows: compared with the previous version, with names and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from history import deadline, labels
from history import diff as differ
from history.diff import Change, Diff, Identity, Operation
from history.entities import Entity
from history.exactjson import Json
from history.labels import Catalogue
from history.people import Author
from history.record import ChangeType
from history.timeline import absence, neighbours
from history.timeline.neighbours import Pair
from history.timeline.query import Include
from history.timeline.rows import VersionRow
from history.timeline.versions import LabelledChange, Version, parse

_NOTHING = Diff((), [])


@cache
def identity(entity: Entity) -> Identity:
    """Which fields identify the items of lists in the snapshots of this kind."""
    return Identity(entity.list_keys, entity.list_places)


class Snapshots:
    """Parses each snapshot once, though most are compared twice."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, Json] = {}

    def of(self, row: VersionRow) -> Json:
        if row.data not in self._parsed:
            self._parsed[row.data] = parse(row.data)
        return self._parsed[row.data]


def versions(pairs: Sequence[Pair], include: frozenset[Include]) -> list[Version]:
    """The pairs as versions, in their order. One query for the authors, and one for the labels
    when they are no longer fresh."""
    authors = neighbours.authors(pairs)
    catalogue = labels.catalogue()
    snapshots = Snapshots()
    found = []
    for pair in pairs:
        deadline.check()
        difference = diff(pair, snapshots, include)
        changed = labelled(pair.entity, difference.changes, catalogue)
        patch = difference.patch if pair.before and Include.DIFF in include else None
        found.append(_version(pair, snapshots.of(pair.row), authors, patch, changed))
    return found


def diff(pair: Pair, snapshots: Snapshots, include: frozenset[Include]) -> Diff:
    """The requested parts of the comparison; the others are empty."""
    wanted = include & {Include.DIFF, Include.CHANGES}
    if pair.before is None or not wanted:
        return _NOTHING
    both = (snapshots.of(pair.before), snapshots.of(pair.row), identity(pair.entity))
    if wanted == {Include.DIFF}:
        return Diff((), differ.patch(*both))
    if wanted == {Include.CHANGES}:
        return Diff(differ.changes(*both), [])
    return differ.compare(*both)


def labelled(
    entity: Entity, found: Sequence[Change], catalogue: Catalogue
) -> tuple[LabelledChange, ...]:
    """Changes with the labels of their fields."""
    return tuple(
        LabelledChange(change, catalogue.find(entity.name, change.path)) for change in found
    )


def _version(
    pair: Pair,
    data: Json,
    authors: Mapping[str, Author],
    patch: list[Operation] | None,
    changed: tuple[LabelledChange, ...],
) -> Version:
    row, before = pair.row, pair.before
    return Version(
        entity=pair.entity,
        id=row.id,
        version=row.version,
        type=ChangeType(row.type),
        updated_at=row.updated_at,
        client_id=row.client_id,
        service=authors[row.client_id],
        author=authors[row.author] if row.author is not None else None,
        product_instance_id=row.product_instance_id,
        snapshot=row.data,
        data=data,
        previous_version=before.version if before else None,
        previous_updated_at=before.updated_at if before else None,
        missing=range(before.version + 1, row.version) if before else range(0),
        missing_why=absence.between(pair),
        older=None if before else absence.below(pair.entity, row, data, trusted=pair.trusted),
        patch=patch,
        changes=changed,
    )
