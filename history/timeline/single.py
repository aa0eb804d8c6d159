"""One version of an entity, by its number or by a moment; and any two versions compared."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from history import diff, labels
from history.diff import Operation
from history.entities import Entity
from history.timeline import absence, compose
from history.timeline.compose import LabelledChange, Version
from history.timeline.neighbours import Document
from history.timeline.query import (
    EVERYTHING,
    Absence,
    Include,
    NotFoundError,
    OlderThanRetentionError,
)
from history.timeline.reading import Reader
from history.timeline.row import LAST, Key, Numbered


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
        reader.check_path([entity], first)
    document = _known(reader, entity, id, (number, made))
    return _show(document, _key_of(document, number, made), include, first)


class Twin(NamedTuple):
    """One of the versions with one number. old: the store has another one, this is the old
    service's."""

    updated_at: datetime
    old: bool


def twins(reader: Reader, entity: Entity, id: str, number: int) -> list[Twin]:
    """The versions with this number, by the time when they were made. Raises NoVersionError where
    the store has nothing of this entity."""
    document = Document.of(reader, entity, id)
    found = [Twin(key.updated_at, old=False) for key in document.keys.of_version(number)]
    theirs = [Twin(key.updated_at, old=True) for key in _old_twins(document, number)]
    return sorted([*found, *theirs])


def given_twice(
    reader: Reader, shown: Iterable[Version], *, whole: bool
) -> Mapping[Numbered, tuple[datetime, ...]]:
    """Those numbers of these versions that a producer gave more than once, with the times of all
    versions that have them, the oldest first. whole: these are all versions; otherwise one query
    for each kind."""
    times: defaultdict[Numbered, list[datetime]] = defaultdict(list)
    for each in shown:
        times[each.entity, each.id, each.version].append(each.updated_at)
    if not whole:
        return reader.given_twice(times)
    return {number: tuple(sorted(found)) for number, found in times.items() if len(found) > 1}


def at(reader: Reader, entity: Entity, id: str, moment: datetime) -> tuple[Version, Version | None]:
    """The version that was current at a moment: the highest number that was there by then; and the
    next one, if versions between the two are missing: these may have come before the moment.
    Patches and changes are left out. One query. Raises NoVersionError where the entity did not
    exist yet, OlderThanRetentionError where what it was then is not kept."""
    document = _known(reader, entity, id, (LAST.version, moment))
    key = document.keys.current(moment)
    if key is None:
        lowest = document.lowest()
        why = absence.before(reader, lowest, moment) if lowest else Absence.REMOVED
        text = _("{kind} {id} at that moment")
        raise absence.error(why, text.format(kind=entity.name, id=id))
    following = document.keys.after_gap(key.version)
    return (
        _show(document, key, frozenset()),
        _show(document, following, frozenset()) if following else None,
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference of two versions. before may be the younger one."""

    before: Version
    after: Version
    patch: list[Operation]
    changes: tuple[LabelledChange, ...]


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
    document = _known(reader, entity, id, *wanted)
    keys = [_key_of(document, number, made) for number, made in wanted]
    found = document.pairs(*keys)
    if len(found) < len(keys):
        raise OlderThanRetentionError(_("retention has just removed one of the versions"))
    old, new = compose.versions(reader, found, frozenset())
    both = diff.compare(old.data, new.data, compose.identity(entity))
    labelled = compose.labelled(entity, both.changes, labels.catalogue())
    return Comparison(old, new, both.patch, labelled)


def differences(before: Version, after: Version) -> tuple[LabelledChange, ...]:
    """What differs in the documents of two versions of one entity, as the reader has them."""
    found = diff.changes(before.data, after.data, compose.identity(after.entity))
    return compose.labelled(after.entity, found, labels.catalogue())


def _known(
    reader: Reader, entity: Entity, id: str, *wanted: tuple[int, datetime | None]
) -> Document:
    """An entity with the highest versions up to these numbers and moments, and those before. One
    query. Raises NoVersionError where there is nothing of it."""
    below = [Key(number, made or LAST.updated_at) for number, made in wanted]
    return Document.of(reader, entity, id, below, 2)


def _key_of(document: Document, number: int, made: datetime | None) -> Key:
    """The key of a version, as version() chooses it. Raises NoVersionError,
    OlderThanRetentionError."""
    there = document.keys.of_version(number)
    if not there or (made and Key(number, made) not in there):
        document.reader.confine((document.entity, document.id))
    if not there:
        raise _no_version(document, number)
    key = Key(number, made) if made else there[-1]
    if key not in there and key not in _old_twins(document, number):
        text = _("version {n} of {kind} {id} made at {moment}")
        name = text.format(n=number, kind=document.entity.name, id=document.id, moment=made)
        raise absence.error(Absence.UNKNOWN, name, number)
    return key


def _old_twins(document: Document, number: int) -> list[Key]:
    """The key that the old service has of a version that the store has with other times: one or
    none. The old service's clock gave the version another time."""
    there = document.keys.of_version(number)
    theirs = document.reader.old_keys(document.entity, document.id) if there else ()
    return [key for key in theirs if key.version == number and key not in there]


def _show(
    document: Document, key: Key, include: frozenset[Include], first: str | None = None
) -> Version:
    pairs = document.pairs(key)
    if not pairs:
        raise OlderThanRetentionError(_("retention has just removed it"))
    return compose.versions(document.reader, pairs, include, first)[0]


def _no_version(document: Document, number: int) -> NotFoundError:
    """The exception for a number that the store does not have, though it has others."""
    reader, entity, keys = document.reader, document.entity, document.keys
    why: Absence | None = None
    lower = keys.previous(Key(number, LAST.updated_at))
    if lower is None:
        lowest = document.lowest()
        why = absence.below(reader, lowest) if lowest else Absence.REMOVED
    elif keys.newest.version > number:
        why = absence.above(reader, entity, lower, keys.trusted)
    name = _("version {n} of {kind} {id}").format(n=number, kind=entity.name, id=document.id)
    return absence.error(why, name, number)
