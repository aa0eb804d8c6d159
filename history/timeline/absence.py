"""Explains why a version is not in the store.

The store does not record which versions retention removed. So this module concludes it from
createdAt in the snapshots, from the moments of the remaining versions, and from the list of
archived days (docs/decisions/0018-missing-versions.md). The versions in quarantine are found by
another module, history.store.quarantine_queries.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.conf import settings
from django.utils.translation import gettext as _

from history.common import clock
from history.documents.record import ChangeType
from history.kinds.entities import EntityKind
from history.store.days.window import Window
from history.store.versions import (
    CLOCK_TOLERANCE,
    VersionKey,
    VersionWithPrevious,
    parse_snapshot,
)
from history.timeline.query import (
    Absence,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
    VersionFilters,
)
from history.timeline.reader import HistoryReader


def get_retention_start() -> datetime:
    """Return the first moment that is kept now. `partitions maintain` removes older versions."""
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)


def get_accepted_end() -> datetime:
    """Return the end of the last day for which versions are accepted now.

    This moment is ahead of the clock, because the clock of a producer may be ahead.
    """
    annals = settings.ANNALS
    window = Window.at(clock.now(), annals.retention_days, annals.ahead_days)
    return datetime.combine(window.newest + timedelta(days=1), time(), UTC)


def check_retention(filters: VersionFilters) -> None:
    """Check that the filters select moments that are kept.

    Raises:
        OlderThanRetentionError: All selected moments are before the start of retention.
    """
    start = get_retention_start()
    if filters.until is not None and filters.until <= start:
        text = _("versions before {day} are not kept")
        raise OlderThanRetentionError(text.format(day=f"{start:%Y-%m-%d}"))


def explain_missing_below(reader: HistoryReader, pair: VersionWithPrevious) -> Absence | None:
    """Return why the store lacks the versions below the lowest stored version of a document.

    Runs one query if this installation has an archive.

    Args:
        pair: The stored version with the lowest number. It has no previous version in the store.

    Returns:
        None if there never was a version with a lower number.
    """
    entity, row = pair.entity, pair.row
    is_create = row.type == ChangeType.CREATE
    if row.version == 0 or (is_create and row.version == 1):
        return None
    if is_create:  # deleted and created again: createdAt is about the second life
        return _look_in_archive(reader, entity, row.id) or Absence.UNKNOWN
    created, start = _parse_created_at(pair), _find_first_read_moment(reader, entity)
    if created is not None and created >= start + CLOCK_TOLERANCE and pair.trusted:
        return _assume_never_arrived(reader)
    archived = _look_in_archive(reader, entity, row.id)
    if archived or created is None or created >= start - CLOCK_TOLERANCE:
        return archived or Absence.UNKNOWN
    return Absence.REMOVED


def explain_missing_between(reader: HistoryReader, pair: VersionWithPrevious) -> Absence | None:
    """Return why versions between a version and its previous one are missing.

    Returns:
        None if none are missing.
    """
    row, previous = pair.row, pair.previous
    if previous is None or previous.version >= row.version - 1:
        return None
    return explain_missing_above(reader, pair.entity, previous.key, pair.trusted)


def explain_missing_above(
    reader: HistoryReader, entity: EntityKind, key: VersionKey, has_trusted_times: bool
) -> Absence:
    """Return why the versions with the numbers right above `key` are missing.

    Retention removes older versions first. So if the version with `key` is still kept, the missing
    versions after it never arrived. Two cases are uncertain, because a clock may have been wrong:
    `key` is near the start of retention, or a higher number has an earlier moment.

    Args:
        has_trusted_times: See `VersionIndex.has_trusted_times`.
    """
    is_surely_kept = key.updated_at >= _find_first_read_moment(reader, entity) + CLOCK_TOLERANCE
    return (
        _assume_never_arrived(reader) if is_surely_kept and has_trusted_times else Absence.UNKNOWN
    )


def explain_missing_before(
    reader: HistoryReader, pair: VersionWithPrevious, moment: datetime
) -> Absence | None:
    """Return why the store lacks the version that was current at `moment`.

    Args:
        pair: The stored version with the lowest number. It has no previous version in the store.
        moment: A moment at which no stored version was current.

    Returns:
        None if the document did not exist at that moment.
    """
    created = _parse_created_at(pair)
    if created is not None and moment < created and pair.row.type != ChangeType.CREATE:
        return None
    return explain_missing_below(reader, pair)


def make_not_found_error(
    absence: Absence | None, name: str, version: int | None = None
) -> NotFoundError:
    """Make the error for a version that is not in the store.

    Args:
        absence: Why the version is not in the store; None if it probably never existed.
        name: The text that names the version in the message of the error.
        version: The number of the version; None if the request did not name a number.
    """
    if absence is not None and absence.was_kept:
        text = _("{name}: older than what is kept")
        if absence is Absence.UNKNOWN:
            text = _("{name}: not in the store; retention may have removed it")
        return OlderThanRetentionError(text.format(name=name), version, absence)
    return NoVersionError(_("the store has no {name}").format(name=name), version, absence)


def _assume_never_arrived(reader: HistoryReader) -> Absence:
    """Return NEVER_ARRIVED. If the old service failed, return UNKNOWN: it may have the versions."""
    return Absence.UNKNOWN if reader.old_service.failed else Absence.NEVER_ARRIVED


def _find_first_read_moment(reader: HistoryReader, entity: EntityKind) -> datetime:
    """Return the first moment of the oldest day that this request reads, archived days included."""
    oldest = reader.archive.find_oldest_day(entity) if reader.archive else None
    retention_start = get_retention_start()
    return (
        retention_start
        if oldest is None
        else min(retention_start, datetime.combine(oldest, time(), UTC))
    )


def _look_in_archive(reader: HistoryReader, entity: EntityKind, id: str) -> Absence | None:
    """Return ARCHIVED if the archive may have versions and this request does not read it.

    Otherwise return None.
    """
    archive = None if reader.archive else reader.open_archive()
    return Absence.ARCHIVED if archive and archive.may_have(entity, id) else None


def may_be_archived(reader: HistoryReader, entity: EntityKind, id: str) -> bool:
    """Return whether the archive may have versions of a document that has none in the store.

    If the need-to-know rule limits the viewer, return False: without a version the document's
    application is not known, so the rule cannot decide whether the viewer may see the document.
    """
    archive = reader.open_archive()
    if archive is None or not reader.policy.may_tell_of_archive(entity):
        return False
    return archive.may_have(entity, id)


def _parse_created_at(pair: VersionWithPrevious) -> datetime | None:
    """Return createdAt of the snapshot; None if it is missing or not a moment.

    A moment without an offset is in UTC, as everywhere in messages.
    """
    snapshot = parse_snapshot(pair.row.data)
    value = snapshot.get(pair.entity.created_at) if isinstance(snapshot, dict) else None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None
