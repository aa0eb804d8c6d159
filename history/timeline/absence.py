"""Why a version is not in the store, as far as what is left shows it.

The store has no record of what retention removed. Its witnesses are the snapshot's createdAt, the
times of the versions that are left, and the list of archived days
(docs/decisions/0018-missing-versions.md). What is in quarantine is known too: history.quarantined.
"""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.conf import settings
from django.utils.translation import gettext as _

from history.base import clock
from history.daily.window import Window
from history.entities import Entity
from history.record import ChangeType
from history.timeline.gate import Reader
from history.timeline.query import (
    Absence,
    Filters,
    NotFoundError,
    NoVersionError,
    OlderThanRetentionError,
)
from history.versions import CLOCK_TOLERANCE, Key, Pair, parse


def kept_from() -> datetime:
    """The first moment of the days that are kept, now; what is older may be gone any time."""
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)


def check_retention(filters: Filters) -> None:
    """Raise OlderThanRetentionError where only days before retention are asked for."""
    start = kept_from()
    if filters.until is not None and filters.until <= start:
        text = _("versions before {day} are not kept")
        raise OlderThanRetentionError(text.format(day=f"{start:%Y-%m-%d}"))


def below(reader: Reader, pair: Pair) -> Absence | None:
    """Why the store has no version below this one, its lowest; None if there never was one. One
    query where there is an archive."""
    entity, row = pair.entity, pair.row
    first = row.type == ChangeType.CREATE
    if row.version == 0 or (first and row.version == 1):
        return None
    if first:  # deleted and created again: createdAt is about the second life
        return _in_archive(reader, entity, row.id) or Absence.UNKNOWN
    created, start = _created(pair), _start(reader, entity)
    if created is not None and created >= start + CLOCK_TOLERANCE and pair.trusted:
        return _never(reader)
    archived = _in_archive(reader, entity, row.id)
    if archived or created is None or created >= start - CLOCK_TOLERANCE:
        return archived or Absence.UNKNOWN
    return Absence.REMOVED


def between(reader: Reader, pair: Pair) -> Absence | None:
    """Why versions between a version and the one before it are missing; None if none is."""
    row, before = pair.row, pair.before
    if before is None or before.version >= row.version - 1:
        return None
    return above(reader, pair.entity, before.key, pair.trusted)


def above(reader: Reader, entity: Entity, key: Key, trusted: bool) -> Absence:
    """Why versions right above a key are missing.

    A version that is dated after the one before it stays in the store as long as that one. So it
    never arrived, unless clocks were wrong: where the one before is near the start of retention, or
    where the times of the entity contradict its numbers.
    """
    kept = key.updated_at >= _start(reader, entity) + CLOCK_TOLERANCE
    return _never(reader) if kept and trusted else Absence.UNKNOWN


def before(reader: Reader, pair: Pair, moment: datetime) -> Absence | None:
    """Why the store has nothing of an entity at a moment before this version, its lowest; None if
    the entity did not exist then."""
    created = _created(pair)
    if created is not None and moment < created and pair.row.type != ChangeType.CREATE:
        return None
    return below(reader, pair)


def error(why: Absence | None, name: str, version: int | None = None) -> NotFoundError:
    """The exception for a version that is not there. name: what was asked for. version: its number
    where the store has others of the entity."""
    if why is not None and why.was_kept:
        text = _("{name}: older than what is kept")
        if why is Absence.UNKNOWN:
            text = _("{name}: not in the store; retention may have removed it")
        return OlderThanRetentionError(text.format(name=name), version, why)
    return NoVersionError(_("the store has no {name}").format(name=name), version, why)


def _never(reader: Reader) -> Absence:
    """It never arrived; but as long as the old service does not answer, it may have it."""
    return Absence.UNKNOWN if reader.old.failed else Absence.NEVER_ARRIVED


def _start(reader: Reader, entity: Entity) -> datetime:
    """The first moment of what is read: of the days that are kept, or of the archived ones."""
    oldest = reader.archive.oldest_day(entity) if reader.archive else None
    kept = kept_from()
    return kept if oldest is None else min(kept, datetime.combine(oldest, time(), UTC))


def _in_archive(reader: Reader, entity: Entity, id: str) -> Absence | None:
    """Whether the archive may have it, unless it is read already."""
    archive = None if reader.archive else reader.open_archive()
    return Absence.ARCHIVED if archive and archive.may_have(entity, id) else None


def _created(pair: Pair) -> datetime | None:
    """When it was created; without an offset it is UTC, as everywhere in the messages."""
    snapshot = parse(pair.row.data)
    value = snapshot.get(pair.entity.created_at) if isinstance(snapshot, dict) else None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None
