"""Executes requests made on the screens: the web's database login may not do it itself."""

from collections import Counter
from collections.abc import Callable

from history.store.days.window import Window
from ingest.models import QuarantineRequest
from ingest.quarantine.messages import UNSETTLED, MessageSelection, discard_messages, retry_messages
from ingest.store.ledger import Connection

_OPEN = """
SELECT id, action, reason, client_id, field, topic, ids, last_id, why, login
FROM ingest_quarantine_request WHERE done_at IS NULL ORDER BY id
"""
_DONE = """
UPDATE ingest_quarantine_request SET done_at = now(), outcome = %s
WHERE id = %s AND done_at IS NULL
"""


def execute_requests(connection: Connection, window: Callable[[], Window]) -> Counter[str]:
    """Execute the open requests, oldest first.

    Returns:
        The number of messages by outcome.

    Raises:
        psycopg.Error: PostgreSQL refused a statement. The next run continues; what was done is
            not done twice.
    """
    totals: Counter[str] = Counter()
    for row in connection.execute(_OPEN).fetchall():
        id, action, reason, client_id, field, topic, ids, last_id, reason_of_person, login = row
        selection = MessageSelection(
            topic=str(topic),
            reason=str(reason),
            client_id=str(client_id),
            field=str(field),
            last_id=int(last_id),  # type: ignore[call-overload]
            statuses=UNSETTLED,
        )
        if ids:
            selection = MessageSelection(ids=tuple(ids), statuses=UNSETTLED)  # type: ignore[arg-type]
        if action == QuarantineRequest.Action.DISCARD:
            counts = Counter(
                discarded=discard_messages(
                    connection, selection, f"{reason_of_person} ({login})"[:200]
                )
            )
        else:
            counts = sum(retry_messages(connection, selection, window), Counter())
        outcome = ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)
        connection.execute(_DONE, (outcome[:200], id))
        totals += counts
    return totals
