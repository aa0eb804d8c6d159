"""What waits, what failed and who sends: read from the tables, for metrics and for people."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from django.db import connections
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from outbox.models import Document
from outbox.writer import CHANNEL

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
_BUCKETS = """
SELECT coalesce(r.name, 'no relay'), count(*)
FROM outbox_bucket AS b LEFT JOIN outbox_relay AS r ON r.id = b.owner GROUP BY 1 ORDER BY 1
"""
FAILURE = "failure "


def read(using: str) -> dict[str, Any]:
    """The state of an outbox. documents, versions: that wait; oldest_seconds: how long the oldest
    does. failed: documents whose next version was refused. sent, attempts: versions, ever.
    failures: by reason, ever. buckets: how many each relay has, and `no relay`."""
    with connections[using].cursor() as cursor:
        cursor.execute(_PENDING)
        documents, versions, failed, oldest = cursor.fetchone()
        cursor.execute("SELECT what, times FROM outbox_tally ORDER BY what")
        tally = dict(cursor.fetchall())
        cursor.execute(_BUCKETS)
        buckets = dict(cursor.fetchall())
    return {
        "documents": documents,
        "versions": int(versions),
        "failed": failed,
        "oldest_seconds": oldest,
        "sent": tally.get("sent", 0),
        "attempts": tally.get("attempts", 0),
        "failures": {
            what.removeprefix(FAILURE): times
            for what, times in tally.items()
            if what.startswith(FAILURE)
        },
        "buckets": buckets,
    }


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS = {
    "versions": ("outbox_pending_versions", "Versions that are not sent yet."),
    "documents": ("outbox_pending_documents", "Documents with versions that are not sent yet."),
    "oldest_seconds": (
        "outbox_oldest_pending_seconds", "How long the oldest version that is not sent waits.",
    ),
    "failed": ("outbox_failed_documents", "Documents whose next version Kafka refused."),
    "sent": ("outbox_sent_total", "Versions that Kafka confirmed."),
    "attempts": ("outbox_attempts_total", "Versions that were handed to Kafka, each time."),
}  # fmt: skip


def metrics(using: str) -> Iterator[str]:
    """The state as metrics."""
    found = read(using)
    for key, (name, text) in _METRICS.items():
        yield metric(name, text, [({}, found[key])])
    failures = [({"reason": reason}, times) for reason, times in found["failures"].items()]
    yield metric("outbox_failures_total", "Versions that were not confirmed, by reason.", failures)
    buckets = [({"relay": relay}, count) for relay, count in found["buckets"].items()]
    text = "Shares of the documents that each relay sends, and `no relay`."
    yield metric("outbox_buckets", text, buckets)


def metric(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """A metric in Prometheus' text format: with the labels and the value of each sample."""
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels.items())
        lines.append(f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n")
    return "".join(lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# Of a row of outbox_document: whether a relay is sending it for longer than a beat.
IN_HAND = (
    "EXISTS (SELECT FROM outbox_relay AS r WHERE jsonb_exists(r.in_hand, outbox_document.key))"
)


class State(TextChoices):
    """Of what waits. New: for a relay. Processing: a relay has handed it to Kafka. Failed: Kafka
    refused it, and it is tried again."""

    NEW = "new", _("New")
    PROCESSING = "processing", _("Processing")
    FAILED = "failed", _("Failed")


def state(document: Document) -> State:
    """Of a document with the annotation `processing` (IN_HAND)."""
    if document.attempts:
        return State.FAILED
    return State.PROCESSING if getattr(document, "processing", False) else State.NEW


_RETRY = """
WITH retried AS (
    UPDATE outbox_document SET next_attempt_at = clock_timestamp()
    WHERE key = ANY(%s) AND attempts > 0 RETURNING key, bucket
)
SELECT key, pg_notify(%s, bucket::text) FROM retried
"""
_DISCARD = """
WITH discarded AS (
    UPDATE outbox_document SET
        sent = sent + 1,
        waiting_since = CASE WHEN version > sent + 1 THEN waiting_since END,
        attempts = 0,
        next_attempt_at = NULL,
        last_error = ''
    WHERE key = ANY(%s) AND attempts > 0 RETURNING key, sent, bucket
)
SELECT key, sent, pg_notify(%s, bucket::text) FROM discarded
"""


def retry(keys: Collection[str], using: str) -> list[str]:
    """Have failed documents tried again at once; those that are."""
    with connections[using].cursor() as cursor:
        cursor.execute(_RETRY, [list(keys), CHANNEL])
        return [key for key, _ in cursor.fetchall()]


def discard(keys: Collection[str], using: str) -> dict[str, int]:
    """Give up the next version of failed documents, so that the one after it is sent. Consumers see
    a gap. Returns the number of each version that was given up."""
    with connections[using].cursor() as cursor:
        cursor.execute(_DISCARD, [list(keys), CHANNEL])
        return {key: version for key, version, _ in cursor.fetchall()}
