"""Decodes and stores quarantined messages again. Several workers may run at once."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date

from psycopg import errors

from history import days
from history.entities import BY_NAME, Entity
from history.window import Window, day_of
from ingest.quarantine import messages
from ingest.quarantine.messages import LockedMessage, Selection
from ingest.source.decode import Decode, Expired, Rejected, decode
from ingest.store.batch import Row
from ingest.store.deduplicate import key
from ingest.store.ledger import Connection
from ingest.store.slow_path import store_isolated
from ingest.store.sqlstate import missing_partition

MESSAGES_PER_TRANSACTION = 100
# A consumer that stores the same rows and search keys at this moment may cause a deadlock.
DEADLOCK_ATTEMPTS = 5


def retry(
    connection: Connection,
    selection: Selection,
    window: Window,
    dry_run: bool = False,
    decode: Decode = decode,
) -> Iterator[Counter[str]]:
    """Retry the selected messages, MESSAGES_PER_TRANSACTION at a time. Yields the outcomes of each
    transaction: `stored`, `repeated`, `expired`, or the new status (`retrying`, `failed`).

    The ledger's counts move with them. With dry_run everything is done and rolled back. Raises
    psycopg.Error if the database is not available; what was yielded before is committed.
    """
    after, deadlocks = 0, 0
    while True:
        attempt = _Attempt(connection, window, decode)
        try:
            with connection.transaction(force_rollback=dry_run):
                locked = messages.lock(connection, selection, MESSAGES_PER_TRANSACTION, after)
                attempt.run(locked, skip_missing_days=dry_run)
        except errors.CheckViolation as error:
            if not missing_partition(error):
                raise
            made = [days.create(connection, *day) for day in sorted(attempt.days())]
            if not any(made):
                raise
            continue
        except errors.DeadlockDetected:
            deadlocks += 1
            if deadlocks == DEADLOCK_ATTEMPTS:
                raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy
            continue
        if not locked:
            return
        after, deadlocks = locked[-1].id, 0
        yield attempt.outcomes


class _Attempt:
    """One transaction of a retry.

    Rows are stored in the order of their keys, and the ledger is updated last, in the order of its
    partitions: two workers take their locks in the same order.
    """

    def __init__(self, connection: Connection, window: Window, decode: Decode) -> None:
        self._connection = connection
        self._window = window
        self._decode = decode
        self._rows: defaultdict[str, list[Row]] = defaultdict(list)
        self._settled: list[tuple[LockedMessage, str]] = []
        self.outcomes: Counter[str] = Counter()

    def run(self, locked: Iterable[LockedMessage], skip_missing_days: bool) -> None:
        """Retry these messages. skip_missing_days: a message whose day has no partition counts as
        stored."""
        by_message = {id(each.message): each for each in locked}
        for each in by_message.values():
            self._read(each)
        for name, entity in BY_NAME.items():
            rows = sorted(self._rows[name], key=key)
            if skip_missing_days:
                rows = self._with_day(entity, rows)
            self._store(entity, rows, by_message)
        messages.resolve(self._connection, self._settled)

    def days(self) -> set[tuple[str, date]]:
        """Table and day of every row that was decoded."""
        return {
            (BY_NAME[name].table, day_of(row.record.updated_at))
            for name, rows in self._rows.items()
            for row in rows
        }

    def _read(self, locked: LockedMessage) -> None:
        try:
            record = self._decode(locked.message, self._window)
        except Expired:
            self._settle(locked, "expired")
        except Rejected as error:
            self._postpone(locked, error.reason, error.detail)
        else:
            self._rows[record.entity].append(Row(record, locked.message))

    def _with_day(self, entity: Entity, rows: list[Row]) -> list[Row]:
        """The rows that have a partition. The others would get one, and are counted as stored."""
        wanted = {day_of(row.record.updated_at) for row in rows}
        missing = {
            day
            for day in wanted
            if days.locate(self._connection, entity.table, day).state is not days.State.ATTACHED
        }
        there = [row for row in rows if day_of(row.record.updated_at) not in missing]
        self.outcomes["stored"] += len(rows) - len(there)
        return there

    def _store(self, entity: Entity, rows: list[Row], locked: Mapping[int, LockedMessage]) -> None:
        outcome = store_isolated(self._connection, entity, rows)
        became = {id(message): "repeated" for message in outcome.repeated}
        for reject in outcome.rejects:
            became[id(reject.message)] = ""
            self._postpone(locked[id(reject.message)], reject.reason, reject.detail)
        for row in rows:
            if result := became.get(id(row.message), "stored"):
                self._settle(locked[id(row.message)], result)

    def _settle(self, locked: LockedMessage, became: str) -> None:
        self._settled.append((locked, became))
        self.outcomes[became] += 1

    def _postpone(self, locked: LockedMessage, reason: str, detail: str) -> None:
        self.outcomes[messages.postpone(self._connection, locked, reason, detail)] += 1


def by_ids(selection: Selection, ids: tuple[int, ...]) -> Selection:
    """The same selection, limited to these messages; of any status that is not settled."""
    return replace(selection, ids=ids, due_only=False, statuses=messages.UNSETTLED)
