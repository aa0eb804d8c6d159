"""Who set the values of an entity: each leaf of its newest version, or all values of one field."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from history.catalogue import labels
from history.catalogue.labels import FieldText
from history.common import deadline
from history.diff import MISSING, MaybeJson, find_values, is_different
from history.diff.blame import BlameWalk
from history.diff.leaves import generate_leaves
from history.documents.exactjson import Json, SnapshotCache, dumps
from history.kinds.entities import EntityKind
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
    """A leaf of the newest snapshot, and who last changed it. Paths are as in SnapshotLeaf."""

    path: str
    key_path: str
    history_path: str
    value: Json
    label: FieldText | None
    origin: ValueOrigin


@dataclass(frozen=True, slots=True)
class BlameResult:
    """The newest version of an entity, and its leaves in document order."""

    newest: Version
    leaves: tuple[BlamedLeaf, ...]


def blame_leaves(reader: HistoryReader, entity: EntityKind, id: str) -> BlameResult:
    """Return the newest version of an entity and who last changed each leaf of it.

    Reads older versions until every leaf is blamed.

    Raises:
        NoVersionError: There is nothing of the entity.
    """
    pairs = descend_versions(reader, entity, id)
    newest_pair = pair = next(pairs, None)
    if newest_pair is None or pair is None:  # retention has just removed it
        raise make_unknown_error(entity, id)
    snapshots = SnapshotCache(parse_snapshot)
    data = snapshots.parse(newest_pair.row.data)
    blamed: dict[str, VersionWithPrevious] = {}
    identity = compose.get_identity(entity)
    walk: BlameWalk[VersionWithPrevious] = BlameWalk(data, identity, blamed.__setitem__)
    while pair.previous is not None:
        deadline.check()
        walk.blame_version(snapshots.parse(pair.previous.data, pair.row.data), pair)
        if walk.is_done:
            break
        pair = next(pairs, VersionWithPrevious(pair.previous, None))
    walk.blame_rest(pair)
    origins = compose.find_origins(blamed.values())
    catalogue = labels.get_catalogue()
    blamed_leaves = tuple(
        BlamedLeaf(
            *leaf,
            catalogue.find(entity.name, leaf.path),
            origins[blamed[leaf.path].row.ref],
        )
        for leaf in generate_leaves(data, identity)
    )
    return BlameResult(
        compose.compose_versions(reader, [newest_pair], frozenset())[0], blamed_leaves
    )


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A value that a field had."""

    value: MaybeJson  # MISSING if there was no such field
    origin: ValueOrigin  # the version that set it
    until: datetime | None  # when the next value was set; None for the newest


@dataclass(frozen=True, slots=True)
class FieldHistory:
    """The values of a field, newest first.

    A page that its budget ended may be short or empty and still have a token.
    """

    label: FieldText | None
    values: tuple[FieldValue, ...]
    next_token: str | None  # None at the end


def fetch_field_history(
    reader: HistoryReader,
    entity: EntityKind,
    id: str,
    path: str,
    size: int = DEFAULT_PAGE_SIZE,
    page_token: str | None = None,
) -> FieldHistory:
    """Return the values that one field had, since when and by whom, in the order of version
    numbers.

    Args:
        path: A pointer or a key path that names one field.

    Raises:
        BadParameterError: The path is wrong, or the token.
        NoVersionError: There is nothing of the entity.
    """
    reader.check_path([entity], path)
    if "*" in path.split("/"):
        raise BadParameterError("path", _("must name one field; * would name many"))
    binding = ("values", entity.name, id, path)
    start, until, mark = LAST, None, None
    if page_token is not None:
        version, moment, until, mark, *_rest = (*read_token(binding, page_token), None)
        start = VersionKey(version, moment)
    label = labels.get_catalogue().find(entity.name, path)
    source = reader.choose_page_source(entity, id, page_token, mark)
    if source.is_for_later:  # which value is the next one is not known
        return FieldHistory(label, (), page_token)
    try:
        scan = _scan_field(descend_versions(source.reader, entity, id, start), path, size, until)
    except NoVersionError:
        if page_token is None:
            raise
        scan = _FieldScan([], None, None)  # retention has removed the rest
    origins = compose.find_origins([pair for pair, _, _ in scan.values])
    next_position = (*scan.following, scan.until, source.mark) if scan.following else None
    return FieldHistory(
        label=label,
        values=tuple(
            FieldValue(value, origins[pair.row.ref], to) for pair, value, to in scan.values
        ),
        next_token=issue_token(binding, next_position) if next_position else None,
    )


class _FieldScan(NamedTuple):
    """What one page found: the versions that set the value."""

    # each version with the value and the moment of the next value
    values: list[tuple[VersionWithPrevious, MaybeJson, datetime | None]]
    following: VersionKey | None  # where the next page begins
    until: datetime | None


def _scan_field(
    pairs: Iterable[VersionWithPrevious], path: str, size: int, until: datetime | None
) -> _FieldScan:
    values: list[tuple[VersionWithPrevious, MaybeJson, datetime | None]] = []
    budget_left, snapshots = budget.PageBudget(), SnapshotCache(parse_snapshot)
    for scanned, pair in enumerate(pairs):
        deadline.check()
        data = snapshots.parse(pair.row.data)
        previous = snapshots.parse(pair.previous.data, pair.row.data) if pair.previous else MISSING
        changed = is_different(path, previous, data, compose.get_identity(pair.entity))
        is_spent = scanned and (scanned == budget.SCAN_VERSIONS or budget_left.is_late)
        if is_spent or (changed and len(values) == size):
            return _FieldScan(values, pair.row.key, until)
        if changed:
            value = next((value for _, value in find_values(path, data)), MISSING)
            if (
                not budget_left.try_spend(len(dumps(value)) if value is not MISSING else 0)
                and values
            ):
                return _FieldScan(values, pair.row.key, until)
            values.append((pair, value, until))
            until = pair.row.updated_at
    return _FieldScan(values, None, until)
