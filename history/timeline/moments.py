"""Fetches single versions by number or moment, compares two versions, and finds past states.

A past state is an application with its children as they were at a moment.

Begin with `fetch_version`, `fetch_version_at` and `fetch_application_at`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeAlias

from django.utils.translation import gettext as _

from history import diff
from history.diff import Operation
from history.diff.leaves import generate_leaves
from history.documents.exactjson import Json
from history.documents.json_pointer import split_pointer
from history.documents.record import ChangeType
from history.kinds.entities import BY_NAME, ENTITIES, EntityKind
from history.policy import masking
from history.store.quarantined_messages import QuarantinedMessage, VersionRange
from history.store.versions import (
    LAST,
    EntityRef,
    VersionKey,
    VersionNumberRef,
    VersionRef,
)
from history.timeline import absence, compose
from history.timeline.budget import PageBudget
from history.timeline.compose import LabelledChange, Version
from history.timeline.open_messages import find_quarantined
from history.timeline.query import (
    EVERYTHING,
    Absence,
    Include,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    is_storable_id,
    make_unknown_error,
)
from history.timeline.reader import HistoryReader
from history.timeline.version_index import (
    EntityVersions,
    VersionIndex,
    fetch_keys,
    fetch_members,
    generate_pairs,
)

Members: TypeAlias = Mapping[EntityRef, list[VersionKey]]


def fetch_version(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    number: int,
    include: frozenset[Include] = EVERYTHING,
    made_at: datetime | None = None,
    first_path: str | None = None,
) -> Version:
    """Return one version, compared with its previous one. Runs one query.

    Args:
        made_at: The moment of the version, if a producer used the number twice. None: the younger
            of the two.
        first_path: A path. The changes of the version that match this path are listed first.

    Raises:
        BadParameterError: The path is wrong.
        NoVersionError: There is no such version.
        OlderThanRetentionError: Retention may have removed the version.
    """
    if first_path is not None:
        reader.check_path([entity], first_path)
    return _fetch_versions(reader, entity, id, [(number, made_at)], include, first_path)[0]


def find_repeated_numbers(
    reader: HistoryReader, versions: Iterable[Version], *, are_all_versions: bool
) -> Mapping[VersionNumberRef, tuple[datetime, ...]]:
    """Return the numbers that a producer used more than once.

    Each number comes with the moments of all its versions, the oldest first.

    Args:
        are_all_versions: Whether these are all versions of their documents. False: one query for
            each kind finds the other versions.
    """
    keys: defaultdict[EntityRef, list[VersionKey]] = defaultdict(list)
    for version in versions:
        keys[version.entity_ref].append(VersionKey(version.version, version.updated_at))
    for entity in () if are_all_versions else {entity for entity, _id in keys}:
        keys_by_id = fetch_keys(reader, entity, [id for kind, id in keys if kind is entity])
        keys.update((EntityRef(entity, id), entity_keys) for id, entity_keys in keys_by_id.items())
    times: defaultdict[VersionNumberRef, list[datetime]] = defaultdict(list)
    for entity_ref, entity_keys in keys.items():
        for key in sorted(entity_keys):
            times[VersionNumberRef(*entity_ref, key.version)].append(key.updated_at)
    return {number: tuple(moments) for number, moments in times.items() if len(moments) > 1}


class VersionAt(NamedTuple):
    """The version that was current at a moment."""

    version: Version
    # the next version, if versions in between are missing: one of these may have been current
    following: Version | None
    keys: VersionIndex  # the keys of all versions


def fetch_version_at(
    reader: HistoryReader, entity: EntityKind, id: str, moment: datetime
) -> VersionAt:
    """Return the version that was current at a moment, without patch and changes. Runs one query.

    Raises:
        NoVersionError: The document did not exist yet.
        OlderThanRetentionError: The version that was current at that moment is not kept any more.
    """
    document = EntityVersions.load(reader, entity, id, [VersionKey(LAST.version, moment)], 2)
    key = document.keys.find_current(moment)
    if key is None:
        lowest = document.read_lowest()
        reason = (
            absence.explain_missing_before(reader, lowest, moment) if lowest else Absence.REMOVED
        )
        text = _("{kind} {id} at that moment")
        raise absence.make_not_found_error(reason, text.format(kind=entity.name, id=id))
    next_key = document.keys.find_after_gap(key.version)
    versions = _compose_versions(document, [key, next_key] if next_key else [key], frozenset())
    return VersionAt(versions[0], versions[1] if next_key else None, document.keys)


def select_open_at(
    messages: Iterable[QuarantinedMessage], moment: datetime, keys: Mapping[EntityRef, VersionIndex]
) -> list[QuarantinedMessage]:
    """Return the messages in quarantine with versions that might have been current at `moment`.

    A message is left out in three cases:
    - Its version was made after `moment`.
    - Its version number is lower than the number of the stored version that was current at
      `moment`.
    - Its version number is not lower than the number of the next stored version. This is the
      version after the current version, or the lowest version if none was current at `moment`.

    Args:
        keys: All version keys of each document.
    """
    return [message for message in messages if _may_change_state(message, moment, keys)]


def _may_change_state(
    message: QuarantinedMessage, moment: datetime, indexes: Mapping[EntityRef, VersionIndex]
) -> bool:
    if message.made_at is not None and message.made_at > moment:
        return False
    keys = indexes.get(EntityRef(BY_NAME[message.entity], message.id))
    if keys is None or message.version is None:
        return True
    current = keys.find_current(moment)
    if current is not None and message.version < current.version:
        return False
    next_key = keys.find_above(current)
    return next_key is None or message.version < next_key.version


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Two versions and how they differ. `before` can be the younger version."""

    before: Version
    after: Version
    patch: list[Operation]
    changes: tuple[LabelledChange, ...]


