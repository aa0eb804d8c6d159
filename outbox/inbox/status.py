"""The status of an inbox, for metrics and for people: messages that wait, failed or are dead."""

from collections.abc import Iterator, Mapping
from typing import Any

from django.db import connections

from outbox.inbox.models import WaitingState
from outbox.operations.status import FAILURE_PREFIX, format_metric

_WAITING = """
SELECT handler, state, count(*),
    greatest(extract(epoch FROM clock_timestamp() - min(received_at)), 0)::float8
FROM inbox_message GROUP BY handler, state ORDER BY handler, state
"""
_ADD_COUNTS = """
INSERT INTO inbox_tally AS t (handler, what, times)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS n (handler, what, times)
ORDER BY handler, what
ON CONFLICT (handler, what) DO UPDATE SET times = t.times + excluded.times
"""


def read_status(using: str) -> dict[str, dict[str, Any]]:
    """Return the status of the inbox by handler.

    Returns:
        A dictionary for each handler, with these values:

        states: The number of unprocessed messages by state.
        oldest_seconds: The age of the oldest unprocessed message.
        stored, repeated, done, dead: How many messages were stored, repeated, processed or became
            dead letters since the inbox exists.
        attempts: How many attempts began since the inbox exists.
        failures: How many attempts failed since the inbox exists, by reason.
    """
    status_by_handler: dict[str, dict[str, Any]] = {}

    def get_status(handler: str) -> dict[str, Any]:
        empty = {
            "states": dict.fromkeys(WaitingState.values, 0),
            "oldest_seconds": 0.0,
            **dict.fromkeys(("stored", "repeated", "attempts", "done", "dead"), 0),
            "failures": {},
        }
        return status_by_handler.setdefault(handler, empty)

    with connections[using].cursor() as cursor:
        cursor.execute("SELECT handler, what, times FROM inbox_tally ORDER BY handler, what")
        for handler, counter, times in cursor.fetchall():
            if counter.startswith(FAILURE_PREFIX):
                get_status(handler)["failures"][counter.removeprefix(FAILURE_PREFIX)] = times
            else:
                get_status(handler)[counter] = times
        cursor.execute(_WAITING)
        for handler, state, count, seconds in cursor.fetchall():
            status = get_status(handler)
            status["states"][state] = count
            status["oldest_seconds"] = max(status["oldest_seconds"], seconds)
    return dict(sorted(status_by_handler.items()))


def add_counts(counts: Mapping[tuple[str, str], int], using: str) -> None:
    """Add numbers to the counts that all consumers share.

    Args:
        counts: The numbers, by handler and name of the count.
    """
    if counts:
        handlers, counters = zip(*counts, strict=True)
        with connections[using].cursor() as cursor:
            cursor.execute(_ADD_COUNTS, [list(handlers), list(counters), list(counts.values())])


_METRICS = {
    "oldest_seconds": (
        "inbox_oldest_message_seconds",
        "How long ago the oldest unprocessed message was received.",
    ),
    "stored": ("inbox_stored_total", "Messages that came from Kafka."),
    "repeated": ("inbox_repeated_total", "Messages that came again and were skipped."),
    "attempts": ("inbox_attempts_total", "Attempts that began."),
    "done": ("inbox_processed_total", "Messages that were processed."),
    "dead": ("inbox_dead_letters_total", "Messages that became dead letters."),
}


def format_metrics(using: str) -> Iterator[str]:
    """Yield the status as metrics in Prometheus' text format."""
    status_by_handler = read_status(using)
    for key, (name, text) in _METRICS.items():
        yield format_metric(
            name,
            text,
            [
                ({"handler": handler}, status_by_handler[handler][key])
                for handler in status_by_handler
            ],
        )
    states = _list_samples(status_by_handler, "states", "state")
    yield format_metric("inbox_messages", "Messages that are not processed, by state.", states)
    failures = _list_samples(status_by_handler, "failures", "reason")
    text = "Attempts that failed, by the class of the error."
    yield format_metric("inbox_failures_total", text, failures)


def _list_samples(
    status_by_handler: Mapping[str, Mapping[str, Any]], key: str, label: str
) -> list[tuple[dict[str, str], float]]:
    return [
        ({"handler": handler, label: name}, count)
        for handler, status in status_by_handler.items()
        for name, count in status[key].items()
    ]
