"""The state of the inbox in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from outbox.inbox.status import HandlerStatus
from outbox.metrics import Metric, write


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
