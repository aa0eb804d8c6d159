"""The state of the outbox in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from outbox.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, object], float]


# Name, type, help and samples.
Metric = tuple[str, str, str, Iterable[Sample]]


def render(status: Status) -> str:
    """One text for all metrics."""
    return write(_metrics(status))


def write(metrics: Iterable[Metric]) -> str:
    """Metrics in the text format."""
    return "".join(line for metric in metrics for line in _lines(*metric))


def _metrics(status: Status) -> Iterator[Metric]:
    def one(value: float) -> list[Sample]:
        return [({}, value)]

    yield (
        "outbox_pending_versions", "gauge", "Versions that are not sent yet.",
        one(status.versions),
    )  # fmt: skip
    yield (
        "outbox_pending_documents", "gauge", "Documents with versions that are not sent yet.",
        one(status.documents),
    )  # fmt: skip
    yield (
        "outbox_oldest_pending_seconds", "gauge",
        "How long the oldest version that is not sent waits.", one(status.oldest_seconds),
    )  # fmt: skip
    yield (
        "outbox_failed_documents", "gauge", "Documents whose next version Kafka refused.",
        one(status.failed),
    )  # fmt: skip
    yield "outbox_sent_total", "counter", "Versions that Kafka confirmed.", one(status.sent)
    yield (
        "outbox_attempts_total", "counter", "Versions that were handed to Kafka, each time.",
        one(status.attempts),
    )  # fmt: skip
    yield (
        "outbox_failures_total", "counter", "Versions that were not confirmed, by reason.",
        [({"reason": reason}, times) for reason, times in status.failures.items()],
    )  # fmt: skip
    yield (
        "outbox_bucket_owner", "gauge",
        "1 for each share of the documents and the relay that sends it; 0 if no relay does.",
        [
            ({"bucket": number, "relay": relay or ""}, float(relay is not None))
            for number, relay in status.owners.items()
        ],
    )  # fmt: skip


def _lines(name: str, kind: str, text: str, samples: Iterable[Sample]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
        yield f"{name}{f'{{{inside}}}' if inside else ''} {value}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
