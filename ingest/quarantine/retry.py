"""Decodes and stores quarantined messages again. Several workers may run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from history.window import Window
from ingest.quarantine import messages
from ingest.quarantine.messages import LockedMessage, Selection
from ingest.source.decode import Decode, decode
from ingest.store.ledger import Connection
from ingest.store.outside import Attempt, Outside

MESSAGES_PER_TRANSACTION = 100


def retry(
    connection: Connection,
    selection: Selection,
    window: Callable[[], Window],
    dry_run: bool = False,
    decode: Decode = decode,
) -> Iterator[Counter[str]]:
    """Retry the selected messages, MESSAGES_PER_TRANSACTION at a time. Yields the outcomes of each
    transaction: `stored`, `repeated`, `expired`, or the new status (`retrying`, `failed`).

    The ledger's counts move with them. With dry_run everything is done and rolled back. window is
    asked for each transaction: a run can last past midnight. Raises psycopg.Error if the database
    is not available; what was yielded before is committed.
    """
    outside, after = Outside(connection, window, decode), 0
    while True:
        outcomes, last = outside.transaction(partial(_some, selection, after), dry_run)
        if last is None:
            return
        after = last
        yield outcomes


def _some(selection: Selection, after: int, attempt: Attempt) -> tuple[Counter[str], int | None]:
    """Retry the messages after an id: what became of them, and the last one's id; None if there is
    none. The ledger is updated last, in the order of its partitions."""
    connection = attempt.connection
    locked = messages.lock(connection, selection, MESSAGES_PER_TRANSACTION, after)
    of_message = {id(each.message): each for each in locked}
    settled: list[tuple[LockedMessage, str]] = []
    outcomes: Counter[str] = Counter()
    for message, became, reject in attempt.store([each.message for each in locked]):
        held = of_message[id(message)]
        if reject is None:
            settled.append((held, became))
            outcomes[became] += 1
        else:
            outcomes[messages.postpone(connection, held, reject.reason, reject.detail)] += 1
    messages.resolve(connection, settled)
    return outcomes, locked[-1].id if locked else None


def by_ids(selection: Selection, ids: tuple[int, ...]) -> Selection:
    """The same selection, limited to these messages; of any status that is not settled."""
    return replace(selection, ids=ids, due_only=False, statuses=messages.UNSETTLED)
