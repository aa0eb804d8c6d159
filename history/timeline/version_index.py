"""Orders the versions of a document by their keys, and reads versions in pairs for comparison.

`VersionIndex` tells which version was current at a moment, and which is the previous one.
`generate_pairs` reads versions, each with its previous one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from history.kinds.entities import EntityKind
from history.store.versions import (
    CLOCK_TOLERANCE,
    FIRST,
    LAST,
    DamagedRef,
    EntityRef,
    VersionKey,
    VersionRef,
    VersionRow,
    VersionWithPrevious,
)
from history.timeline import budget
from history.timeline.query import is_storable_id, make_unknown_error
from history.timeline.reader import HistoryReader


class VersionIndex:
    """The version keys of one document, in number order: all keys, or the keys of a slice.

    A number occurs twice, with different moments, if a producer used it twice.
    """

    def __init__(self, keys: Sequence[VersionKey]) -> None:
        self._keys = sorted(keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionIndex) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(tuple(self._keys))

    @property
    def newest(self) -> VersionKey:
        return self._keys[-1]

    @property
    def lowest(self) -> VersionKey:
        return self._keys[0]

    @cached_property
    def has_trusted_times(self) -> bool:
        """Whether the moments of the versions grow with their numbers.

        A version may be up to CLOCK_TOLERANCE earlier than a version with a lower number.
        """
        newest = FIRST.updated_at
        for key in self._keys:
            if newest - key.updated_at > CLOCK_TOLERANCE:
                return False
            newest = max(newest, key.updated_at)
        return True

    def find_current(self, moment: datetime) -> VersionKey | None:
        """Return the newest version written at or before `moment`, or None before the first."""
        candidates = (key for key in reversed(self._keys) if key.updated_at <= moment)
        return next(candidates, None)

    def find_previous(self, key: VersionKey) -> VersionKey | None:
        """Return the key with the next lower version number, or None if there is none.

        If a producer used that number twice, several keys have it. Return the latest of them that
        is not later than `key`. If all of them are later, return the earliest.
        """
        index = bisect_left(self._keys, (key.version,))
        if index == 0:
            return None
        lower = self._keys[index - 1]
        if index > 1 and self._keys[index - 2].version == lower.version:
            same_number = self.list_with_number(lower.version)
            not_later = (
                candidate
                for candidate in reversed(same_number)
                if candidate.updated_at <= key.updated_at
            )
            return next(not_later, same_number[0])
        return lower

    def find_after_gap(self, version: int) -> VersionKey | None:
        """Return the lowest key above the number `version`, if numbers in between are missing.

        Return None if no number is missing in between, or if there is no higher key.
        """
        index = bisect_left(self._keys, (version + 1,))
        next_key = self._keys[index] if index < len(self._keys) else None
        return next_key if next_key and next_key.version > version + 1 else None

    def find_above(self, key: VersionKey | None) -> VersionKey | None:
        """Return the lowest key with a higher number than `key`, or None if there is none.

        If `key` is None, return the lowest key of the index.
        """
        index = bisect_left(self._keys, (key.version + 1,)) if key else 0
        return self._keys[index] if index < len(self._keys) else None

    def descend_from(self, key: VersionKey) -> Iterator[VersionKey]:
        """Generate this key, then its previous key, and so on down.

        If the index does not have this key, begin with the highest key below it.
        """
        index = bisect_right(self._keys, key)
        lower = self._keys[index - 1] if index else None
        while lower is not None:
            yield lower
            lower = self.find_previous(lower)

    def has_certain_previous(self, key: VersionKey) -> bool:
        """Return whether `find_previous` certainly finds the previous key among all keys.

        The index may have only a slice of the document's keys. The previous key is certain if its
        number is exactly one lower and its moment is not later: then no key outside the slice can
        lie between the two. The key of version 0 certainly has no previous key.
        """
        if (previous := self.find_previous(key)) is None:
            return key.version == 0
        return previous.version == key.version - 1 and previous.updated_at <= key.updated_at

    def list_with_number(self, version: int) -> Sequence[VersionKey]:
        """Return all keys with this number: several if a producer used the number again."""
        start = bisect_left(self._keys, (version,))
        return self._keys[start : bisect_left(self._keys, (version + 1,))]


def generate_pairs(
    reader: HistoryReader,
    refs: Sequence[VersionRef],
    indexes: Mapping[EntityRef, VersionIndex],
    rows_read: Mapping[VersionRef, VersionRow] = MappingProxyType({}),
    *,
    skip_damaged: bool = False,
) -> Iterator[list[VersionWithPrevious]]:
    """Generate the versions `refs` in their order, in batches, each with its previous version.

    One query reads the snapshots of a batch: BATCH_VERSIONS, or fewer if they would exceed
    READ_BYTES. Versions that retention has just removed are left out.

    Args:
        indexes: For each document in `refs`, its version keys.
        rows_read: Versions that the caller has read already. If no other versions are needed, no
            query runs.
        skip_damaged: Leave out versions that cannot be read, and record them in
            HistoryReader.damaged. Also leave out versions that would be compared with them. False:
            a version that cannot be read raises an error.
    """
    refs_to_pair, count, rows = list(refs), budget.BATCH_VERSIONS, dict(rows_read)
    while refs_to_pair:
        pairs = [(ref, _find_previous_ref(ref, indexes)) for ref in refs_to_pair[:count]]
        needed_refs = dict.fromkeys(ref for pair in pairs for ref in pair if ref is not None)
        ready_count = len(pairs)
        if missing_refs := [ref for ref in needed_refs if ref not in rows]:
            fetched, unread = _fetch_versions(reader, missing_refs, skip_damaged=skip_damaged)
            rows = {ref: rows[ref] for ref in needed_refs if ref in rows} | fetched
            if unread:
                ready_count = next(
                    position for position, pair in enumerate(pairs) if not unread.isdisjoint(pair)
                )
        # PostgreSQL computes the size of every snapshot that a query asks for, even if it does not
        # send the snapshot. So if snapshots are large, the next query asks for fewer.
        refs_to_pair, count = (
            refs_to_pair[ready_count:],
            min(budget.BATCH_VERSIONS, 2 * max(1, ready_count)),
        )
        if batch := [
            VersionWithPrevious(
                rows[ref],
                rows.get(previous) if previous else None,
                indexes[ref.entity_ref].has_trusted_times,
            )
            for ref, previous in pairs[:ready_count]
            if ref in rows and not (previous and DamagedRef(*previous) in reader.damaged)
        ]:
            yield batch


class _VersionsByRef(NamedTuple):
    """The versions that one query read, as the viewer may see them."""

    rows: dict[VersionRef, VersionRow]
    unread: set[VersionRef]  # versions that did not fit into the query


def _fetch_versions(
    reader: HistoryReader, refs: Sequence[VersionRef], *, skip_damaged: bool
) -> _VersionsByRef:
    source = reader.tolerant_source if skip_damaged else reader.source
    fetched = reader.policy.release(source.fetch_versions(refs))
    rows = {row.ref: row for row in reader.policy.apply(fetched.rows)}
    return _VersionsByRef(rows, set(fetched.unread))


def fetch_all_versions(
    reader: HistoryReader, refs: Iterable[VersionRef], *, skip_damaged: bool = False
) -> dict[VersionRef, VersionRow]:
    """Return the requested versions that are still stored. Runs as many queries as needed.

    Args:
        skip_damaged: Leave out versions that cannot be read, and record them in
            HistoryReader.damaged. False: such a version raises an error.
    """
    rows: dict[VersionRef, VersionRow] = {}
    refs_to_read = list(refs)
    count = len(refs_to_read)
    while refs_to_read:
        fetched, unread = _fetch_versions(reader, refs_to_read[:count], skip_damaged=skip_damaged)
        refs_to_read = [*(ref for ref in refs_to_read if ref in unread), *refs_to_read[count:]]
        count = max(1, 2 * len(fetched))
        rows |= fetched
    return rows


def fetch_keys(
    reader: HistoryReader, entity: EntityKind, ids: Collection[str]
) -> dict[str, list[VersionKey]]:
    """Return the keys of all versions of these documents, ascending.

    Documents without a version are left out.
    """
    return reader.policy.release(reader.source.fetch_keys(entity, ids))


def fetch_members(reader: HistoryReader, application: str) -> dict[EntityRef, list[VersionKey]]:
    """Return the version keys of an application, and of each child with a version that names it.

    A document that cannot be read is left out, and recorded in HistoryReader.damaged.
    """
    return reader.policy.release(reader.tolerant_source.fetch_members(application))


def _find_previous_ref(
    ref: VersionRef, indexes: Mapping[EntityRef, VersionIndex]
) -> VersionRef | None:
    previous = indexes[ref.entity_ref].find_previous(ref.key)
    return None if previous is None else VersionRef(ref.entity, ref.id, previous)


@dataclass(frozen=True, slots=True)
class EntityVersions:
    """All version keys of one document, and some of its versions, loaded by one query."""

    reader: HistoryReader
    entity: EntityKind
    id: str
    keys: VersionIndex
    rows: Mapping[VersionRef, VersionRow]

    @classmethod
    def load(
        cls,
        reader: HistoryReader,
        entity: EntityKind,
        id: str,
        limits: Sequence[VersionKey] = (),
        count: int = 0,
    ) -> EntityVersions:
        """Load all version keys, and the newest `count` versions up to each of `limits`.

        Loads the timeline of the old service too. Runs one query.

        Raises:
            NoVersionError: There is no version of the document.
        """
        if is_storable_id(id):
            reader.shown_old_service.load_shown_timeline(entity, id)
            policy = reader.policy
            newest = policy.release(reader.source.fetch_newest(entity, id, limits, count))
            rows = {row.ref: row for row in policy.apply(newest.rows)}
            if newest.keys:
                return cls(reader, entity, id, VersionIndex(newest.keys), rows)
        raise make_unknown_error(entity, id)

    def generate_pairs(self, keys: Iterable[VersionKey]) -> Iterator[list[VersionWithPrevious]]:
        """Generate the versions with these keys, each with its previous version, in batches."""
        entity_ref = EntityRef(self.entity, self.id)
        refs = [VersionRef(self.entity, self.id, key) for key in keys]
        return generate_pairs(self.reader, refs, {entity_ref: self.keys}, self.rows)

    def read_pairs(self, *keys: VersionKey) -> list[VersionWithPrevious]:
        """Return the versions with these keys, each with its previous version."""
        return list(chain.from_iterable(self.generate_pairs(keys)))

    def read_lowest(self) -> VersionWithPrevious | None:
        """Return the version with the lowest stored number.

        None if retention removed it after the keys were read.
        """
        return next(iter(self.read_pairs(self.keys.lowest)), None)


def descend_versions(
    reader: HistoryReader, entity: EntityKind, id: str, start: VersionKey = LAST
) -> Iterator[VersionWithPrevious]:
    """Generate the versions of a document in descending order, each with its previous version.

    The previous version in a pair is the version of the next pair. If a producer used a number
    twice, only one of the two versions is generated: the one that `find_previous` chooses.

    Args:
        start: The first version to generate. If the document does not have it, begin with the
            highest version below it.

    Raises:
        NoVersionError: The document has no version.
    """
    document = EntityVersions.load(reader, entity, id, [start], budget.BATCH_VERSIONS + 1)
    for pair in chain.from_iterable(document.generate_pairs(document.keys.descend_from(start))):
        yield pair
        if pair.previous is None:
            return
