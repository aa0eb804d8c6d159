"""Rows into versions: compared with the version before, with names and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from history import diff as differ
from history import labels, people
from history.diff import Change, Diff, Identity, Operation
from history.entities import Entity
from history.exactjson import Json
from history.labels import Catalogue
from history.people import Author
from history.record import ChangeType
from history.timeline import retention
from history.timeline.query import Include
from history.timeline.rows import Key, Row
from history.timeline.versions import LabelledChange, Version, parse

# What a version is compared with: by id and key; None where the store has no lower version.
Previous = Mapping[tuple[str, Key], Row | None]

_NOTHING = Diff((), [])


@cache
def identity(entity: Entity) -> Identity:
    """How the items of lists in this kind's snapshots are told apart."""
    return Identity(entity.list_keys, entity.list_places)


class Snapshots:
    """Snapshots parsed once each, though most are compared twice."""

    def __init__(self) -> None:
        self._parsed: dict[bytes, Json] = {}

    def of(self, row: Row) -> Json:
        if row.data not in self._parsed:
            self._parsed[row.data] = parse(row.data)
        return self._parsed[row.data]


def versions(
    entity: Entity, shown: Sequence[Row], previous: Previous, include: frozenset[Include]
) -> list[Version]:
    """The shown rows, all of one kind, in their order. A query for the authors, and now and then
    one for the labels."""
    authors = people.authors(row.author for row in shown)
    catalogue = labels.catalogue()
    snapshots = Snapshots()
    found = []
    for row in shown:
        before = previous[row.id, row.key]
        difference = diff(entity, row, before, snapshots, include)
        changed = labelled(entity, difference.changes, catalogue)
        author = authors.get(row.author) if row.author is not None else None
        patch = difference.patch if before and Include.DIFF in include else None
        found.append(_version(entity, row, snapshots.of(row), before, author, patch, changed))
    return found


def diff(
    entity: Entity, row: Row, before: Row | None, snapshots: Snapshots, include: frozenset[Include]
) -> Diff:
    """The parts of the comparison that are wanted; the others are empty."""
    wanted = include & {Include.DIFF, Include.CHANGES}
    if before is None or not wanted:
        return _NOTHING
    pair = (snapshots.of(before), snapshots.of(row), identity(entity))
    if wanted == {Include.DIFF}:
        return Diff((), differ.patch(*pair))
    if wanted == {Include.CHANGES}:
        return Diff(differ.changes(*pair), [])
    return differ.compare(*pair)


def labelled(
    entity: Entity, found: Sequence[Change], catalogue: Catalogue
) -> tuple[LabelledChange, ...]:
    """Changes with the labels of their fields."""
    return tuple(
        LabelledChange(change, catalogue.find(entity.name, change.path)) for change in found
    )


def _version(
    entity: Entity,
    row: Row,
    data: Json,
    before: Row | None,
    author: Author | None,
    patch: list[Operation] | None,
    changed: tuple[LabelledChange, ...],
) -> Version:
    return Version(
        entity=entity,
        id=row.id,
        version=row.version,
        type=ChangeType(row.type),
        updated_at=row.updated_at,
        client_id=row.client_id,
        author=author,
        product_instance_id=row.product_instance_id,
        snapshot=row.data,
        data=data,
        previous_version=before.version if before else None,
        previous_updated_at=before.updated_at if before else None,
        missing=range(before.version + 1, row.version) if before else range(0),
        older=None if before else retention.older(row.version, row.type, data),
        patch=patch,
        changes=changed,
    )
