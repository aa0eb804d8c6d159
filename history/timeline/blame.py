"""The newest version of an entity, and who last changed each of its leaves."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import TypeAlias

from history import labels
from history.diff.blame import BlameWalk
from history.diff.leaves import leaves
from history.documents.exactjson import Json
from history.entities import Entity
from history.labels import Label
from history.people import Author
from history.record import ChangeType
from history.requests import deadline
from history.timeline import absence, compose, neighbours, paging
from history.timeline.neighbours import Keys, Pair, Place
from history.timeline.query import unknown
from history.timeline.reading import Reader
from history.timeline.row import LAST, Key, VersionRow
from history.timeline.unchanged import Unchanged
from history.timeline.versions import Version, parse


@dataclass(frozen=True, slots=True)
class Origin:
    """The version that set a value. exact: False if an older version, which the store does not
    have, may have set it."""

    version: int
    type: ChangeType
    updated_at: datetime
    client_id: str
    service: Author
    author: Author | None
    exact: bool


def origins(reader: Reader, pairs: Collection[Pair]) -> Mapping[Place, Origin]:
    """The version of each pair as an origin, by its place. No query where all were read
    before.

    The same pair may be given for many values; it is looked at once.
    """
    each_once = {pair.place: pair for pair in pairs}
    authors = neighbours.authors(each_once.values())
    return {
        place: Origin(
            version=pair.row.version,
            type=ChangeType(pair.row.type),
            updated_at=pair.row.updated_at,
            client_id=pair.row.client_id,
            service=authors[pair.row.client_id],
            author=authors[pair.row.author] if pair.row.author is not None else None,
            exact=_exact(reader, pair),
        )
        for place, pair in each_once.items()
    }


def _exact(reader: Reader, pair: Pair) -> bool:
    """Whether no version is missing before it that may have set the value."""
    row, before = pair.row, pair.before
    if before is not None:
        return before.version == row.version - 1
    return absence.below(reader, pair.entity, row, parse(row.data)) is None


# Given all keys and the last one that was read: the key at which to go on; None for the next one.
Skip: TypeAlias = Callable[[Keys, Key], Key | None]


def chain(
    reader: Reader, entity: Entity, id: str, start: Key | None = None, skip: Skip | None = None
) -> Iterator[Pair]:
    """The versions from the highest number (or from `start`) down; each is the one that the pair
    before it was compared with. A twin that no version is compared with is not among them.

    `start` itself comes first; if the store no longer has it, the next lower key does. One query
    for all keys and the first BATCH versions, one for every BATCH of the others, or READ_BYTES:
    linear in their number. skip: is asked after each of these, from the first pair on; the pair
    after the versions that it leaves out begins at its key.
    """
    keys = None
    if paging.storable(id):
        reader.old.want(entity, id)
        reader.expect(entity, id, [start or LAST], paging.BATCH)
        keys = neighbours.all_keys(reader, entity, [id]).get(id)
    if keys is None:
        return
    key = keys.newest if start is None else keys.up_to(start)
    upper: VersionRow | None = None
    most, begun = paging.BATCH, False
    while key is not None:
        batch = [key]
        while len(batch) < most and (lower := keys.previous(batch[-1])) is not None:
            batch.append(lower)
        read, left = reader.first_bodies(entity, [(id, each) for each in batch])
        unread = {place for _, place in left}
        most = min(paging.BATCH, max(1, 2 * len(read)))  # where they are large, all are measured
        batch = list(takewhile(lambda each: each not in unread, batch))  # noqa: B023 - used at once
        for each in batch:
            row = read.get((id, each))  # None if retention has just removed it
            if upper is not None:
                yield Pair(entity, upper, row, keys.trusted)
                begun = True
            if row is None:
                return
            upper = row
        key = keys.previous(batch[-1])
        further = skip(keys, batch[-1]) if skip and begun and key is not None else None
        if further is not None:
            key, upper = further, None
    if upper is not None:
        yield Pair(entity, upper, None, keys.trusted)


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

    Reads older versions until every leaf is blamed, without those that left the rest as it is.
    Raises NoVersionError.
    """
    reader = reader.anew()
    unchanged = Unchanged(reader, entity, id)
    pairs = chain(reader, entity, id, skip=unchanged.skip)
    first = pair = next(pairs, None)
    if first is None or pair is None:
        raise unknown(entity.name, id)
    data = parse(first.row.data)
    blamed: dict[str, Pair] = {}
    identity = compose.identity(entity)
    walk: BlameWalk[Pair] = BlameWalk(data, identity, blamed.__setitem__)
    unchanged.places = walk.remaining
    while pair.before is not None:
        deadline.check()
        walk.step(parse(pair.before.data), pair)
        if walk.done:
            break
        pair = next(pairs, Pair(entity, pair.before, None))
    walk.finish(pair)
    set_by = origins(reader, blamed.values())
    catalogue = labels.catalogue()
    found = tuple(
        BlamedLeaf(*leaf, catalogue.find(entity.name, leaf.path), set_by[blamed[leaf.path].place])
        for leaf in leaves(data, identity)
    )
    return Blamed(compose.versions(reader, [first], frozenset())[0], found)
