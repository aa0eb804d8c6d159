"""Carries out what people asked for on the screens, whose database login may not do it."""

from collections import Counter
from collections.abc import Callable

from history.daily.window import Window
from ingest.models import QuarantineRequest
from ingest.quarantine.messages import UNSETTLED, Selection, discard, retry
from ingest.store.ledger import Connection

_OPEN = """
SELECT id, action, reason, client_id, field, topic, ids, last_id, why, login
FROM ingest_quarantine_request WHERE done_at IS NULL ORDER BY id
"""
_DONE = """
UPDATE ingest_quarantine_request SET done_at = now(), outcome = %s
WHERE id = %s AND done_at IS NULL
"""


def carry_out(connection: Connection, window: Callable[[], Window]) -> Counter[str]:
    """Do what is asked for, oldest first. Returns what became of the messages. Raises
    psycopg.Error: the next run does what is left, and finds nothing to do of what is done."""
    became: Counter[str] = Counter()
    for row in connection.execute(_OPEN).fetchall():
        id, action, reason, client_id, field, topic, ids, last_id, why, login = row
        selection = Selection(
            topic=str(topic),
            reason=str(reason),
            client_id=str(client_id),
            field=str(field),
            last_id=int(last_id),  # type: ignore[call-overload]
            statuses=UNSETTLED,
        )
        if ids:
            selection = Selection(ids=tuple(ids), statuses=UNSETTLED)  # type: ignore[arg-type]
        if action == QuarantineRequest.Action.DISCARD:
            counts = Counter(discarded=discard(connection, selection, f"{why} ({login})"[:200]))
        else:
            counts = sum(retry(connection, selection, window), Counter())
        outcome = ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)
        connection.execute(_DONE, (outcome[:200], id))
        became += counts
    return became
