"""Executes requests that people made on the screens to retry or discard messages.

`annals quarantine retry` does this, because the database login of the web process may not change
the quarantine.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from psycopg.rows import args_row

from history.store.days.window import Window
from ingest.models import QuarantineRequest
from ingest.quarantine.messages import UNSETTLED, MessageSelection, discard_messages, retry_messages
from ingest.store.ledger import Connection


class OpenRequest(NamedTuple):
    """A request that is not executed yet. See `QuarantineRequest`."""

    id: int
    action: str
    reason: str
    client_id: str
    field: str
    topic: str
    ids: Sequence[int]
    last_id: int
    why: str
    login: str

    def select_messages(self) -> MessageSelection:
        """Return the selection of the messages that the request is for."""
        if self.ids:
            return MessageSelection(ids=tuple(self.ids), statuses=UNSETTLED)
        return MessageSelection(
            topic=self.topic,
            reason=self.reason,
            client_id=self.client_id,
            field=self.field,
            last_id=self.last_id,
            statuses=UNSETTLED,
        )


_SELECT_OPEN = """
SELECT id, action, reason, client_id, field, topic, ids, last_id, why, login
FROM ingest_quarantine_request WHERE done_at IS NULL ORDER BY id
"""
_MARK_DONE = """
UPDATE ingest_quarantine_request SET done_at = now(), outcome = %(outcome)s
WHERE id = %(id)s AND done_at IS NULL
"""


def execute_requests(connection: Connection, window: Callable[[], Window]) -> Counter[str]:
    """Execute the open requests, oldest first.

    Returns:
        The number of messages by outcome.

    Raises:
        psycopg.Error: PostgreSQL refused a statement. The next run continues where this one
            stopped.
    """
    with connection.cursor(row_factory=args_row(OpenRequest)) as cursor:
        requests = cursor.execute(_SELECT_OPEN).fetchall()
    totals: Counter[str] = Counter()
    for request in requests:
        selection = request.select_messages()
        if request.action == QuarantineRequest.Action.DISCARD:
            reason = f"{request.why} ({request.login})"[:200]
            counts = Counter(discarded=discard_messages(connection, selection, reason))
        else:
            counts = sum(retry_messages(connection, selection, window), Counter())
        outcome = ", ".join(f"{name} {count}" for name, count in counts.most_common() if count)
        connection.execute(_MARK_DONE, {"outcome": outcome[:200], "id": request.id})
        totals += counts
    return totals
