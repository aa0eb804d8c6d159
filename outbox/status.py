"""What waits, what failed and who sends: read from the tables, for metrics and for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.db import connections
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from outbox.models import Document

# Two questions, because each has an index.
WAITING = """(
    SELECT * FROM outbox_document WHERE waiting_since IS NOT NULL AND attempts = 0
    UNION ALL SELECT * FROM outbox_document WHERE attempts > 0
)"""
_PENDING = f"""
SELECT count(*), coalesce(sum(version - sent), 0), count(*) FILTER (WHERE attempts > 0),
    coalesce(greatest(extract(epoch FROM clock_timestamp() - min(waiting_since)), 0), 0)::float8
FROM {WAITING} AS d
"""  # noqa: S608 - our own constant
_OWNERS = """
SELECT b.number, r.name FROM outbox_bucket AS b LEFT JOIN outbox_relay AS r ON r.id = b.owner
ORDER BY b.number
"""
FAILURE = "failure "


@dataclass(frozen=True, slots=True)
class Status:
    """The state of an outbox.

    documents, versions: that wait; oldest_seconds: how long the oldest of them does. failed:
    documents whose next version was refused. sent, attempts: versions, ever. failures: by reason,
    ever. owners: relay by bucket, None if nobody has it.
    """

    documents: int
    versions: int
    failed: int
    oldest_seconds: float
    sent: int
    attempts: int
    failures: Mapping[str, int]
    owners: Mapping[int, str | None]


def read(using: str) -> Status:
    """The state of the outbox in a database."""
    with connections[using].cursor() as cursor:
        cursor.execute(_PENDING)
        documents, versions, failed, oldest = cursor.fetchone()
        cursor.execute("SELECT what, times FROM outbox_tally ORDER BY what")
        tally = dict(cursor.fetchall())
        cursor.execute(_OWNERS)
        owners = dict(cursor.fetchall())
    return Status(
        documents,
        int(versions),
        failed,
        oldest,
        tally.get("sent", 0),
        tally.get("attempts", 0),
        {
            what.removeprefix(FAILURE): times
            for what, times in tally.items()
            if what.startswith(FAILURE)
        },
        owners,
    )


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


# Of a row of outbox_document: whether a relay is sending it for longer than a beat.
IN_HAND = (
    "EXISTS (SELECT FROM outbox_relay AS r WHERE jsonb_exists(r.in_hand, outbox_document.key))"
)


class State(TextChoices):
    """New: waits for a relay. Processing: a relay has handed it to Kafka. Done: Kafka confirmed
    it. Failed: Kafka refused it, and it is tried again."""

    NEW = "new", _("New")
    PROCESSING = "processing", _("Processing")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")


def state(document: Document) -> State:
    """Of a document with the annotation `processing` (IN_HAND)."""
    if document.waiting_since is None:
        return State.DONE
    if document.attempts:
        return State.FAILED
    return State.PROCESSING if getattr(document, "processing", False) else State.NEW
