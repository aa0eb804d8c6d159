"""Who last changed each leaf of the newest version; the history of one field."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from history import labels
from history.diff import MISSING, Maybe, differs, find
from history.diff.leaves import leaves
from history.entities import Entity
from history.exactjson import Json
from history.labels import Label
from history.people import Author
from history.record import ChangeType
from history.timeline import absence, compose, neighbours, paging, token
from history.timeline.blame import Blame
from history.timeline.chain import chain
from history.timeline.neighbours import Pair, Place
from history.timeline.query import DEFAULT_PAGE_SIZE, BadParameterError, NoVersionError
from history.timeline.rows import Key
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


def blame(entity: Entity, id: str) -> Blamed:
    """The newest version of an entity and who last changed each leaf of it.

    Reads older versions until every leaf is blamed. Raises NoVersionError.
    """
    pairs = chain(entity, id)
    first = pair = next(pairs, None)
    if first is None or pair is None:
        raise NoVersionError(f"the store has no version of {entity.name} {id}")
    data = parse(first.row.data)
    blamed: dict[str, Pair] = {}
    identity = compose.identity(entity)
    walk: Blame[Pair] = Blame(data, identity, blamed.__setitem__)
    while pair.before is not None and not walk.done:
        walk.step(parse(pair.before.data), pair)
        pair = next(pairs, Pair(entity, pair.before, None))
    walk.finish(pair)
    origins = _origins(blamed.values())
    catalogue = labels.catalogue()
    found = tuple(
        Leaf(*leaf, catalogue.find(entity.name, leaf.path), origins[blamed[leaf.path].place])
        for leaf in leaves(data, identity)
    )
    return Blamed(compose.versions([first], frozenset())[0], found)


def _origins(pairs: Collection[Pair]) -> Mapping[Place, Origin]:
    authors = neighbours.authors(pairs)
    return {
        pair.place: Origin(
            version=pair.row.version,
            type=ChangeType(pair.row.type),
            updated_at=pair.row.updated_at,
            client_id=pair.row.client_id,
            service=authors[pair.row.client_id],
            author=authors[pair.row.author] if pair.row.author is not None else None,
            exact=_exact(pair),
        )
        for pair in pairs
    }


def _exact(pair: Pair) -> bool:
    """Whether no version is missing before it that may have set the value."""
    row, before = pair.row, pair.before
    if before is not None:
        return before.version == row.version - 1
    return absence.below(pair.entity, row, parse(row.data)) is None


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value that a field had; MISSING where there was no such field. origin: the version that
    set it. until: when the next value was set; None if this one is the newest."""

    value: Maybe
    origin: Origin
    until: datetime | None


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """The values of a field, newest first. next_token: None at the end. A page that ended after
    SCAN versions may be short or empty and still have a token."""

    label: Label | None
    values: tuple[FieldValue, ...]
    next_token: str | None


def field(
    entity: Entity, id: str, path: str, size: int = DEFAULT_PAGE_SIZE, page_token: str | None = None
) -> FieldHistory:
    """The values that the field at a pointer or key path had, since when and by whom, in the
    order of version numbers. Raises BadParameterError, NoVersionError."""
    paging.check_size(size)
    paging.check_path(path)
    if "*" in path.split("/"):
        raise BadParameterError("path", "must name one field; * would name many")
    binding = ("values", entity.name, id, path)
    start, until = None, None
    if page_token is not None:
        version, moment, until = token.read(binding, page_token)
        start = Key(version, moment)
    found: list[tuple[Pair, Maybe, datetime | None]] = []
    following: Key | None = None
    before: Maybe = MISSING
    scanned = 0
    for pair in chain(entity, id, start):
        data = parse(pair.row.data) if before is MISSING else before
        before = parse(pair.before.data) if pair.before else MISSING
        changed = differs(path, before, data, compose.identity(entity))
        if scanned == paging.SCAN or (changed and len(found) == size):
            following = pair.row.key
            break
        if changed:
            value = next((value for _, value in find(path, data)), MISSING)
            found.append((pair, value, until))
            until = pair.row.updated_at
        scanned += 1
    if not scanned and page_token is None:
        raise NoVersionError(f"the store has no version of {entity.name} {id}")
    origins = _origins([pair for pair, _, _ in found])
    return FieldHistory(
        label=labels.catalogue().find(entity.name, path),
        values=tuple(FieldValue(value, origins[pair.place], to) for pair, value, to in found),
        next_token=token.issue(binding, (*following, until)) if following else None,
    )
