"""Stores messages out of quarantine, next to consumers that store the same versions."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from psycopg import errors

from history.daily.window import Window
from history.entities import BY_NAME, Entity
from ingest.source.decode import Expired, Reason, Rejected, decode
from ingest.source.message import Message
from ingest.store import missing_days, session
from ingest.store.batch import EntityDay, Reject, Row
from ingest.store.ledger import Connection
from ingest.store.missing_days import Refusal
from ingest.store.slow_path import key, store_isolated
from ingest.store.sqlstate import missing_partition

# A consumer of the same rows may cause a deadlock; maintain may drop a day before the insert.
CONFLICT_ATTEMPTS = 5

T = TypeVar("T")


class Result(NamedTuple):
    """became: `stored`, `repeated`, `expired`, or `rejected` with the reject."""

    message: Message
    became: str
    reject: Reject | None = None


class _MissingDaysError(Exception):
    """Days inside the window have no partition."""

    def __init__(self, days: set[EntityDay]) -> None:
        super().__init__()
        self.days = days


class Outside:
    """Stores messages through a connection in autocommit mode. window: asked for each
    transaction."""

    def __init__(self, connection: Connection, window: Callable[[], Window]) -> None:
        self.connection = connection
        self._window = window
        self._refused: dict[EntityDay, Refusal] = {}

    def transaction(self, work: Callable[[Attempt], T], dry_run: bool = False) -> T:
        """What `work` returns, done in one transaction, and again after a conflict with another
        writer. dry_run: it is rolled back. Raises psycopg.Error."""
        conflicts = 0
        while True:
            attempt = Attempt(self.connection, self._window(), self._refused, dry_run)
            try:
                with self.connection.transaction(force_rollback=dry_run):
                    session.begin(self.connection)
                    return work(attempt)
            except _MissingDaysError as missing:
                # Partitions are created outside the transaction; then all is done again.
                self._refused |= missing_days.create(self.connection, missing.days, self._window())
            except (errors.CheckViolation, errors.DeadlockDetected) as error:
                conflicts += 1
                passes = isinstance(error, errors.DeadlockDetected) or missing_partition(error)
                if conflicts == CONFLICT_ATTEMPTS or not passes:
                    raise
                time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy


class Attempt:
    """One transaction. refused: days that cannot be created, and why."""

    def __init__(
        self,
        connection: Connection,
        window: Window,
        refused: Mapping[EntityDay, Refusal],
        dry_run: bool,
    ) -> None:
        self.connection = connection
        self._window = window
        self._refused = refused
        self._dry_run = dry_run

    def store(self, messages: Sequence[Message]) -> list[Result]:
        """Store these messages, each with its search keys; what became of each, in no order. A
        version whose day is not there and is too old is `expired`."""
        good: list[Row] = []
        old: list[Row] = []
        results: list[Result] = []
        for message in messages:
            try:
                good.append(Row(decode(message, self._window), message))
            except Expired as error:
                old.append(Row(error.record, message))
            except Rejected as error:
                reject = Reject(message, error.reason, error.detail)
                results.append(Result(message, "rejected", reject))
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self._with_day(good, old, results):
            rows[row.record.entity].append(row)
        for name, entity in BY_NAME.items():
            results += self._store(entity, sorted(rows[name], key=key))
        return results

    def _with_day(
        self, good: Sequence[Row], old: Sequence[Row], results: list[Result]
    ) -> Iterator[Row]:
        """The rows that have a partition; what became of the others is added to the results."""
        existing = missing_days.existing(self.connection, {row.day for row in (*good, *old)})
        missing = {row.day for row in good} - existing - self._refused.keys()
        if missing and not self._dry_run:
            raise _MissingDaysError(missing)
        for row in (*good, *old):
            if row.day in existing:
                yield row
        results += (Result(row.message, "expired") for row in old if row.day not in existing)
        for row in good:
            if row.day in missing:
                results.append(Result(row.message, "stored"))
            elif row.day not in existing:
                reject = Reject(row.message, Reason.NO_PARTITION, self._refused[row.day].why)
                results.append(Result(row.message, "rejected", reject))

    def _store(self, entity: Entity, rows: Sequence[Row]) -> Iterator[Result]:
        outcome = store_isolated(self.connection, entity, rows)
        repeated = {id(message) for message in outcome.repeated}
        rejected = {id(reject.message): reject for reject in outcome.rejects}
        for row in rows:
            reject = rejected.get(id(row.message))
            again = id(row.message) in repeated
            became = "rejected" if reject else "repeated" if again else "stored"
            yield Result(row.message, became, reject)
