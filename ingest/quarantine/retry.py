"""Quarantined messages once more through decoding and storing. Several workers may run at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from psycopg import Rollback, errors

from history import days
from history.entities import BY_NAME
from history.search_keys import NewKeys
from history.window import Window, day_of
from ingest.quarantine import messages
from ingest.quarantine.messages import Held, Selection
from ingest.source.decode import Decode, Expired, Rejected, decode
from ingest.store.batch import Row
from ingest.store.ledger import Connection
from ingest.store.search_index import index
from ingest.store.slow_path import store_deduplicated

AT_ONCE = 100


def retry(
    connection: Connection,
    selection: Selection,
    window: Window,
    dry_run: bool = False,
    decode: Decode = decode,
) -> Iterator[Counter[str]]:
    """Try the selected messages again, a few in each transaction; yields what became of each few:
    `stored`, `repeated`, `expired`, or the new status (`retrying`, `failed`).

    The ledger moves with them. With dry_run everything is done and rolled back.
    """
    after = 0
    while True:
        became: Counter[str] = Counter()
        with connection.transaction(force_rollback=dry_run) as transaction:
            held = messages.take(connection, selection, AT_ONCE, after)
            for each in held:
                became[_once(connection, each, window, decode)] += 1
            missing = became.pop(_NO_DAY, 0)
            if missing and not dry_run:
                raise Rollback(transaction)
        if not held:
            return
        if missing and not dry_run:
            # Outside a transaction, and then all of them again.
            _make_days(connection, held, window, decode)
            continue
        became["stored"] += missing
        after = held[-1].id
        yield +became


_NO_DAY = "no partition"


def _once(connection: Connection, held: Held, window: Window, decode: Decode) -> str:
    """Try one message again in a savepoint."""
    try:
        record = decode(held.message, window)
    except Expired:
        messages.resolve(connection, held, "expired")
        return "expired"
    except Rejected as error:
        return messages.postpone(connection, held, error.reason, error.detail)
    keys = NewKeys()
    keys.add(record)
    try:
        with connection.transaction():
            outcome = store_deduplicated(
                connection, BY_NAME[record.entity], [Row(record, held.message)]
            )
            if not outcome.rejects:
                index(connection, keys.rows())
    except errors.CheckViolation:
        return _NO_DAY
    if outcome.rejects:
        reject = outcome.rejects[0]
        return messages.postpone(connection, held, reject.reason, reject.detail)
    became = "repeated" if outcome.repeated else "stored"
    messages.resolve(connection, held, became)
    return became


def _make_days(connection: Connection, held: list[Held], window: Window, decode: Decode) -> None:
    for each in held:
        try:
            record = decode(each.message, window)
        except (Expired, Rejected):
            continue
        days.create(connection, BY_NAME[record.entity].table, day_of(record.updated_at))


def by_ids(selection: Selection, ids: tuple[int, ...]) -> Selection:
    """The same selection, of these messages only, whatever their status short of settled."""
    return replace(selection, ids=ids, due_only=False, statuses=(*messages.OPEN, "failed"))
