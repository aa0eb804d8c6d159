"""One version of an entity, by its number or by a moment, and any two compared."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from history import labels, masking
from history.diff import Operation, changes
from history.diff.leaves import leaves
from history.diff.path import split
from history.documents.exactjson import Json
from history.entities import Entity
from history.timeline import absence, compose, neighbours
from history.timeline.neighbours import Known
from history.timeline.paging import check_path
from history.timeline.query import (
    EVERYTHING,
    Absence,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
)
from history.timeline.reading import Reader
from history.timeline.row import LAST, Key, Pair, VersionRow
from history.timeline.versions import LabelledChange, Version, parse

REMOVED = Absence.REMOVED
PAIR = 2  # a version and the one before


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two versions. before may be the younger one."""

    before: Version
    after: Version
    patch: list[Operation]
    changes: tuple[LabelledChange, ...]


def version(
    reader: Reader,
    entity: Entity,
    id: str,
    number: int,
    include: frozenset[Include] = EVERYTHING,
    made: datetime | None = None,
    first: str | None = None,
) -> Version:
    """One version, compared with the one before. Where a producer gave the number twice: the one
    made at this moment, or without a moment the younger one. first: a path; the changes that fit it
    come first, as in a timeline with this filter. One query. Raises BadParameterError,
    NoVersionError, OlderThanRetentionError."""
    if first is not None:
        check_path(reader, [entity], first)
    known = neighbours.known(reader, entity, id, [Key(number, made or LAST.updated_at)], PAIR)
    key = _key(reader, entity, id, number, made, known)
    return _show(reader, entity, id, key, known, include, first)


class Twin(NamedTuple):
    """One of the versions with one number. old: the store has another one, this is the old
    service's."""

    updated_at: datetime
    old: bool


def twins(reader: Reader, entity: Entity, id: str, number: int) -> list[Twin]:
    """The versions with this number, by the time when they were made. Raises NoVersionError where
    the store has nothing of this entity."""
    there = neighbours.known(reader, entity, id, (), 0).keys.of_version(number)
    theirs = _old_twins(reader, entity, id, number, there)
    found = [Twin(key.updated_at, old=False) for key in there]
    return sorted([*found, *(Twin(key.updated_at, old=True) for key in theirs)])


def at(reader: Reader, entity: Entity, id: str, moment: datetime) -> Version:
    """The version that was current at a moment: the highest number that was there by then. Its
    patch and changes are left out. One query. Raises NoVersionError where the entity did not
    exist yet, OlderThanRetentionError where what it was then is not kept."""
    known = neighbours.known(reader, entity, id, [Key(LAST.version, moment)], PAIR)
    key = known.keys.current(moment)
    if key is None:
        raise _not_yet(reader, entity, id, moment, known)
    return _show(reader, entity, id, key, known, frozenset())


def compare(
    reader: Reader,
    entity: Entity,
    id: str,
    before: int,
    after: int,
    before_made: datetime | None = None,
    after_made: datetime | None = None,
) -> Comparison:
    """Two versions of one entity, each named and refused as by version()."""
    wanted = ((before, before_made), (after, after_made))
    below = [Key(number, made or LAST.updated_at) for number, made in wanted]
    known = neighbours.known(reader, entity, id, below, PAIR)
    pair = [_key(reader, entity, id, number, made, known) for number, made in wanted]
    places = [(id, key) for key in pair]
    found = neighbours.fetch(reader, entity, places, {id: known.keys}, known.rows)
    if len(found) < len(pair):
        raise OlderThanRetentionError(_("retention has just removed one of the versions"))
    both = Pair(entity, found[1].row, found[0].row)
    everything = compose.diff(both, compose.Snapshots(), EVERYTHING)
    shown = compose.versions(reader, found, frozenset())
    changed = compose.labelled(entity, everything.changes, labels.catalogue())
    return Comparison(shown[0], shown[1], everything.patch, changed)


def differences(before: Version, after: Version) -> tuple[LabelledChange, ...]:
    """What differs in the documents of two versions of one entity, as the reader has them."""
    found = changes(before.data, after.data, compose.identity(after.entity))
    return compose.labelled(after.entity, found, labels.catalogue())


