"""Decodes and stores quarantined messages again. Several workers may run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from psycopg import Rollback, errors

from history import days
from history.entities import BY_NAME
from history.window import Window, day_of
from ingest.quarantine import messages
from ingest.quarantine.messages import LockedMessage, Selection
from ingest.source.decode import Decode, Expired, Rejected, decode
from ingest.store.batch import Row
from ingest.store.ledger import Connection
from ingest.store.slow_path import store_isolated
from ingest.store.sqlstate import missing_partition

MESSAGES_PER_TRANSACTION = 100


def retry(
    connection: Connection,
    selection: Selection,
    window: Window,
    dry_run: bool = False,
    decode: Decode = decode,
) -> Iterator[Counter[str]]:
    """Retry the selected messages, MESSAGES_PER_TRANSACTION at a time. Yields the outcomes of each
    transaction: `stored`, `repeated`, `expired`, or the new status (`retrying`, `failed`).

    The ledger's counts move with them. With dry_run everything is done and rolled back.
    """
    after = 0
    while True:
        became: Counter[str] = Counter()
        with connection.transaction(force_rollback=dry_run) as transaction:
            locked = messages.take(connection, selection, MESSAGES_PER_TRANSACTION, after)
            for each in locked:
                became[_try_again(connection, each, window, decode)] += 1
            missing = became.pop(_NO_DAY, 0)
            if missing and not dry_run:
                raise Rollback(transaction)
        if not locked:
            return
        if missing and not dry_run:
            # Partitions are created outside the transaction; then all messages are tried again.
            _make_days(connection, locked, window, decode)
            continue
        became["stored"] += missing
        after = locked[-1].id
        yield +became


_NO_DAY = "no partition"


def _try_again(
    connection: Connection, locked: LockedMessage, window: Window, decode: Decode
) -> str:
    """Retry one message in a savepoint."""
    try:
        record = decode(locked.message, window)
    except Expired:
        messages.resolve(connection, locked, "expired")
        return "expired"
    except Rejected as error:
        return messages.postpone(connection, locked, error.reason, error.detail)
    try:
        with connection.transaction():
            outcome = store_isolated(
                connection, BY_NAME[record.entity], [Row(record, locked.message)]
            )
    except errors.CheckViolation as error:
        if not missing_partition(error):
            raise
        return _NO_DAY
    if outcome.rejects:
        reject = outcome.rejects[0]
        return messages.postpone(connection, locked, reject.reason, reject.detail)
    became = "repeated" if outcome.repeated else "stored"
    messages.resolve(connection, locked, became)
    return became


def _make_days(
    connection: Connection, locked: list[LockedMessage], window: Window, decode: Decode
) -> None:
    for each in locked:
        try:
            record = decode(each.message, window)
        except (Expired, Rejected):
            continue
        days.create(connection, BY_NAME[record.entity].table, day_of(record.updated_at))


def by_ids(selection: Selection, ids: tuple[int, ...]) -> Selection:
    """The same selection, limited to these messages; of any status that is not settled."""
    return replace(selection, ids=ids, due_only=False, statuses=(*messages.OPEN, "failed"))
