"""One version, by its number or by a moment, and one masked value of it; two versions compared;
and the state of an application with its children at a moment."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from django.utils.translation import gettext as _

from history import diff, masking
from history.diff import Operation
from history.diff.leaves import leaves
from history.documents.exactjson import Json
from history.documents.json_pointer import segments
from history.entities import BY_NAME, ENTITIES, Entity
from history.held_messages import Quarantined
from history.record import ChangeType
from history.timeline import absence, compose
from history.timeline.budget import Budget
from history.timeline.compose import LabelledChange, Version
from history.timeline.gate import Reader
from history.timeline.keys import Document, Keys, batches
from history.timeline.query import (
    EVERYTHING,
    Absence,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    storable,
    unknown,
)
from history.versions import LAST, Key, Named, Numbered

Members: TypeAlias = Mapping[Named, list[Key]]


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
    return _chosen(reader, entity, id, [(number, made)], include, first)[0]


def given_twice(
    reader: Reader, shown: Iterable[Version], *, whole: bool
) -> Mapping[Numbered, tuple[datetime, ...]]:
    """The numbers that a producer gave more than once to the entities of these versions, with the
    times of all versions that have them, the oldest first. whole: these are all versions; otherwise
    one query for each kind."""
    keys: defaultdict[Named, list[Key]] = defaultdict(list)
    for each in shown:
        keys[each.entity, each.id].append(Key(each.version, each.updated_at))
    for entity in () if whole else {named[0] for named in keys}:
        found = reader.keys(entity, [id for kind, id in keys if kind is entity])
        keys.update(((entity, id), its) for id, its in found.items())
    times: defaultdict[Numbered, list[datetime]] = defaultdict(list)
    for named, its in keys.items():
        for key in sorted(its):
            times[(*named, key.version)].append(key.updated_at)
    return {number: tuple(found) for number, found in times.items() if len(found) > 1}


class VersionAt(NamedTuple):
    """The version that was current at a moment. following: the next one, if versions between the
    two are missing: these may have come before the moment. keys: those of all versions."""

    version: Version
    following: Version | None
    keys: Keys


def at(reader: Reader, entity: Entity, id: str, moment: datetime) -> VersionAt:
    """The version that was current at a moment: the highest number that was there by then.
    Patches and changes are left out. One query. Raises NoVersionError where the entity did not
    exist yet, OlderThanRetentionError where what it was then is not kept."""
    document = Document.of(reader, entity, id, [Key(LAST.version, moment)], 2)
    key = document.keys.current(moment)
    if key is None:
        lowest = document.lowest()
        why = absence.before(reader, lowest, moment) if lowest else Absence.REMOVED
        text = _("{kind} {id} at that moment")
        raise absence.error(why, text.format(kind=entity.name, id=id))
    following = document.keys.after_gap(key.version)
    found = _show(document, [key, following] if following else [key], frozenset())
    return VersionAt(found[0], found[1] if following else None, document.keys)


def open_at(
    messages: Iterable[Quarantined], moment: datetime, keys: Mapping[Named, Keys]
) -> list[Quarantined]:
    """Return those of the open messages that may have changed the state at a moment: what says
    neither that it was made later nor that its number is not the next one there.

    Args:
        keys: of each document that the store has, all of its keys.
    """
    return [each for each in messages if _may_count(each, moment, keys)]


def _may_count(message: Quarantined, moment: datetime, known: Mapping[Named, Keys]) -> bool:
    if message.made_at is not None and message.made_at > moment:
        return False
    keys = known.get((BY_NAME[message.entity], message.id))
    if keys is None or message.version is None:
        return True
    current = keys.current(moment)
    if current is not None and message.version < current.version:
        return False
    following = keys.above(current)
    return following is None or message.version < following.version


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
    wanted = [(before, before_made), (after, after_made)]
    old, new = _chosen(reader, entity, id, wanted, frozenset())
    both = diff.compare(old.data, new.data, compose.identity(entity))
    return Comparison(old, new, both.patch, compose.labelled(entity, both.changes))


def differences(before: Version, after: Version) -> tuple[LabelledChange, ...]:
    """What differs in the documents of two versions of one entity, as the reader has them."""
    found = diff.changes(before.data, after.data, compose.identity(after.entity))
    return compose.labelled(after.entity, found)


def _chosen(
    reader: Reader,
    entity: Entity,
    id: str,
    wanted: Sequence[tuple[int, datetime | None]],
    include: frozenset[Include],
    first: str | None = None,
) -> list[Version]:
    """The versions with these numbers and moments, chosen and refused as by version(). One
    query. A number may be larger than any that can be stored."""
    below = [Key(min(number, LAST.version), made or LAST.updated_at) for number, made in wanted]
    document = Document.of(reader, entity, id, below, 2)
    return _show(document, [_key_of(document, *each) for each in wanted], include, first)


def _key_of(document: Document, number: int, made: datetime | None) -> Key:
    """The key of a version, as version() chooses it. Raises NoVersionError,
    OlderThanRetentionError."""
    there = document.keys.of_version(number)
    if not there or (made and Key(number, made) not in there):
        document.reader.confine((document.entity, document.id))
    if not there:
        raise _no_version(document, number)
    key = Key(number, made) if made else there[-1]
    if key not in there and key not in document.reader.old_keys(document.entity, document.id):
        text = _("version {n} of {kind} {id} made at {moment}")
        name = text.format(n=number, kind=document.entity.name, id=document.id, moment=made)
        raise absence.error(Absence.UNKNOWN, name, number)
    return key


def _show(
    document: Document, keys: Sequence[Key], include: frozenset[Include], first: str | None = None
) -> list[Version]:
    pairs = document.pairs(*keys)
    if len(pairs) < len(keys):
        raise OlderThanRetentionError(_("retention has just removed it"))
    return compose.versions(document.reader, pairs, include, first)


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
    was_kept = why is not None and why.was_kept
    if not was_kept and reader.came(entity, [(document.id, number, number)]):
        text = _("the store has no {name}: it came, and could not be stored; trace says why")
        return NoVersionError(text.format(name=name), number, why)
    return absence.error(why, name, number)


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
    value = version(reader.in_clear(), *names).data
    for name in segments(path):
        value = value[name] if isinstance(value, dict) else value[int(name)]  # type: ignore[index]
    return value


@dataclass(frozen=True, slots=True)
class MissingPart:
    """The application itself, or a child, that existed at a moment, or may have, although the store
    has no version of it from then."""

    entity: Entity
    id: str
    why: Absence


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """An application as it was at a moment. application: None where only children are known.
    children: those that were there, by kind in the order of ENTITIES, then by id. deleted: those
    that had been deleted by then. missing: those of which the version is not in the store.
    Patches and changes are left out, and beyond the budget of a page also the snapshots. unread:
    how many parts were not looked at. members: the keys of all parts, at any time. following: the
    next version of each part after whose version some are missing: these may have come before the
    moment; without snapshots."""

    application: Version | None
    children: tuple[Version, ...]
    deleted: tuple[Version, ...]
    missing: tuple[MissingPart, ...]
    unread: int
    members: Members
    following: Mapping[Named, Version]


def application_at(
    reader: Reader,
    id: str,
    moment: datetime,
    most: int | None = None,
    members: Members | None = None,
) -> ApplicationState:
    """The whole application as of a moment: of each part the highest version that was there. most:
    how many parts to read, by kind and id; None: all. members: of the state of another moment.

    A child counts where its version of that moment names the application; one without such a
    version where its lowest version does. One query for all keys, then one for the documents, more
    where these are large. Raises NoVersionError where it did not exist, OlderThanRetentionError.
    """
    if not storable(id):
        raise unknown(None, id)
    of_all, reader = reader, replace(reader, damaged={})
    reader.shown_old.want(None, id)
    members = members or reader.members(id)
    ordered = sorted(members, key=lambda its: (ENTITIES.index(its[0]), its[1]))
    there = {named: Keys(members[named]) for named in ordered[:most]}
    current = {named: key for named, its in there.items() if (key := its.current(moment))}
    lowest = {named: its.lowest for named, its in there.items() if named not in current}
    following = {
        named: key for named, now in current.items() if (key := there[named].after_gap(now.version))
    }
    wanted = [(*named, key) for keys in (current, lowest, following) for named, key in keys.items()]
    parts: list[Version] = []
    missing: list[MissingPart] = []
    after: dict[Named, Version] = {}
    budget, gone = Budget(), set(current)
    for pairs in batches(reader, wanted, there, as_list=True):
        gone -= {pair.named for pair in pairs if pair.row.key == current.get(pair.named)}
        later = [pair for pair in pairs if pair.row.key == following.get(pair.named)]
        for part in compose.versions(reader, later, frozenset()):
            after[part.entity, part.id] = part.without_snapshot()
        its = [pair for pair in pairs if pair.entity.root or pair.row.product_instance_id == id]
        shown = [pair for pair in its if pair.row.key == current.get(pair.named)]
        for part in compose.versions(reader, shown, frozenset()):
            fits = budget.takes(part.size) or part.entity.root
            parts.append(part if fits else part.without_snapshot())
        first = [pair for pair in its if pair.named in lowest]
        whys = [(*pair.named, absence.before(reader, pair, moment)) for pair in first]
        missing += [MissingPart(entity, part, why) for entity, part, why in whys if why]
    of_all.damaged.update(reader.damaged)
    damaged = {(entity, part): error for (entity, part, _), error in reader.damaged.items()}
    missing += [
        MissingPart(*named, Absence.DAMAGED if named in damaged else Absence.REMOVED)
        for named in current
        if named in gone
    ]
    missing += [MissingPart(*named, Absence.DAMAGED) for named in damaged.keys() - current.keys()]
    if not parts:
        for error in damaged.values():
            raise error
        raise _nothing(id, bool(there), missing)
    parts.sort(key=lambda part: not part.entity.root and part.type is ChangeType.DELETE)
    children = [part for part in parts if not part.entity.root]
    return ApplicationState(
        application=next((part for part in parts if part.entity.root), None),
        children=tuple(part for part in children if part.type is not ChangeType.DELETE),
        deleted=tuple(part for part in children if part.type is ChangeType.DELETE),
        missing=tuple(missing),
        unread=len(members) - len(there),
        members=members,
        following={
            named: after[named] for part in parts if (named := (part.entity, part.id)) in after
        },
    )


def _nothing(id: str, known: bool, missing: Sequence[MissingPart]) -> NotFoundError:
    """The exception for an application of which there is no version of a moment."""
    if not known:
        return unknown(None, id)
    if not missing:
        return NoVersionError(_("application {id} did not exist at that moment").format(id=id))
    kept = next((part.why for part in missing if part.why.was_kept), missing[0].why)
    return absence.error(kept, _("version of application {id} at that moment").format(id=id))