def _key(
    reader: Reader, entity: Entity, id: str, number: int, made: datetime | None, known: Known
) -> Key:
    there = known.keys.of_version(number)
    if not there or (made and Key(number, made) not in there):
        reader.confine(entity, [id])
    if not there:
        raise _no_version(reader, entity, id, number, known)
    key = Key(number, made) if made else there[-1]
    if key not in there and key not in _old_twins(reader, entity, id, number, there):
        text = _("version {n} of {kind} {id} made at {moment}")
        name = text.format(n=number, kind=entity.name, id=id, moment=made)
        raise absence.error(Absence.UNKNOWN, name, number)
    return key


def _old_twins(
    reader: Reader, entity: Entity, id: str, number: int, there: Collection[Key]
) -> list[Key]:
    """The key that the old service has of a version of which the store has these, with other
    times: one or none. The old service's clock gave the version another time."""
    theirs = (key for key in reader.old_keys(entity, id) if key.version == number)
    return [key for key in theirs if there and key not in there]


def _show(
    reader: Reader,
    entity: Entity,
    id: str,
    key: Key,
    known: Known,
    include: frozenset[Include],
    first: str | None = None,
) -> Version:
    pairs = neighbours.fetch(reader, entity, [(id, key)], {id: known.keys}, known.rows)
    if not pairs:
        raise OlderThanRetentionError(_("retention has just removed it"))
    return compose.versions(reader, pairs, include, first)[0]


def _no_version(
    reader: Reader, entity: Entity, id: str, number: int, known: Known
) -> NotFoundError:
    """The exception for a number that the store does not have, though it has others."""
    name = _("version {n} of {kind} {id}").format(n=number, kind=entity.name, id=id)
    keys = known.keys
    lower = keys.previous(Key(number, LAST.updated_at))
    if lower is None:
        row = _lowest(reader, entity, id, known)
        why = (
            absence.below(reader, entity, row, parse(row.data), trusted=keys.trusted)
            if row
            else REMOVED
        )
        return absence.error(why, name, number)
    higher = keys.newest is not None and keys.newest.version > number
    return absence.error(
        absence.above(reader, entity, lower, keys.trusted) if higher else None, name, number
    )


def _not_yet(
    reader: Reader, entity: Entity, id: str, moment: datetime, known: Known
) -> NotFoundError:
    """The exception for a moment before all versions that the store has."""
    row = _lowest(reader, entity, id, known)
    why: Absence | None = REMOVED
    if row is not None:
        trusted = known.keys.trusted
        why = absence.before(reader, entity, row, parse(row.data), moment, trusted=trusted)
    text = _("{kind} {id} at that moment")
    return absence.error(why, text.format(kind=entity.name, id=id))


def _lowest(reader: Reader, entity: Entity, id: str, known: Known) -> VersionRow | None:
    """The lowest stored version; None where retention has just removed it."""
    return next(neighbours.lowest(reader, entity, {id: known.keys}, known.rows), None)


def masked_values(entity: Entity, data: Json) -> dict[str, str]:
    """The masked parts of a snapshot as the reader gets it, in document order: their tokens by
    RFC 6901 pointer."""
    return {
        leaf.path: leaf.value
        for leaf in leaves(data, compose.identity(entity))
        if isinstance(leaf.value, str) and masking.is_token(leaf.value)
    }


def unmask(reader: Reader, shown: Version, path: str, record: Callable[[], None]) -> Json:
    """The value of one masked part of a version that the reader was shown. `record` is called
    before it is read; what it raises prevents the reader.

    Raises NoVersionError where the version has no masked part at this pointer,
    OlderThanRetentionError.
    """
    if path not in masked_values(shown.entity, shown.data):
        text = _("version {n} of {kind} {id} has no masked value there")
        name = text.format(n=shown.version, kind=shown.entity.name, id=shown.id)
        raise NoVersionError(name)
    record()
    names = (shown.entity, shown.id, shown.version, frozenset[Include](), shown.updated_at)
    return _at(version(reader.in_clear(), *names).data, path)


def _at(document: Json, pointer: str) -> Json:
    """The value at a pointer that leads somewhere."""
    value = document
    for segment in split(pointer):
        if isinstance(value, dict):
            value = value[segment.replace("~1", "/").replace("~0", "~")]
        elif isinstance(value, list):
            value = value[int(segment)]
    return value
