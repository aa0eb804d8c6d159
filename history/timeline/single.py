"""One version of an entity, and any two compared."""

from __future__ import annotations

from dataclasses import dataclass

from history import labels
from history.diff import Operation
from history.entities import Entity
from history.timeline import compose, retention, rows
from history.timeline.neighbours import Keys
from history.timeline.pages import storable
from history.timeline.query import EVERYTHING, Include, NoVersionError, OlderThanRetentionError
from history.timeline.versions import LabelledChange, Older, Version, parse


@dataclass(frozen=True, slots=True)
class Comparison:
    """What turns one version into another, whichever of them is the older one."""

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
    key = found[-1]
    before = keys.previous(key)
    bodies = rows.bodies(entity, [(id, wanted) for wanted in (key, before) if wanted])
    row = bodies.get((id, key))
    if row is None:  # dropped by retention between the two queries
        raise OlderThanRetentionError(f"version {number} has just been removed by retention")
    previous = {(id, key): bodies.get((id, before)) if before else None}
    return compose.versions(entity, [row], previous, include)[0]


def compare(entity: Entity, id: str, old: int, new: int) -> Comparison:
    """Version `old` beside version `new` of one entity. Raises as version() does."""
    keys = all_keys(entity, id)
    pair = []
    for number in (old, new):
        found = keys.of_version(number)
        if not found:
            raise _absent(entity, id, number, keys)
        pair.append(found[-1])
    bodies = rows.bodies(entity, [(id, key) for key in pair])
    if len(bodies) < len(set(pair)):
        raise OlderThanRetentionError("one of the versions has just been removed by retention")
    before, after = (bodies[id, key] for key in pair)
    everything = compose.diff(entity, after, before, compose.Snapshots(), EVERYTHING)
    plain = {(row.id, row.key): None for row in (before, after)}
    shown = compose.versions(entity, [before, after], plain, frozenset())
    changed = compose.labelled(entity, everything.changes, labels.catalogue())
    return Comparison(shown[0], shown[1], everything.patch, changed)


def all_keys(entity: Entity, id: str) -> Keys:
    """Raises NoVersionError where the store has nothing of this entity."""
    keys = rows.keys(entity, [id]).get(id) if storable(id) else None
    if not keys:
        raise NoVersionError(f"the store has no version of {entity.name} {id}")
    return Keys(keys)


def _absent(entity: Entity, id: str, number: int, keys: Keys) -> LookupError:
    """Why the store has other versions of the entity and not this one."""
    lowest = keys.lowest
    name = f"version {number} of {entity.name} {id}"
    if lowest is not None and number < lowest.version:
        row = rows.bodies(entity, [(id, lowest)]).get((id, lowest))
        why = retention.older(row.version, row.type, parse(row.data)) if row else Older.REMOVED
        if why in (Older.REMOVED, Older.UNKNOWN):
            return OlderThanRetentionError(
                f"{name} is older than what is kept, which begins with {lowest.version}"
            )
    return NoVersionError(f"the store has no {name}")
