"""The status of an outbox, for metrics and for people: unsent versions, failures, and relays."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from django.db import connections
from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from outbox.models import Document
from outbox.recording.writer import CHANNEL

# The documents with unsent versions. These are two queries, because there is an index for each.
WAITING_DOCUMENTS = """(
    SELECT * FROM outbox_document WHERE waiting_since IS NOT NULL AND attempts = 0
    UNION ALL SELECT * FROM outbox_document WHERE attempts > 0
)"""
_PENDING = f"""
SELECT count(*), coalesce(sum(version - sent), 0), count(*) FILTER (WHERE attempts > 0),
    coalesce(greatest(extract(epoch FROM clock_timestamp() - min(waiting_since)), 0), 0)::float8
FROM {WAITING_DOCUMENTS} AS d
"""  # noqa: S608 - our own constant
_BUCKETS = """
SELECT coalesce(r.name, 'no relay'), count(*)
FROM outbox_bucket AS b LEFT JOIN outbox_relay AS r ON r.id = b.owner GROUP BY 1 ORDER BY 1
"""
FAILURE_PREFIX = "failure "


def read_status(using: str) -> dict[str, Any]:
    """Return how many versions wait in an outbox, how many were sent, and which relays send them.

    Returns:
        A dictionary with these values:

        documents, versions: How many documents have unsent versions, and how many versions.
        failed: How many of these documents have had a failed attempt since the last success.
        oldest_seconds: For how many seconds the oldest unsent version has waited.
        sent, attempts: How many versions were sent, and in how many attempts, since the outbox
            exists.
        failures: How many attempts failed since the outbox exists, by reason.
        buckets: How many buckets each relay has; `no relay` counts buckets without a relay.
    """
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
            counter.removeprefix(FAILURE_PREFIX): times
            for counter, times in tally.items()
            if counter.startswith(FAILURE_PREFIX)
        },
        "buckets": buckets,
    }


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METRICS = {
    "versions": ("outbox_pending_versions", "Versions that are not sent yet."),
    "documents": ("outbox_pending_documents", "Documents with versions that are not sent yet."),
    "oldest_seconds": (
        "outbox_oldest_pending_seconds",
        "How long the oldest unsent version has waited.",
    ),
    "failed": ("outbox_failed_documents", "Documents whose next version was tried and not sent."),
    "sent": ("outbox_sent_total", "Versions that Kafka confirmed."),
    "attempts": (
        "outbox_attempts_total",
        "Versions that were handed to Kafka; a version counts for each attempt.",
    ),
}


def format_metrics(using: str) -> Iterator[str]:
    """Yield the status as metrics in Prometheus' text format."""
    status = read_status(using)
    for key, (name, text) in _METRICS.items():
        yield format_metric(name, text, [({}, status[key])])
    failures = [({"reason": reason}, times) for reason, times in status["failures"].items()]
    yield format_metric(
        "outbox_failures_total", "Versions that were not confirmed, by reason.", failures
    )
    buckets = [({"relay": relay}, count) for relay, count in status["buckets"].items()]
    text = "Buckets of documents that each relay sends; `no relay`: buckets that no relay sends."
    yield format_metric("outbox_buckets", text, buckets)


def format_metric(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> str:
    """Return a metric in Prometheus' text format. A sample is a pair of labels and a value."""
    kind = "counter" if name.endswith("_total") else "gauge"
    lines = [f"# HELP {name} {text}\n# TYPE {name} {kind}\n"]
    for labels, value in samples:
        inside = ",".join(
            f'{label}="{_escape_label(label_value)}"' for label, label_value in labels.items()
        )
        lines.append(f"{name}{{{inside}}} {value}\n" if inside else f"{name} {value}\n")
    return "".join(lines)


def _escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# SQL: whether a relay is sending versions of this row of outbox_document. A relay writes this with
# each heartbeat, so it is not known of versions that are sent between two heartbeats.
IS_IN_HAND = (
    "EXISTS (SELECT FROM outbox_relay AS r WHERE jsonb_exists(r.in_hand, outbox_document.key))"
)


class DocumentState(TextChoices):
    """The state of a document with unsent versions.

    New: the document waits for a relay. Processing: a relay has handed its next version to Kafka.
    Failed: the last attempt to send that version failed, and the relay will try again.
    """

    NEW = "new", _("New")
    PROCESSING = "processing", _("Processing")
    FAILED = "failed", _("Failed")


def get_state(document: Document) -> DocumentState:
    """Return the state of a document.

    The state can be PROCESSING only if the queryset added the attribute `processing` to the
    document, with the value of the SQL expression IS_IN_HAND.
    """
    if document.attempts:
        return DocumentState.FAILED
    return DocumentState.PROCESSING if getattr(document, "processing", False) else DocumentState.NEW


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


def retry_documents(keys: Collection[str], using: str) -> list[str]:
    """Let relays retry the failed documents among `keys` at once. Return the retried keys."""
    with connections[using].cursor() as cursor:
        cursor.execute(_RETRY, [list(keys), CHANNEL])
        return [key for key, _ in cursor.fetchall()]


def discard_next_versions(keys: Collection[str], using: str) -> dict[str, int]:
    """Discard the next version of failed documents, so that the following version is sent.

    Consumers will miss the discarded versions.

    Returns:
        For each document key, the number of the version that was discarded.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(_DISCARD, [list(keys), CHANNEL])
        return {key: version for key, version, _ in cursor.fetchall()}
