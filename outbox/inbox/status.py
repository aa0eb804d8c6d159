"""What waits, what failed and what is dead: read from the tables, for metrics and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db import connections

from outbox.inbox.models import State
from outbox.status import Metric, write

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


def render(status: Mapping[str, HandlerStatus]) -> str:
    """One text for all metrics."""

    def counted(what: str) -> list[tuple[dict[str, object], float]]:
        return [({"handler": name}, each.counts.get(what, 0)) for name, each in status.items()]

    metrics: list[Metric] = [
        (
            "inbox_messages", "gauge", "Messages that are not processed, by state.",
            [
                ({"handler": name, "state": state}, count)
                for name, each in status.items()
                for state, count in each.states.items()
            ],
        ),
        (
            "inbox_oldest_message_seconds", "gauge",
            "How long the oldest message that is not processed is here.",
            [({"handler": name}, each.oldest_seconds) for name, each in status.items()],
        ),
        ("inbox_stored_total", "counter", "Messages that came from Kafka.", counted("stored")),
        (
            "inbox_repeated_total", "counter", "Messages that came again and were skipped.",
            counted("repeated"),
        ),
        ("inbox_attempts_total", "counter", "Attempts that began.", counted("attempts")),
        ("inbox_processed_total", "counter", "Messages that were processed.", counted("done")),
        ("inbox_dead_letters_total", "counter", "Messages that became dead.", counted("dead")),
        (
            "inbox_failures_total", "counter", "Attempts that failed, by the class of the error.",
            [
                ({"handler": name, "reason": reason}, times)
                for name, each in status.items()
                for reason, times in each.failures.items()
            ],
        ),
    ]  # fmt: skip
    return write(metrics)
