"""The newest version of an entity, and who last changed each of its leaves."""

from __future__ import annotations

from dataclasses import dataclass

from history import deadline, labels
from history.diff.blame import Blame
from history.diff.leaves import leaves
from history.entities import Entity
from history.exactjson import Json
from history.labels import Label
from history.timeline import compose, memory
from history.timeline.chain import chain
from history.timeline.neighbours import Pair
from history.timeline.origin import Origin, origins
from history.timeline.query import unknown
from history.timeline.unchanged import Unchanged
from history.timeline.versions import Version, parse


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the newest snapshot: its paths as in history.diff.leaves, value, label, and who
    last changed it."""

    path: str
    key_path: str
    history_path: str
    value: Json
    label: Label | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Blamed:
    """The newest version, and its leaves in document order."""

    newest: Version
    leaves: tuple[Leaf, ...]


@memory.remembered()
def blame(entity: Entity, id: str) -> Blamed:
    """The newest version of an entity and who last changed each leaf of it.

    Reads older versions until every leaf is blamed, without those that left the rest as it is.
    Raises NoVersionError.
    """
    unchanged = Unchanged(entity, id)
    pairs = chain(entity, id, skip=unchanged.skip)
    first = pair = next(pairs, None)
    if first is None or pair is None:
        raise unknown(entity.name, id)
    data = parse(first.row.data)
    blamed: dict[str, Pair] = {}
    identity = compose.identity(entity)
    walk: Blame[Pair] = Blame(data, identity, blamed.__setitem__)
    unchanged.places = walk.remaining
    while pair.before is not None:
        deadline.check()
        walk.step(parse(pair.before.data), pair)
        if walk.done:
            break
        pair = next(pairs, Pair(entity, pair.before, None))
    walk.finish(pair)
    set_by = origins(blamed.values())
    catalogue = labels.catalogue()
    found = tuple(
        Leaf(*leaf, catalogue.find(entity.name, leaf.path), set_by[blamed[leaf.path].place])
        for leaf in leaves(data, identity)
    )
    return Blamed(compose.versions([first], frozenset())[0], found)
