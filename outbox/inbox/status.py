"""What waits, what failed and what is dead: read from the tables, for metrics and for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.db import connections

from outbox.inbox.models import WaitingState
from outbox.status import FAILURE, metric

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


def read(using: str) -> dict[str, dict[str, Any]]:
    """The state of the inbox, by handler. states: messages that are not processed, by state.
    oldest_seconds: how long the oldest is here. stored, repeated, attempts, done, dead: ever.
    failures: by reason, ever."""
    found: dict[str, dict[str, Any]] = {}

    def of(handler: str) -> dict[str, Any]:
        empty = {
            "states": dict.fromkeys(WaitingState.values, 0),
            "oldest_seconds": 0.0,
            **dict.fromkeys(("stored", "repeated", "attempts", "done", "dead"), 0),
            "failures": {},
        }
        return found.setdefault(handler, empty)

    with connections[using].cursor() as cursor:
        cursor.execute("SELECT handler, what, times FROM inbox_tally ORDER BY handler, what")
        for handler, what, times in cursor.fetchall():
            if what.startswith(FAILURE):
                of(handler)["failures"][what.removeprefix(FAILURE)] = times
            else:
                of(handler)[what] = times
        cursor.execute(_WAITING)
        for handler, state, count, seconds in cursor.fetchall():
            status = of(handler)
            status["states"][state] = count
            status["oldest_seconds"] = max(status["oldest_seconds"], seconds)
    return dict(sorted(found.items()))


def add(counts: Mapping[tuple[str, str], int], using: str) -> None:
    """Add to the counts of all consumers, by handler and what."""
    if counts:
        handlers, whats = zip(*counts, strict=True)
        with connections[using].cursor() as cursor:
            cursor.execute(_TALLY, [list(handlers), list(whats), list(counts.values())])


_METRICS = {
    "oldest_seconds": (
        "inbox_oldest_message_seconds",
        "How long the oldest message that is not processed is here.",
    ),
    "stored": ("inbox_stored_total", "Messages that came from Kafka."),
    "repeated": ("inbox_repeated_total", "Messages that came again and were skipped."),
    "attempts": ("inbox_attempts_total", "Attempts that began."),
    "done": ("inbox_processed_total", "Messages that were processed."),
    "dead": ("inbox_dead_letters_total", "Messages that became dead."),
}


def metrics(using: str) -> Iterator[str]:
    """The state as metrics."""
    found = read(using)
    for key, (name, text) in _METRICS.items():
        yield metric(name, text, [({"handler": each}, found[each][key]) for each in found])
    states = _samples(found, "states", "state")
    yield metric("inbox_messages", "Messages that are not processed, by state.", states)
    failures = _samples(found, "failures", "reason")
    text = "Attempts that failed, by the class of the error."
    yield metric("inbox_failures_total", text, failures)


def _samples(
    found: Mapping[str, Mapping[str, Any]], key: str, label: str
) -> list[tuple[dict[str, str], float]]:
    return [
        ({"handler": handler, label: name}, count)
        for handler, each in found.items()
        for name, count in each[key].items()
    ]
