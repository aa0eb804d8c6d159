"""Finds the version that last changed a leaf of the newest snapshot, or gave a field a value.

Begin with `blame_leaves` and `fetch_field_history`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from history.common import deadline
from history.diff import MISSING, MaybeJson, find_values, is_different
from history.diff.blame import BlameWalk
from history.diff.leaves import generate_leaves
from history.documents.exactjson import Json, SnapshotCache, dumps
from history.kinds.entities import EntityKind
from history.store.catalogue import labels
from history.store.catalogue.labels import FieldText
from history.store.versions import (
    LAST,
    VersionKey,
    VersionWithPrevious,
    parse_snapshot,
)
from history.timeline import budget, compose
from history.timeline.compose import ValueOrigin, Version
from history.timeline.page_token import issue_token, read_token
from history.timeline.query import (
    DEFAULT_PAGE_SIZE,
    BadParameterError,
    NoVersionError,
    make_unknown_error,
)
from history.timeline.reader import HistoryReader
from history.timeline.version_index import descend_versions


@dataclass(frozen=True, slots=True)
class BlamedLeaf:
    """A leaf of the newest snapshot, and the version that last changed it. See SnapshotLeaf."""

    path: str
    key_path: str
    history_path: str
    value: Json
    label: FieldText | None
    origin: ValueOrigin


@dataclass(frozen=True, slots=True)
class BlameResult:
    """The newest version of a document, and its leaves in the order of the snapshot's text."""

    newest: Version
    leaves: tuple[BlamedLeaf, ...]


def blame_leaves(reader: HistoryReader, entity: EntityKind, id: str) -> BlameResult:
    """Return the newest version of a document, and who last changed each leaf of its snapshot.

    Reads older versions, until it is known for every leaf which version changed it last.

    Raises:
        NoVersionError: There is no version of the document.
    """
    pairs = descend_versions(reader, entity, id)
    newest_pair = pair = next(pairs, None)
    if newest_pair is None or pair is None:  # retention has just removed it
        raise make_unknown_error(entity, id)
    snapshots = SnapshotCache(parse_snapshot)
    data = snapshots.parse(newest_pair.row.data)
    pairs_by_path: dict[str, VersionWithPrevious] = {}
    identity = compose.get_identity(entity)
    walk: BlameWalk[VersionWithPrevious] = BlameWalk(data, identity, pairs_by_path.__setitem__)
    while pair.previous is not None:
        deadline.check()
        walk.blame_version(snapshots.parse(pair.previous.data, pair.row.data), pair)
        if walk.is_done:
            break
        pair = next(pairs, VersionWithPrevious(pair.previous, None))
    walk.blame_rest(pair)
    origins = compose.find_origins(pairs_by_path.values())
    catalogue = labels.get_catalogue()
    blamed_leaves = tuple(
        BlamedLeaf(
            *leaf,
            label=catalogue.find(entity.name, leaf.path),
            origin=origins[pairs_by_path[leaf.path].row.ref],
        )
        for leaf in generate_leaves(data, identity)
    )
    [newest] = compose.compose_versions(reader, [newest_pair], frozenset())
    return BlameResult(newest, blamed_leaves)


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value that a field had."""

    value: MaybeJson  # MISSING if the snapshot did not have the field
    origin: ValueOrigin  # the version that set the value
    until: datetime | None  # when the next value was set; None for the newest value


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """One page of the values that a field had, newest first.

    A page that reaches a limit of size or time has few or no values, and a token for the rest.
    """

    label: FieldText | None
    values: tuple[FieldValue, ...]
    next_token: str | None  # None on the last page


def fetch_field_history(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    path: str,
    size: int = DEFAULT_PAGE_SIZE,
    page_token: str | None = None,
) -> FieldHistory:
    """Return the values that one field had, with the versions that set them.

    The values are in the order of the version numbers, the newest first.

    Args:
        path: A pointer or a key path that names one field.

    Raises:
        BadParameterError: The path or the token is wrong.
        NoVersionError: There is no version of the document.
    """
    reader.check_path([entity], path)
    if "*" in path.split("/"):
        raise BadParameterError("path", _("must name one field; * would name many"))
    binding = ("values", entity.name, id, path)
    start, until, sources_read = LAST, None, None
    if page_token is not None:
        # A token of an earlier release may lack the last value.
        version, moment, until, sources_read, *_rest = (*read_token(binding, page_token), None)
        start = VersionKey(version, moment)
    label = labels.get_catalogue().find(entity.name, path)
    page_reader = reader.choose_page_reader(entity, id, page_token, sources_read)
    if page_reader.is_retry_needed:  # only the old service may know the next value
        return FieldHistory(label, (), page_token)
    try:
        scan = _scan_field(
            descend_versions(page_reader.reader, entity, id, start), path, size, until
        )
    except NoVersionError:
        if page_token is None:
            raise
        scan = _FieldScan([], None, None)  # retention has removed the rest
    origins = compose.find_origins([changed.pair for changed in scan.values])
    next_token = None
    if scan.next_key is not None:
        next_token = issue_token(binding, (*scan.next_key, scan.until, page_reader.sources_read))
    return FieldHistory(
        label=label,
        values=tuple(
            FieldValue(changed.value, origins[changed.pair.row.ref], changed.until)
            for changed in scan.values
        ),
        next_token=next_token,
    )


class _ChangedValue(NamedTuple):
    """A value that a field got, and the version that set it."""

    pair: VersionWithPrevious
    value: MaybeJson
    until: datetime | None  # when the next value was set


class _FieldScan(NamedTuple):
    """The values on one page, and where the next page begins."""

    values: list[_ChangedValue]
    next_key: VersionKey | None  # None on the last page
    until: datetime | None  # when the oldest value of this page was set


def _scan_field(
    pairs: Iterable[VersionWithPrevious], path: str, size: int, until: datetime | None
) -> _FieldScan:
    """Find the versions that changed a field, for one page of values.

    The page ends after `size` values, after SCAN_VERSIONS examined versions, or when it reaches a
    limit of time or of bytes.

    Args:
        pairs: Versions, the newest first.
        size: How many values the page may have, at most.
        until: The moment at which the first value of this page was replaced; None for the first
            page, which begins with the current value.
    """
    values: list[_ChangedValue] = []
    budget_left, snapshots = budget.PageBudget(), SnapshotCache(parse_snapshot)
    for scanned, pair in enumerate(pairs):
        deadline.check()
        data = snapshots.parse(pair.row.data)
        previous = snapshots.parse(pair.previous.data, pair.row.data) if pair.previous else MISSING
        is_changed = is_different(path, previous, data, compose.get_identity(pair.entity))
        is_spent = scanned and (scanned == budget.SCAN_VERSIONS or budget_left.is_late)
        if is_spent or (is_changed and len(values) == size):
            return _FieldScan(values, pair.row.key, until)
        if is_changed:
            value = next((value for _, value in find_values(path, data)), MISSING)
            value_bytes = len(dumps(value)) if value is not MISSING else 0
            if not budget_left.try_spend(value_bytes) and values:
                return _FieldScan(values, pair.row.key, until)
            values.append(_ChangedValue(pair, value, until))
            until = pair.row.updated_at
    return _FieldScan(values, None, until)
