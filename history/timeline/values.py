"""Who set the values of an entity: each leaf of its newest version, and all values of one field."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from history import labels
from history.diff import MISSING, Maybe, differs, find
from history.diff.blame import BlameWalk
from history.diff.leaves import leaves
from history.documents.exactjson import Alike, Json, dumps
from history.entities import Entity
from history.labels import Label
from history.requests import deadline
from history.timeline import budget, compose
from history.timeline.compose import Origin, Version
from history.timeline.gate import Reader
from history.timeline.keys import descending
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    BadParameterError,
    NoVersionError,
    issue_token,
    read_token,
    unknown,
)
from history.versions import LAST, Key, Pair, parse


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
    pairs = descending(reader, entity, id)
    first = pair = next(pairs, None)
    if first is None or pair is None:  # retention has just removed it
        raise unknown(entity, id)
    snapshots = Alike(parse)
    data = snapshots.value(first.row.data)
    blamed: dict[str, Pair] = {}
    identity = compose.identity(entity)
    walk: BlameWalk[Pair] = BlameWalk(data, identity, blamed.__setitem__)
    while pair.before is not None:
        deadline.check()
        walk.step(snapshots.value(pair.before.data, pair.row.data), pair)
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


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value that a field had; MISSING where there was no such field. origin: the version that
    set it. until: when the next value was set; None if this one is the newest."""

    value: Maybe
    origin: Origin
    until: datetime | None


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """The values of a field, newest first. next_token: None at the end. A page that its budget
    ended may be short or empty and still have a token."""

    label: Label | None
    values: tuple[FieldValue, ...]
    next_token: str | None


def field(
    reader: Reader,
    entity: Entity,
    id: str,
    path: str,
    size: int = DEFAULT_PAGE_SIZE,
    page_token: str | None = None,
) -> FieldHistory:
    """The values that the field at a pointer or key path had, since when and by whom, in the
    order of version numbers. Raises BadParameterError, unknown."""
    reader.check_path([entity], path)
    if "*" in path.split("/"):
        raise BadParameterError("path", _("must name one field; * would name many"))
    binding = ("values", entity.name, id, path)
    start, until, mark = LAST, None, None
    if page_token is not None:
        version, moment, until, mark, *_rest = (*read_token(binding, page_token), None)
        start = Key(version, moment)
    label = labels.catalogue().find(entity.name, path)
    course = reader.follow(entity, id, page_token, mark)
    if course.waits:  # which value is the next one is not known
        return FieldHistory(label, (), page_token)
    try:
        scan = _scan(descending(course.reader, entity, id, start), path, size, until)
    except NoVersionError:
        if page_token is None:
            raise
        scan = _Scan([], None, None)  # retention has removed the rest
    set_by = compose.origins([pair for pair, _, _ in scan.found])
    following = (*scan.following, scan.until, course.mark) if scan.following else None
    return FieldHistory(
        label=label,
        values=tuple(
            FieldValue(value, set_by[pair.row.located], to) for pair, value, to in scan.found
        ),
        next_token=issue_token(binding, following) if following else None,
    )


class _Scan(NamedTuple):
    """What one page found: the versions that set the value, each with the value and the moment of
    the next one. following: where the next page begins."""

    found: list[tuple[Pair, Maybe, datetime | None]]
    following: Key | None
    until: datetime | None


def _scan(pairs: Iterable[Pair], path: str, size: int, until: datetime | None) -> _Scan:
    found: list[tuple[Pair, Maybe, datetime | None]] = []
    left, snapshots = budget.Budget(), Alike(parse)
    for scanned, pair in enumerate(pairs):
        deadline.check()
        data = snapshots.value(pair.row.data)
        before = snapshots.value(pair.before.data, pair.row.data) if pair.before else MISSING
        changed = differs(path, before, data, compose.identity(pair.entity))
        spent = scanned and (scanned == budget.SCAN or left.late)
        if spent or (changed and len(found) == size):
            return _Scan(found, pair.row.key, until)
        if changed:
            value = next((value for _, value in find(path, data)), MISSING)
            if not left.takes(len(dumps(value)) if value is not MISSING else 0) and found:
                return _Scan(found, pair.row.key, until)
            found.append((pair, value, until))
            until = pair.row.updated_at
    return _Scan(found, None, until)
