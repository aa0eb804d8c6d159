"""What a person can do about messages that fail: try again, or give up."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connections, transaction

from outbox.inbox.queue import CHAIN_LOCK
from outbox.ring import SLOTS

# The chain is nobody else's meanwhile.
_CHOSEN = f"""
SELECT m.id, pg_try_advisory_xact_lock({CHAIN_LOCK}) FROM inbox_message AS m
WHERE id = ANY(%s) AND state IN ('dead', 'failed') ORDER BY id
"""  # noqa: S608 - our own constants
_RETRY = """
UPDATE inbox_message SET state = 'failed', attempts = 0, holds = true, due_at = timestamptz 'epoch'
WHERE id = ANY(%s) AND state IN ('dead', 'failed') RETURNING id
"""
_DISCARD = f"""
WITH gone AS (
    DELETE FROM inbox_message WHERE id = ANY(%s) AND state IN ('dead', 'failed')
    RETURNING id, handler, identity, chain, clock_timestamp() AS at
), next AS (
    UPDATE inbox_message SET due_at = timestamptz 'epoch' WHERE due_at IS NULL AND state = 'new'
        AND id IN (
            SELECT (
                SELECT m.id FROM inbox_message AS m WHERE m.handler = gone.handler
                    AND m.chain = gone.chain AND m.holds AND m.id > gone.id ORDER BY m.id LIMIT 1
            ) FROM gone
        )
), known AS (
    INSERT INTO inbox_done (handler, identity, done_at, slot)
    SELECT handler, identity, at, mod(floor(extract(epoch FROM at) / 86400)::bigint, {SLOTS})
    FROM gone
)
SELECT id FROM gone
"""  # noqa: S608 - our own constants


def retry(ids: Collection[int], using: str) -> list[int]:
    """Have dead letters and failed messages tried again at once, with all of their attempts; those
    that are."""
    return _on_chosen(_RETRY, ids, using)


def discard(ids: Collection[int], using: str) -> list[int]:
    """Give up dead letters and failed messages: they count as processed, and the later messages of
    their keys go on. Returns those that were given up."""
    return _on_chosen(_DISCARD, ids, using)


def _on_chosen(statement: str, ids: Collection[int], using: str) -> list[int]:
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute(_CHOSEN, [list(ids)])
        free = [id for id, locked in cursor.fetchall() if locked]
        cursor.execute(statement, [free])
        return sorted(id for (id,) in cursor.fetchall())
