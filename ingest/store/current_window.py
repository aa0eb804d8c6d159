"""The days that the settings ask for, now."""

from __future__ import annotations

from django.conf import settings

from history import clock
from history.window import Window
from ingest.store.ledger import Connection


def current() -> Window:
    """The window at this moment, by the clock of this machine."""
    annals = settings.ANNALS
    return Window.at(clock.now(), annals.retention_days, annals.ahead_days)


def kept(connection: Connection) -> Window:
    """The window at this moment, by the earlier of the clocks of this machine and of the database
    server. What is before it may be lost for good: no wrong clock may decide that alone."""
    annals = settings.ANNALS
    return Window.at(clock.earlier(connection), annals.retention_days, annals.ahead_days)
