"""What waits, what failed and what is dead: read from the tables, for metrics and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import connections

from outbox.inbox.models import State

_WAITING = """
SELECT handler, state, count(*),
    greatest(extract(epoch FROM clock_timestamp() - min(received_at)), 0)::float8
FROM inbox_message GROUP BY handler, state ORDER BY handler, state
"""
_TALLY = """
INSERT INTO inbox_tally AS t (handler, what, times)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS n (handler, what, times)
ORDER BY handler, what
ON CONFLICT (handler, what) DO UPDATE SET times = t.times + excluded.times
"""
_FAILURE = "failure "


@dataclass(slots=True)
class HandlerStatus:
    """states: messages that are not processed, by state. oldest_seconds: how long the oldest of
    them is here. counts, ever: stored, repeated, attempts, done, dead. failures: by reason,
    ever."""

    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(State.values, 0))
    oldest_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)


def read(using: str) -> dict[str, HandlerStatus]:
    """The state of the inbox in a database, by handler."""
    found: dict[str, HandlerStatus] = {}
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT handler, what, times FROM inbox_tally ORDER BY handler, what")
        for handler, what, times in cursor.fetchall():
            status = found.setdefault(handler, HandlerStatus())
            if what.startswith(_FAILURE):
                status.failures[what.removeprefix(_FAILURE)] = times
            else:
                status.counts[what] = times
        cursor.execute(_WAITING)
        for handler, state, count, seconds in cursor.fetchall():
            status = found.setdefault(handler, HandlerStatus())
            status.states[state] = count
            status.oldest_seconds = max(status.oldest_seconds, seconds)
    return dict(sorted(found.items()))


def add(counts: Mapping[tuple[str, str], int], using: str) -> None:
    """Add to the counts of all consumers, by handler and what."""
    if counts:
        handlers, whats = zip(*counts, strict=True)
        with connections[using].cursor() as cursor:
            cursor.execute(_TALLY, [list(handlers), list(whats), list(counts.values())])