def compare_versions(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    before: int,
    after: int,
    before_made: datetime | None = None,
    after_made: datetime | None = None,
) -> VersionComparison:
    """Compare two versions of one document.

    Args:
        before: The number of one version.
        after: The number of the other version.
        before_made: The moment of version `before`; see `made_at` in `fetch_version`.
        after_made: The moment of version `after`.

    Raises:
        NoVersionError, OlderThanRetentionError: See `fetch_version`.
    """
    requested = [(before, before_made), (after, after_made)]
    old, new = _fetch_versions(reader, entity, id, requested, frozenset())
    difference = diff.compare_snapshots(old.data, new.data, compose.get_identity(entity))
    return VersionComparison(
        old, new, difference.patch, compose.label_changes(entity, difference.changes)
    )


def compare_snapshots(before: Version, after: Version) -> tuple[LabelledChange, ...]:
    """Return the changes between two versions of one document, as the viewer sees the snapshots."""
    changes = diff.list_changes(before.data, after.data, compose.get_identity(after.entity))
    return compose.label_changes(after.entity, changes)


def _fetch_versions(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    requested: Sequence[tuple[int, datetime | None]],
    include: frozenset[Include],
    first_path: str | None = None,
) -> list[Version]:
    """Return the versions with these numbers and moments. Runs one query. See `fetch_version`.

    Args:
        requested: The number and the moment of each version. A moment may be None. A number may be
            too large to be a version number.
    """
    limits = [
        VersionKey(min(number, LAST.version), made_at or LAST.updated_at)
        for number, made_at in requested
    ]
    document = EntityVersions.load(reader, entity, id, limits, 2)
    return _compose_versions(
        document,
        [_choose_key(document, number, made_at) for number, made_at in requested],
        include,
        first_path,
    )


def _choose_key(document: EntityVersions, number: int, made_at: datetime | None) -> VersionKey:
    """Return the key of the version with this number and moment.

    If `made_at` is None, return the newest key with the number.

    Raises:
        NoVersionError, OlderThanRetentionError: There is no such version.
    """
    keys = document.keys.list_with_number(number)
    if not keys or (made_at and VersionKey(number, made_at) not in keys):
        document.reader.policy.check_visible(EntityRef(document.entity, document.id))
    if not keys:
        raise _make_no_version_error(document, number)
    key = VersionKey(number, made_at) if made_at else keys[-1]
    if key not in keys and key not in document.reader.list_old_keys(document.entity, document.id):
        text = _("version {n} of {kind} {id} made at {moment}")
        name = text.format(n=number, kind=document.entity.name, id=document.id, moment=made_at)
        raise absence.make_not_found_error(Absence.UNKNOWN, name, number)
    return key


