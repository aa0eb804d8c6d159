"""What a person can do about a document whose next version Kafka refuses."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connections

from outbox.writer import CHANNEL

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
