"""One version of an entity, by its number or by a moment, and any two compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from history import labels
from history.diff import Operation
from history.entities import Entity
from history.timeline import compose, neighbours, retention, rows
from history.timeline.neighbours import Keys, Pair
from history.timeline.paging import storable
from history.timeline.query import (
    EVERYTHING,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
)
from history.timeline.rows import Key
from history.timeline.versions import LabelledChange, Older, Version, parse


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two versions. before may be the younger one."""

    before: Version
    after: Version
    patch: list[Operation]
    changes: tuple[LabelledChange, ...]


def version(
    entity: Entity, id: str, number: int, include: frozenset[Include] = EVERYTHING
) -> Version:
    """One version, compared with the one before. Where a producer gave the number twice: the
    younger one. Three queries. Raises NoVersionError, OlderThanRetentionError."""
    keys = all_keys(entity, id)
    found = keys.of_version(number)
    if not found:
        raise _absent(entity, id, number, keys)
    return _show(entity, id, found[-1], keys, include)


def at(entity: Entity, id: str, moment: datetime) -> Version:
    """The version that was current at a moment: the highest number that was there by then. Its
    patch and changes are left out. Three queries. Raises NoVersionError where the entity did not
    exist yet, OlderThanRetentionError where what it was then is not kept."""
    keys = all_keys(entity, id)
    key = keys.current(moment)
    if key is None:
        raise _before_the_first(entity, id, keys, f"{entity.name} {id} at that moment")
    return _show(entity, id, key, keys, frozenset())


def compare(entity: Entity, id: str, old: int, new: int) -> Comparison:
    """Two versions of one entity, by their numbers. Raises as version() does."""
    keys = all_keys(entity, id)
    pair = []
    for number in (old, new):
        twins = keys.of_version(number)
        if not twins:
            raise _absent(entity, id, number, keys)
        pair.append(twins[-1])
    found = neighbours.fetch(entity, [(id, key) for key in pair], {id: keys})
    if len(found) < len(pair):
        raise OlderThanRetentionError("retention has just removed one of the versions")
    both = Pair(entity, found[1].row, found[0].row)
    everything = compose.diff(both, compose.Snapshots(), EVERYTHING)
    shown = compose.versions(found, frozenset())
    changed = compose.labelled(entity, everything.changes, labels.catalogue())
    return Comparison(shown[0], shown[1], everything.patch, changed)


def all_keys(entity: Entity, id: str) -> Keys:
    """Raises NoVersionError where the store has nothing of this entity."""
    keys = neighbours.all_keys(entity, [id]).get(id) if storable(id) else None
    if keys is None:
        raise NoVersionError(f"the store has no version of {entity.name} {id}")
    return keys


def _show(entity: Entity, id: str, key: Key, keys: Keys, include: frozenset[Include]) -> Version:
    pairs = neighbours.fetch(entity, [(id, key)], {id: keys})
    if not pairs:
        raise OlderThanRetentionError("retention has just removed it")
    return compose.versions(pairs, include)[0]


def _absent(entity: Entity, id: str, number: int, keys: Keys) -> NotFoundError:
    """Why the store has other versions of the entity and not this one."""
    name = f"version {number} of {entity.name} {id}"
    if keys.lowest is not None and number < keys.lowest.version:
        return _before_the_first(entity, id, keys, name)
    return NoVersionError(f"the store has no {name}")


def _before_the_first(entity: Entity, id: str, keys: Keys, name: str) -> NotFoundError:
    """Why there is nothing before the lowest version that the store has."""
    lowest = keys.lowest
    row = rows.bodies(entity, [(id, lowest)]).get((id, lowest)) if lowest else None
    why = retention.older(entity, row, parse(row.data)) if row else Older.REMOVED
    if row and why in (None, Older.NEVER_ARRIVED):
        return NoVersionError(f"the store has no {name}")
    return OlderThanRetentionError(f"{name}: older than what is kept")
