"""Stores messages that do not come from a partition in its order: out of quarantine, or asked for.

Several processes may do so at once, next to consumers that store the same versions.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple, TypeVar

from psycopg import errors

from history import distribution
from history.entities import BY_NAME, Entity
from history.record import Record
from history.window import Window, day_of
from ingest.source.decode import Decode, Expired, Reason, Rejected
from ingest.source.message import Message, TopicPartition
from ingest.store import missing_days, session
from ingest.store.batch import EntityDay, Reject, Row
from ingest.store.homes import Homes
from ingest.store.ledger import Connection
from ingest.store.missing_days import Refusal
from ingest.store.slow_path import key, store_isolated
from ingest.store.sqlstate import missing_partition

# In the place of a partition and of a topic's id: no partition of Kafka has them.
PARTITION = -1
TOPIC_ID = "recovered"
_SOURCE = "annals-source"

_NOTE = """
INSERT INTO recovered_version ("table", row_id, version, updated_at, day, source, recovered_at)
SELECT %s, row_id, version, 'epoch'::timestamptz + moment * interval '1 microsecond', day, source,
    now()
FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::date[], %s::text[])
    AS given (row_id, version, moment, day, source)
ON CONFLICT DO NOTHING
"""


def message(topic: str, source: str, id: str, version: int, value: bytes) -> Message:
    """An answer as a message. The same version of the same source is the same message, however
    often it is asked for."""
    digest = hashlib.sha256("\0".join((source, topic, id, str(version))).encode()).digest()
    offset = int.from_bytes(digest[:8]) >> 1
    headers = ((_SOURCE, source.encode()),)
    return Message(topic, PARTITION, offset, -1, id.encode(), value, headers)


def place(topic: str) -> TopicPartition:
    """In the place of the partition of such messages."""
    return TopicPartition(topic, TOPIC_ID, PARTITION)


def note(connection: Connection, entity: Entity, rows: Sequence[Row]) -> None:
    """Note where those of the rows came from that Annals asked for, in the transaction that has
    stored them."""
    columns = [
        (
            row.record.id,
            row.record.version,
            row.record.updated_at,
            day_of(row.record.updated_at),
            _source(row.message),
        )
        for row in rows
        if row.message.partition == PARTITION
    ]
    if columns:
        connection.execute(
            _NOTE, [entity.table, *(list(column) for column in zip(*columns, strict=True))]
        )


def _source(message: Message) -> str:
    return next((value or b"" for name, value in message.headers if name == _SOURCE), b"").decode()


# A consumer that stores the same rows and search keys at this moment may cause a deadlock, and
# maintain may drop a day between the look-up and the insert.
CONFLICT_ATTEMPTS = 5
_ALL_DAYS = Window(date.min, date.max - timedelta(days=1))

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
    """Stores messages through a connection in autocommit mode. window: asked for each transaction,
    because a run can last past midnight."""

    def __init__(
        self, connection: Connection, window: Callable[[], Window], decode: Decode
    ) -> None:
        self.connection = connection
        self._window = window
        self._decode = decode
        self._refused: dict[EntityDay, Refusal] = {}

    def transaction(self, work: Callable[[Attempt], T], dry_run: bool = False) -> T:
        """What `work` returns, done in one transaction, and again after a conflict with another
        writer. dry_run: it is rolled back. Raises psycopg.Error."""
        conflicts = 0
        while True:
            attempt = Attempt(self.connection, self._window(), self._decode, self._refused, dry_run)
            try:
                with self.connection.transaction(force_rollback=dry_run):
                    session.begin(self.connection)
                    return work(attempt)
            except _MissingDaysError as missing:
                # Partitions are created outside the transaction; then all is done again.
                self._refused |= missing_days.create(self.connection, missing.days, self._window())
            except (errors.CheckViolation, errors.DeadlockDetected) as error:
                conflicts += 1
                if conflicts == CONFLICT_ATTEMPTS or not _passes(error):
                    raise
                time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - spread, not secrecy


def _passes(error: errors.CheckViolation | errors.DeadlockDetected) -> bool:
    """Whether another attempt can help."""
    return isinstance(error, errors.DeadlockDetected) or missing_partition(error)


class Attempt:
    """One transaction. refused: days that cannot be created, and why."""

    def __init__(
        self,
        connection: Connection,
        window: Window,
        decode: Decode,
        refused: Mapping[EntityDay, Refusal],
        dry_run: bool,
    ) -> None:
        self.connection = connection
        self._window = window
        self._decode = decode
        self._refused = refused
        self._dry_run = dry_run

    def read(self, message: Message) -> Record | None:
        """The record of a message, whatever its day; None if it breaks another rule."""
        try:
            return self._decode(message, _ALL_DAYS)
        except (Expired, Rejected):
            return None

    def store(self, messages: Sequence[Message]) -> list[Result]:
        """Store these messages, each with its search keys and its origin; what became of each, in
        no order. A version whose day is not there and is too old is `expired`. Rows are stored in
        the order of their keys, so that two workers take their locks in the same order."""
        good: list[Row] = []
        old: list[Row] = []
        results: list[Result] = []
        for message in messages:
            try:
                good.append(Row(self._decode(message, self._window), message))
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
        """The rows that have a partition; what became of the others is added to the results. In a
        dry run a row whose day is missing counts as stored."""
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
        stored = [row for row in rows if id(row.message) not in repeated | rejected.keys()]
        note(self.connection, entity, stored)
        if distribution.active(self.connection):
            Homes().note(self.connection, stored)
        for row in rows:
            reject = rejected.get(id(row.message))
            again = id(row.message) in repeated
            became = "rejected" if reject else "repeated" if again else "stored"
            yield Result(row.message, became, reject)
