"""Writes one batch to the database in one transaction: by COPY, or, after a conflict or a row that
PostgreSQL cannot store, by the slow path, which finds repeats and bad rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

import psycopg
from psycopg import errors

from history.daily.window import Window
from history.entities import BY_NAME, Entity
from history.search_index.keys import Fingerprint, KeyRow, NewKeys
from ingest.source.message import Message, TopicPartition
from ingest.store import ledger, missing_days, rejects, session, unstored
from ingest.store.batch import Batch, Claims, Ends, Reject, Row
from ingest.store.fast_path import copy_rows, index
from ingest.store.ledger import Connection, Move
from ingest.store.missing_days import kept
from ingest.store.session import Session
from ingest.store.slow_path import Outcome, store_deduplicated, store_isolated
from ingest.store.sqlstate import Cause, cause, missing_partition

# After a conflict, this many batches go straight to the slow path.
SLOW_PATH_BATCHES = 20


@dataclass(frozen=True, slots=True)
class Written:
    """Messages stored and repeated, by partition. rejects: found by the database. fingerprints: of
    business keys that are stored, as far as is known."""

    stored: Mapping[TopicPartition, int]
    repeated: Mapping[TopicPartition, int]
    rejects: tuple[Reject, ...] = ()
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)


class _Path(Enum):
    """How a batch is written, in the order of the attempts."""

    FAST = "fast"
    DEDUPLICATED = "deduplicated"
    ISOLATED = "isolated"


class Writer(Session):
    """Writes batches through its connection."""

    def __init__(
        self, connect: Callable[[], Connection], window: Callable[[Connection], Window] = kept
    ) -> None:
        """window: gives the days of which a missing one is created; rows before it are expired."""
        super().__init__(connect)
        self._window = window
        self._slow_batches_left: Counter[str] = Counter()

    def write(self, batch: Batch, claims: Claims, high: Ends) -> Written:
        """Store a batch: rows, rejects and the ledger, all or nothing. high: each partition's end
        offset, None if not known. Raises ledger.Fenced, and psycopg.Error if the database is not
        available; the same batch may then be written again."""
        missing_days.admit_expired(self.connection, batch, self._window)
        batch.arrange()
        for path in (_Path.FAST, _Path.DEDUPLICATED):
            try:
                return self._transaction(batch, claims, high, path)
            except psycopg.Error as error:
                if cause(error) is not Cause.BATCH:
                    raise
            for name in batch.rows:
                self._slow_batches_left[name] = SLOW_PATH_BATCHES
        return self._transaction(batch, claims, high, _Path.ISOLATED)

    def _transaction(self, batch: Batch, claims: Claims, high: Ends, path: _Path) -> Written:
        result = Outcome([*batch.repeated], [*batch.unplaced])
        connection = self.connection
        try:
            with connection.transaction():
                session.begin(connection)
                for name in batch.entities():
                    self._store(connection, BY_NAME[name], batch.rows[name], result, path)
                if path is not _Path.ISOLATED:  # it stores each row with its keys
                    index(connection, _keys(batch, result))
                bad = [*batch.rejects, *result.rejects]
                rejects.add(connection, bad, claims)
                rejects.settle_read_again(connection, bad, batch.progress, claims)
                unstored.note(connection, result.repeated, batch.expired, batch.progress)
                written = _count(batch, result)
                stored, repeated = written.stored, written.repeated
                moves = [
                    Move(claims[at], batch.progress[at], stored[at], repeated[at], high.get(at))
                    for at in sorted(batch.progress)
                ]
                ledger.advance(connection, moves)
                return written
        except errors.CheckViolation as error:
            if not missing_partition(error):
                raise
            if not missing_days.provide(connection, batch, self._window(connection)):
                raise
            return self._transaction(batch, claims, high, path)

    def _store(
        self, connection: Connection, entity: Entity, rows: list[Row], result: Outcome, path: _Path
    ) -> None:
        left = self._slow_batches_left[entity.name]
        if path is _Path.FAST and left == 0:
            copy_rows(connection, entity, rows)
            return
        store = store_isolated if path is _Path.ISOLATED else store_deduplicated
        outcome = store(connection, entity, rows)
        result.repeated.extend(outcome.repeated)
        result.rejects.extend(outcome.rejects)
        slow = outcome.repeated or outcome.rejects or path is not _Path.FAST
        self._slow_batches_left[entity.name] = SLOW_PATH_BATCHES if slow else left - 1


def _keys(batch: Batch, result: Outcome) -> list[KeyRow]:
    """The business keys of the rows that are in the tables now: a refused row has none."""
    if not result.rejects:
        return batch.keys
    refused = {id(reject.message) for reject in result.rejects}
    keys = NewKeys()
    for row in chain.from_iterable(batch.rows.values()):
        if id(row.message) not in refused:
            keys.add(row.record)
    return keys.rows()


def _count(batch: Batch, result: Outcome) -> Written:
    repeated = _by_source(batch, result.repeated)
    refused = _by_source(batch, (reject.message for reject in result.rejects))
    stored = {
        source: progress.good - repeated[source] - refused[source]
        for source, progress in batch.progress.items()
    }
    fingerprints = {} if result.rejects else batch.fingerprints
    return Written(stored, repeated, tuple(result.rejects), fingerprints)


def _by_source(batch: Batch, messages: Iterable[Message]) -> Counter[TopicPartition]:
    """How many of the messages came from each partition of the batch."""
    sources = {(source.topic, source.partition): source for source in batch.progress}
    return Counter(sources[message.topic, message.partition] for message in messages)