def _compose_versions(
    document: EntityVersions,
    keys: Sequence[VersionKey],
    include: frozenset[Include],
    first_path: str | None = None,
) -> list[Version]:
    pairs = document.read_pairs(*keys)
    if len(pairs) < len(keys):
        raise OlderThanRetentionError(_("retention has just removed the version"))
    return compose.compose_versions(document.reader, pairs, include, first_path)


def _make_no_version_error(document: EntityVersions, number: int) -> NotFoundError:
    """Make the error for a document that has versions in the store, but not this number."""
    reader, entity, keys = document.reader, document.entity, document.keys
    reason: Absence | None = None
    lower = keys.find_previous(VersionKey(number, LAST.updated_at))
    if lower is None:
        lowest = document.read_lowest()
        reason = absence.explain_missing_below(reader, lowest) if lowest else Absence.REMOVED
    elif keys.newest.version > number:
        reason = absence.explain_missing_above(reader, entity, lower, keys.has_trusted_times)
    name = _("version {n} of {kind} {id}").format(n=number, kind=entity.name, id=document.id)
    was_kept = reason is not None and reason.was_kept
    if not was_kept and find_quarantined(
        reader, entity, [VersionRange(document.id, number, number)]
    ):
        text = _("the store has no {name}: it came, and could not be stored; trace says why")
        return NoVersionError(text.format(name=name), number, reason)
    return absence.make_not_found_error(reason, name, number)


def find_masked_values(entity: EntityKind, data: Json) -> dict[str, str]:
    """Return the tokens of masked values by JSON pointer, in the order of the snapshot's text."""
    return {
        leaf.path: leaf.value
        for leaf in generate_leaves(data, compose.get_identity(entity))
        if isinstance(leaf.value, str) and masking.is_token(leaf.value)
    }


