"""Decodes and stores quarantined messages again. Several workers may run at once."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from psycopg import errors

from history.entities import BY_NAME, Entity
from history.window import Window
from ingest.quarantine import messages
from ingest.quarantine.messages import LockedMessage, Selection
from ingest.source.decode import Decode, Expired, Reason, Rejected, decode
from ingest.store import missing_days
from ingest.store.batch import EntityDay, Row
from ingest.store.deduplicate import key
from ingest.store.ledger import Connection
from ingest.store.missing_days import Refusal
from ingest.store.slow_path import store_isolated
from ingest.store.sqlstate import missing_partition

MESSAGES_PER_TRANSACTION = 100
# A consumer that stores the same rows and search keys at this moment may cause a deadlock, and
# maintain may drop a day between the look-up and the insert.
CONFLICT_ATTEMPTS = 5


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
    after, conflicts = 0, 0
    refused: dict[EntityDay, Refusal] = {}
    while True:
        attempt = _Attempt(connection, window(), decode, refused)
        try:
            with connection.transaction(force_rollback=dry_run):
                locked = messages.lock(connection, selection, MESSAGES_PER_TRANSACTION, after)
                attempt.run(locked, skip_missing_days=dry_run)
        except _MissingDaysError as missing:
            # Partitions are created outside the transaction; then all messages are tried again.
            refused |= missing_days.create(connection, missing.days, window())
            continue
        except (errors.CheckViolation, errors.DeadlockDetected) as error:
            conflicts += 1
            if conflicts == CONFLICT_ATTEMPTS or not _passes(error):
                raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy
            continue
        if not locked:
            return
        after, conflicts = locked[-1].id, 0
        yield attempt.outcomes


def _passes(error: errors.CheckViolation | errors.DeadlockDetected) -> bool:
    """Whether another attempt can help."""
    return isinstance(error, errors.DeadlockDetected) or missing_partition(error)


class _MissingDaysError(Exception):
    """Days inside the window have no partition."""

    def __init__(self, days: set[EntityDay]) -> None:
        super().__init__()
        self.days = days


class _Attempt:
    """One transaction of a retry. refused: days that cannot be created, and why.

    Rows are stored in the order of their keys, and the ledger is updated last, in the order of its
    partitions: two workers take their locks in the same order.
    """

    def __init__(
        self,
        connection: Connection,
        window: Window,
        decode: Decode,
        refused: Mapping[EntityDay, Refusal],
    ) -> None:
        self._connection = connection
        self._window = window
        self._decode = decode
        self._refused = refused
        self._rows: list[Row] = []
        self._expired: list[Row] = []
        self._settled: list[tuple[LockedMessage, str]] = []
        self.outcomes: Counter[str] = Counter()

    def run(self, locked: Iterable[LockedMessage], skip_missing_days: bool) -> None:
        """Retry these messages. skip_missing_days: a message whose day has no partition counts as
        stored. Raises _MissingDaysError otherwise."""
        by_message = {id(each.message): each for each in locked}
        for each in by_message.values():
            self._read(each)
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self._with_day(by_message, skip_missing_days):
            rows[row.record.entity].append(row)
        for name, entity in BY_NAME.items():
            self._store(entity, sorted(rows[name], key=key), by_message)
        messages.resolve(self._connection, self._settled)

    def _read(self, locked: LockedMessage) -> None:
        try:
            self._rows.append(Row(self._decode(locked.message, self._window), locked.message))
        except Expired as error:
            self._expired.append(Row(error.record, locked.message))
        except Rejected as error:
            self._postpone(locked, error.reason, error.detail)

    def _with_day(
        self, locked: Mapping[int, LockedMessage], skip_missing_days: bool
    ) -> Iterator[Row]:
        """The rows that have a partition; the others are settled or postponed."""
        wanted = {row.day for row in (*self._rows, *self._expired)}
        existing = missing_days.existing(self._connection, wanted)
        missing = {row.day for row in self._rows} - existing - self._refused.keys()
        if missing and not skip_missing_days:
            raise _MissingDaysError(missing)
        for row in self._expired:
            if row.day in existing:
                yield row
            else:
                self._settle(locked[id(row.message)], "expired")
        for row in self._rows:
            if row.day in existing:
                yield row
            elif row.day in missing:
                self.outcomes["stored"] += 1
            else:
                why = self._refused[row.day].why
                self._postpone(locked[id(row.message)], Reason.NO_PARTITION, why)

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
