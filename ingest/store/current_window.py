"""The days that the settings ask for, now."""

from __future__ import annotations

from django.conf import settings

from history import clock
from history.window import Window


def current() -> Window:
    """The window at this moment."""
    annals = settings.ANNALS
    return Window.at(clock.now(), annals.retention_days, annals.ahead_days)
