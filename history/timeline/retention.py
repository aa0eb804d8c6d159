"""What is no longer in the store because it is older than retention, and how we know."""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.conf import settings

from history import clock
from history.archive import index
from history.entities import Entity
from history.exactjson import Json
from history.record import ChangeType
from history.timeline.rows import Row
from history.timeline.versions import Older
from history.window import Window


def start() -> datetime:
    """The first moment of the days that are kept, now; what is older may be gone any time."""
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)


def older(entity: Entity, row: Row, snapshot: Json) -> Older | None:
    """Why the store has no version below this one, its lowest; None if there never was any.

    The store forgets what it removed, so the snapshot is the witness: an entity that was created
    before retention's start had versions then. One query where there is an archive.
    """
    if row.version == 0 or row.type == ChangeType.CREATE:
        return None
    created = _created(snapshot)
    if created is not None and created >= start():
        return Older.NEVER_ARRIVED
    if settings.ANNALS.archive_url and index.may_have(entity, row.id):
        return Older.ARCHIVED
    return Older.UNKNOWN if created is None else Older.REMOVED


def _created(snapshot: Json) -> datetime | None:
    """/createdAt as a moment; without an offset it is UTC, as everywhere in the messages."""
    value = snapshot.get("createdAt") if isinstance(snapshot, dict) else None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None
