"""The start of the days that are kept."""

from __future__ import annotations

from datetime import UTC, datetime, time

from django.conf import settings

from history import clock
from history.window import Window


def start() -> datetime:
    """The first moment of the days that are kept, now; what is older may be gone any time."""
    window = Window.at(clock.now(), settings.ANNALS.retention_days, 0)
    return datetime.combine(window.oldest, time(), UTC)
