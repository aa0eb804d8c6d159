"""The changes in a slice of time that the viewer may see, without their snapshots."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from history.common import deadline
from history.kinds.entities import ENTITIES, EntityKind
from history.policy import need_to_know
from history.store import late_list
from history.store.blocks.queries import build_damage_error
from history.store.late_list import LateCursor, LateVersionBatch
from history.store.versions import (
    DamagedRef,
    EntityRef,
    TimelinePosition,
    VersionKey,
    VersionRef,
)
from history.timeline.query import EPOCH, MICROSECOND, TimelineOrder
from history.timeline.reader import HistoryReader
from history.timeline.time_slices import (
    ActivityRow,
    ChangesQuestion,
    LateQuestion,
    ListedChange,
    TimeSlice,
)


class FetchedChanges(NamedTuple):
    """Changes in a slice of time that a viewer may see, by moment, in the requested order."""

    refs: list[VersionRef]
    keys: Mapping[EntityRef, list[VersionKey]]  # all keys of the documents in `refs`
    last: TimelinePosition | None  # the slice was read up to here; None: to its end


def fetch_changes(reader: HistoryReader, question: ChangesQuestion) -> FetchedChanges:
    """Return the changes in a slice of time that the viewer may see.

    Changes that cannot be read are left out, and recorded in `reader.damaged`.
    See `fetch_changes` in history/timeline/sources/changes.py.
    """
    changes, last = _read_slice(reader, question)
    if question.field is not None:
        changes = reader.store_lists.drop_unchanged(changes, question.field)
    return FetchedChanges(*_list_visible(reader, changes), last)


class FetchedLateChanges(NamedTuple):
    """Versions of the late list that a viewer may see, in the order in which they were stored."""

    refs: list[VersionRef]
    keys: Mapping[EntityRef, list[VersionKey]]  # all keys of the documents in `refs`
    cursors: Mapping[VersionRef, LateCursor]  # for each version, the cursor after it
    end: LateCursor  # the late list was read up to this cursor
    has_more: bool


def fetch_late_changes(reader: HistoryReader, question: LateQuestion) -> FetchedLateChanges:
    """Return the versions in the late list that the viewer may see, without their snapshots.

    A version is left out if the feed has not passed its moment, or if it is not stored any more.
    Versions that cannot be read are left out, and recorded in `reader.damaged`.

    Raises:
        LateListGoneError: The late list does not have the entries after the cursor any more.
    """
    batches = late_list.fetch_batches(question.cursor)
    has_more = len(batches) == late_list.BATCHES_PER_READ
    end = LateCursor(batches[-1].position + 1, 0) if batches else question.cursor
    cursors: dict[VersionRef, LateCursor] = {}
    for ref, cursor in _generate_entries(batches, question):
        cursors.setdefault(ref, cursor)
        if len(cursors) == question.limit:
            end, has_more = cursor, True
            break
    listed = reader.store_lists.fetch_listed(list(cursors), question.filters) if cursors else {}
    refs, keys = _list_visible(reader, [listed[ref] for ref in cursors if ref in listed])
    return FetchedLateChanges(refs, keys, cursors, end, has_more)


def _generate_entries(
    batches: Iterable[LateVersionBatch], question: LateQuestion
) -> Iterator[tuple[VersionRef, LateCursor]]:
    """Generate the versions in `batches` that `question` asks for by kind, span and cursor.

    The filters of `question` are not applied.

    Yields:
        A version, and the cursor of the late list after the entry of this version.
    """
    kinds = {entity.name: entity for entity in question.kinds}
    for batch in batches:
        if batch.entity not in kinds:
            continue
        entity = kinds[batch.entity]
        is_first = batch.position == question.cursor.position
        start = question.cursor.versions_read if is_first else 0
        entries = list(zip(batch.ids, batch.moments, batch.versions, strict=True))
        for number, (id, microseconds, version) in enumerate(entries[start:], start + 1):
            moment = EPOCH + microseconds * MICROSECOND
            ref = VersionRef(entity, id, VersionKey(version, moment))
            if question.since <= moment and TimelinePosition.from_ref(ref) <= question.until:
                yield ref, LateCursor(batch.position, number)


def _list_visible(
    reader: HistoryReader, changes: Sequence[ListedChange]
) -> tuple[list[VersionRef], Mapping[EntityRef, list[VersionKey]]]:
    """Return which of `changes` the viewer may see, and all version keys of their documents.

    Versions that cannot be read are left out, and recorded in `reader.damaged`.
    """
    refs: list[VersionRef] = []
    for change in _select_visible(reader, changes):
        ref = change.ref
        if change.is_damaged:
            error = build_damage_error(ref.entity.table, ref.id, ref.key.updated_at)
            reader.store_lists.note_damage(DamagedRef(ref.entity, ref.id, None), error)
        else:
            refs.append(ref)
    ids: defaultdict[EntityKind, dict[str, None]] = defaultdict(dict)
    for ref in refs:
        ids[ref.entity][ref.id] = None
    keys = {
        EntityRef(entity, id): document_keys
        for entity, kind_ids in ids.items()
        for id, document_keys in reader.store_lists.fetch_keys(entity, kind_ids).items()
    }
    return refs, keys


def _read_slice(
    reader: HistoryReader, question: ChangesQuestion
) -> tuple[list[ListedChange], TimelinePosition | None]:
    """Return the next changes of a slice, and the position up to which the slice was read.

    The position is None if the whole slice was read.
    """
    changes: list[ListedChange] = []
    after = question.after
    while True:
        rows = reader.store_lists.fetch_changes(replace(question, after=after))
        changes += rows
        if len(rows) < question.limit:
            return changes, None
        if (end := _find_end(reader, question, changes)) is not None:
            return changes, end
        deadline.check()
        after = rows[-1].position


def _find_end(
    reader: HistoryReader, question: ChangesQuestion, changes: Sequence[ListedChange]
) -> TimelinePosition | None:
    """Return the position at which a page of these changes may end.

    A client can decode the token of the page, so the position must not reveal a hidden change. If
    the last change is hidden, there are two candidates: the position of the last visible change,
    and the position before all changes that have the moment of the last change. The page ends at
    the candidate that is further down the list.

    Returns:
        None if the page cannot end here, because all changes are hidden and have the same moment.
    """
    last = changes[-1].position
    if _select_visible(reader, changes[-1:]):
        return last
    is_ascending = question.slice.order is TimelineOrder.ASC
    moment = last.updated_at if is_ascending else last.updated_at + MICROSECOND
    visible = [change.position for change in _select_visible(reader, changes)]
    ends = [question.after, TimelinePosition(moment, -1, "", -1), *visible[-1:]]
    end = max(ends) if is_ascending else min(ends)
    return None if end == question.after else end


def fetch_activity(
    reader: HistoryReader, author: str, time_slice: TimeSlice, zone: str
) -> list[ActivityRow] | None:
    """Count the versions that a person made in a slice of time, by kind, day and service.

    Args:
        zone: The IANA name of the time zone of the days.

    Returns:
        None if the need-to-know rule limits the viewer: a count would reveal hidden applications.
    """
    if need_to_know.is_rule_applied(reader.viewer):
        return None
    return reader.store_lists.fetch_activity(ENTITIES, author, time_slice, zone)


def _select_visible(
    reader: HistoryReader, changes: Sequence[ListedChange]
) -> Sequence[ListedChange]:
    """Return the changes of documents that belong only to applications that the viewer may see."""
    if not need_to_know.is_rule_applied(reader.viewer):
        return changes
    ids: defaultdict[EntityKind, set[str]] = defaultdict(set)
    for ref in (change.ref for change in changes):
        if not ref.entity.is_standalone:
            ids[ref.entity].add(ref.id)
    owners = {
        EntityRef(entity, id): set(applications)
        for entity, kind_ids in ids.items()
        for id, applications in reader.source.fetch_owners(entity, kind_ids).items()
    }
    visible_applications = reader.policy.select_visible(set().union(*owners.values()))
    return [
        change
        for change in changes
        if change.ref.entity.is_standalone
        or ({change.application} | owners.get(change.ref.entity_ref, set())) <= visible_applications
    ]
