"""What is no longer in the store because it is older than retention, and how we know."""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.conf import settings

from history.exactjson import Json
from history.record import ChangeType
from history.timeline.versions import Older
from history.window import Window


def start() -> datetime:
    """The first moment of the days that are kept, now; what is older may be gone any time."""
    window = Window.at(datetime.now(UTC), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)


def older(version: int, kind: int, snapshot: Json) -> Older | None:
    """Why the store has no version below this one, its lowest; None if there never was any.

    The store forgets what it removed, so the snapshot is the witness: an entity that was created
    before retention's start had versions then.
    """
    if version == 0 or kind == ChangeType.CREATE:
        return None
    created = _created(snapshot)
    if created is None:
        return Older.UNKNOWN
    return Older.REMOVED if created < start() else Older.NEVER_ARRIVED


def _created(snapshot: Json) -> datetime | None:
    """/createdAt as a moment; without an offset it is UTC, as everywhere in the messages."""
    value = snapshot.get("createdAt") if isinstance(snapshot, dict) else None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None