def unmask_value(
    reader: HistoryReader, version: Version, path: str, record_access: Callable[[], None]
) -> Json:
    """Return one masked value of a version in clear.

    Args:
        version: A version as the viewer saw it.
        path: The JSON pointer of the value.
        record_access: Called before the value is read. If it raises, nothing is read.

    Raises:
        NoVersionError: The version has no masked value at this pointer.
        OlderThanRetentionError: Retention has removed the version.
    """
    if path not in find_masked_values(version.entity, version.data):
        text = _("version {n} of {kind} {id} has no masked value there")
        name = text.format(n=version.version, kind=version.entity.name, id=version.id)
        raise NoVersionError(name)
    record_access()
    value = fetch_version(
        reader.show_masked_values(),
        version.entity,
        version.id,
        version.version,
        include=frozenset(),
        made_at=version.updated_at,
    ).data
    for name in split_pointer(path):
        value = value[name] if isinstance(value, dict) else value[int(name)]  # type: ignore[index]
    return value


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part of an application that cannot be shown as it was at a moment.

    It may have existed at that moment, but the version that was current is missing or damaged.
    """

    entity: EntityKind
    id: str
    reason: Absence


@dataclass(frozen=True, slots=True)
class ApplicationState:
    """An application as it was at a moment.

    The parts of an application are the application itself and its children. The versions in this
    class have no patch and no changes. Versions that exceed the budget of a page also have no
    snapshot.
    """

    application: Version | None  # None if only children are known
    # the children that existed, by kind in the order of ENTITIES, then by id
    children: tuple[Version, ...]
    deleted: tuple[Version, ...]  # the children that had been deleted before that moment
    missing: tuple[MissingPart, ...]  # the parts without a version of that moment in the store
    unread: int  # how many parts were not read
    members: Members  # all keys of all parts
    # By part, the next version if versions before it are missing: one of these may have been
    # current. Without snapshots.
    following: Mapping[EntityRef, Version]


def fetch_application_at(
    reader: HistoryReader,
    id: str,
    moment: datetime,
    max_parts: int | None = None,
    members: Members | None = None,
) -> ApplicationState:
    """Return an application with its children as it was at a moment.

    A child belongs to the application if the version of the child that was current at that moment
    names the application. If the store has no version of the child from that moment or earlier,
    the child's lowest version in the store decides.

    Runs one query for all keys, then one for the snapshots, and more if these are large.

    Args:
        max_parts: How many parts to read, in the order of kind and id; None: all.
        members: `ApplicationState.members` of another moment, to save the query for the keys.

    Raises:
        NoVersionError: The application did not exist at that moment.
        OlderThanRetentionError: The versions that were current at that moment are not kept any
            more.
    """
    if not is_storable_id(id):
        raise make_unknown_error(None, id)
    all_damaged, reader = reader.damaged, replace(reader, damaged={})
    reader.shown_old_service.load_shown_timeline(None, id)
    members = members or fetch_members(reader, id)
    ordered = sorted(members, key=lambda member: (ENTITIES.index(member.entity), member.id))
    indexes = {entity_ref: VersionIndex(members[entity_ref]) for entity_ref in ordered[:max_parts]}
    current = {
        entity_ref: key
        for entity_ref, index in indexes.items()
        if (key := index.find_current(moment))
    }
    lowest = {
        entity_ref: index.lowest
        for entity_ref, index in indexes.items()
        if entity_ref not in current
    }
    following = {
        entity_ref: key
        for entity_ref, key_now in current.items()
        if (key := indexes[entity_ref].find_after_gap(key_now.version))
    }
    refs = [
        VersionRef(*entity_ref, key)
        for keys in (current, lowest, following)
        for entity_ref, key in keys.items()
    ]
    parts: list[Version] = []
    missing: list[MissingPart] = []
    next_versions: dict[EntityRef, Version] = {}
    budget, unread_refs = PageBudget(), set(current)
    for pairs in generate_pairs(reader, refs, indexes, skip_damaged=True):
        unread_refs -= {
            pair.entity_ref for pair in pairs if pair.row.key == current.get(pair.entity_ref)
        }
        later = [pair for pair in pairs if pair.row.key == following.get(pair.entity_ref)]
        for part in compose.compose_versions(reader, later, frozenset()):
            next_versions[part.entity_ref] = part.drop_snapshot()
        member_pairs = [
            pair for pair in pairs if pair.entity.root or pair.row.product_instance_id == id
        ]
        current_pairs = [
            pair for pair in member_pairs if pair.row.key == current.get(pair.entity_ref)
        ]
        for part in compose.compose_versions(reader, current_pairs, frozenset()):
            fits = budget.try_spend(part.answer_bytes) or part.entity.root
            parts.append(part if fits else part.drop_snapshot())
        lowest_pairs = [pair for pair in member_pairs if pair.entity_ref in lowest]
        missing += [
            MissingPart(*pair.entity_ref, reason)
            for pair in lowest_pairs
            if (reason := absence.explain_missing_before(reader, pair, moment))
        ]
    all_damaged.update(reader.damaged)
    damaged = {place.entity_ref: error for place, error in reader.damaged.items()}
    missing += [
        MissingPart(*entity_ref, Absence.DAMAGED if entity_ref in damaged else Absence.REMOVED)
        for entity_ref in current
        if entity_ref in unread_refs
    ]
    missing += [
        MissingPart(*entity_ref, Absence.DAMAGED) for entity_ref in damaged.keys() - current.keys()
    ]
    if not parts:
        for error in damaged.values():
            raise error
        raise _make_empty_state_error(id, bool(indexes), missing)
    parts.sort(key=lambda part: not part.entity.root and part.type is ChangeType.DELETE)
    children = [part for part in parts if not part.entity.root]
    return ApplicationState(
        application=next((part for part in parts if part.entity.root), None),
        children=tuple(part for part in children if part.type is not ChangeType.DELETE),
        deleted=tuple(part for part in children if part.type is ChangeType.DELETE),
        missing=tuple(missing),
        unread=len(members) - len(indexes),
        members=members,
        following={
            part.entity_ref: next_versions[part.entity_ref]
            for part in parts
            if part.entity_ref in next_versions
        },
    )


def _make_empty_state_error(
    id: str, is_known: bool, missing: Sequence[MissingPart]
) -> NotFoundError:
    """Make the error for an application that has no document to show at a moment.

    Args:
        is_known: Whether the application or a child has any version.
        missing: The parts for which the version of that moment is missing.
    """
    if not is_known:
        return make_unknown_error(None, id)
    if not missing:
        return NoVersionError(_("application {id} did not exist at that moment").format(id=id))
    reasons = [part.reason for part in missing]
    reason = next((reason for reason in reasons if reason.was_kept), reasons[0])
    return absence.make_not_found_error(
        reason, _("version of application {id} at that moment").format(id=id)
    )
