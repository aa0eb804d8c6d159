"""The newest version of an entity, and who last changed each of its leaves."""

from dataclasses import dataclass

from history import labels
from history.diff.blame import BlameWalk
from history.diff.leaves import leaves
from history.documents.exactjson import Json
from history.entities import Entity
from history.labels import Label
from history.requests import deadline
from history.timeline import compose, neighbours
from history.timeline.compose import Origin, Version
from history.timeline.query import unknown
from history.timeline.reading import Reader
from history.timeline.row import Pair, parse


@dataclass(frozen=True, slots=True)
class BlamedLeaf:
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
    leaves: tuple[BlamedLeaf, ...]


def blame(reader: Reader, entity: Entity, id: str) -> Blamed:
    """The newest version of an entity and who last changed each leaf of it.

    Reads older versions until every leaf is blamed. Raises NoVersionError.
    """
    pairs = neighbours.descending(reader, entity, id)
    first = pair = next(pairs, None)
    if first is None or pair is None:  # retention has just removed it
        raise unknown(entity.name, id)
    data = parse(first.row.data)
    blamed: dict[str, Pair] = {}
    identity = compose.identity(entity)
    walk: BlameWalk[Pair] = BlameWalk(data, identity, blamed.__setitem__)
    while pair.before is not None:
        deadline.check()
        walk.step(parse(pair.before.data), pair)
        if walk.done:
            break
        pair = next(pairs, Pair(pair.before, None))
    walk.finish(pair)
    set_by = compose.origins(blamed.values())
    catalogue = labels.catalogue()
    found = tuple(
        BlamedLeaf(
            *leaf,
            catalogue.find(entity.name, leaf.path),
            set_by[blamed[leaf.path].row.located],
        )
        for leaf in leaves(data, identity)
    )
    return Blamed(compose.versions(reader, [first], frozenset())[0], found)
