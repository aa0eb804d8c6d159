"""Writes one batch to the database in one transaction.

Rows are written by COPY. After a conflict, or a row that PostgreSQL cannot store, the slow path
finds the repeats and the bad rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

import psycopg
from psycopg import errors

from history.kinds.entities import BY_NAME, EntityKind
from history.store.days.window import Window
from history.store.search_index.keys import KeyFingerprint, NewSearchKeys, SearchKeyRow
from ingest.messages.message import Message, TopicPartition
from ingest.store import (
    empty_offsets,
    late_versions,
    ledger,
    missing_days,
    rejects,
    session,
)
from ingest.store.batch import BadMessage, Batch, Claims, DecodedRow, Ends
from ingest.store.fast_path import copy_rows, store_children, store_search_keys
from ingest.store.ledger import Connection, LedgerMove
from ingest.store.missing_days import get_safe_window
from ingest.store.session import DatabaseSession
from ingest.store.slow_path import StoreOutcome, store_deduplicated, store_isolated
from ingest.store.sqlstate import ErrorCause, classify_error, is_missing_partition

# How many batches go straight to the slow path after a conflict.
SLOW_PATH_BATCHES = 20
# How many days of children a writer remembers as listed, so that they are not listed again.
REMEMBERED_CHILDREN = 50_000


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of the messages of a batch."""

    stored: Mapping[TopicPartition, int]
    repeated: Mapping[TopicPartition, int]
    rejects: tuple[BadMessage, ...] = ()  # messages that the database refused
    # the fingerprints of the search keys that were stored, by id of the document
    fingerprints: Mapping[str, KeyFingerprint] = field(default_factory=dict)


class _WritePath(Enum):
    """How a batch is written, in the order of the attempts."""

    FAST = "fast"
    DEDUPLICATED = "deduplicated"
    ISOLATED = "isolated"


class BatchWriter(DatabaseSession):
    """Writes batches through its connection."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        window: Callable[[Connection], Window] = get_safe_window,
    ) -> None:
        """Set up the writer.

        Args:
            window: Returns the days that are kept. A missing one of these is created; rows of
                earlier days are expired.
        """
        super().__init__(connect)
        self._window = window
        self._slow_batches_left: Counter[str] = Counter()
        self._listed_children: set[int] = set()

    def write(self, batch: Batch, claims: Claims, high: Ends) -> WriteResult:
        """Store rows and bad messages of a batch and move the ledger, all or nothing.

        Args:
            high: The end offset of each partition; None if not known.

        Raises:
            FencedError: Another consumer has claimed or advanced one of the partitions.
            psycopg.Error: The database is not available. The batch may be written again.
        """
        missing_days.admit_expired(self.connection, batch, self._window)
        batch.arrange()
        for path in (_WritePath.FAST, _WritePath.DEDUPLICATED):
            try:
                return self._transaction(batch, claims, high, path)
            except psycopg.Error as error:
                if classify_error(error) is not ErrorCause.BATCH:
                    raise
            for name in batch.rows:
                self._slow_batches_left[name] = SLOW_PATH_BATCHES
        return self._transaction(batch, claims, high, _WritePath.ISOLATED)

    def _transaction(
        self, batch: Batch, claims: Claims, high: Ends, path: _WritePath
    ) -> WriteResult:
        result = StoreOutcome([*batch.repeated], [*batch.unplaced])
        connection = self.connection
        try:
            with connection.transaction():
                session.apply_settings_on_nodes(connection)
                for name in batch.list_entities():
                    self._store(connection, BY_NAME[name], batch.rows[name], result, path)
                if path is not _WritePath.ISOLATED:  # it stores each row with its keys
                    store_search_keys(connection, _collect_stored_keys(batch, result))
                rows = [*chain.from_iterable(batch.rows.values())]
                children = store_children(connection, rows, self._listed_children)
                bad = [*batch.rejects, *result.rejects]
                rejects.quarantine_messages(connection, bad, claims)
                rejects.resolve_read_again(connection, bad, batch.progress, claims)
                empty_offsets.note_empty_offsets(
                    connection, result.repeated, batch.expired, batch.progress
                )
                written = _count_messages(batch, result)
                stored, repeated = written.stored, written.repeated
                moves = [
                    LedgerMove(
                        claims[at], batch.progress[at], stored[at], repeated[at], high.get(at)
                    )
                    for at in sorted(batch.progress)
                ]
                ledger.advance_partitions(connection, moves)
                unstored = (*result.repeated, *(reject.message for reject in result.rejects))
                late_versions.note_late_versions(connection, rows, unstored)
        except errors.CheckViolation as error:
            if not is_missing_partition(error):
                raise
            if not missing_days.create_missing_partitions(
                connection, batch, self._window(connection)
            ):
                raise
            return self._transaction(batch, claims, high, path)
        if len(self._listed_children) > REMEMBERED_CHILDREN:
            self._listed_children.clear()
        self._listed_children |= children
        return written

    def _store(
        self,
        connection: Connection,
        entity: EntityKind,
        rows: list[DecodedRow],
        result: StoreOutcome,
        path: _WritePath,
    ) -> None:
        left = self._slow_batches_left[entity.name]
        if path is _WritePath.FAST and left == 0:
            copy_rows(connection, entity, rows)
            return
        store = store_isolated if path is _WritePath.ISOLATED else store_deduplicated
        outcome = store(connection, entity, rows)
        result.repeated.extend(outcome.repeated)
        result.rejects.extend(outcome.rejects)
        slow = outcome.repeated or outcome.rejects or path is not _WritePath.FAST
        self._slow_batches_left[entity.name] = SLOW_PATH_BATCHES if slow else left - 1


def _collect_stored_keys(batch: Batch, result: StoreOutcome) -> list[SearchKeyRow]:
    """Return the search keys of the rows that are in the tables now."""
    if not result.rejects:
        return batch.keys
    refused = {id(reject.message) for reject in result.rejects}
    keys = NewSearchKeys()
    for row in chain.from_iterable(batch.rows.values()):
        if id(row.message) not in refused:
            keys.add_record(row.record)
    return keys.list_rows()


def _count_messages(batch: Batch, result: StoreOutcome) -> WriteResult:
    repeated = _count_by_partition(batch, result.repeated)
    refused = _count_by_partition(batch, (reject.message for reject in result.rejects))
    stored = {
        source: progress.good - repeated[source] - refused[source]
        for source, progress in batch.progress.items()
    }
    fingerprints = {} if result.rejects else batch.fingerprints
    return WriteResult(stored, repeated, tuple(result.rejects), fingerprints)


def _count_by_partition(batch: Batch, messages: Iterable[Message]) -> Counter[TopicPartition]:
    """Count the messages by the partition of the batch from which they came."""
    sources = {(source.topic, source.partition): source for source in batch.progress}
    return Counter(sources[message.topic, message.partition] for message in messages)
