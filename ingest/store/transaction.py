"""Writes one batch to the database in one transaction. Begin with `BatchWriter.write`.

Rows are written by COPY. If a row is stored already, or PostgreSQL cannot store one, the
transaction is rolled back. Then the slow path writes the batch, and finds these rows.
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
from ingest.store.batch import BadMessage, Batch, DecodedRow
from ingest.store.claim import Claims, Ends
from ingest.store.fast_path import copy_rows, store_children, store_search_keys
from ingest.store.ledger import Connection, LedgerMove
from ingest.store.missing_days import get_safe_window
from ingest.store.session import DatabaseSession
from ingest.store.slow_path import StoreOutcome, store_deduplicated, store_isolated
from ingest.store.sqlstate import ErrorCause, classify_error, is_missing_partition

# After a batch that needed the slow path, this many batches with rows of the same kind begin there.
SLOW_PATH_BATCHES = 20
# A writer remembers the days of children that it has listed, and does not list them again. When
# there are more than this, it forgets all of them.
REMEMBERED_CHILDREN = 50_000


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of the messages of a batch."""

    stored: Mapping[TopicPartition, int]  # how many messages were stored, by partition
    repeated: Mapping[TopicPartition, int]  # how many were stored before, by partition
    rejects: tuple[BadMessage, ...] = ()  # messages that the database refused
    # the fingerprints of the search keys that were stored, by id of the document
    fingerprints: Mapping[str, KeyFingerprint] = field(default_factory=dict)


class _WritePath(Enum):
    """How the rows of a batch are written, in the order of the attempts."""

    FAST = "fast"  # all rows of a kind in one COPY
    DEDUPLICATED = "deduplicated"  # without the rows that are stored already
    ISOLATED = "isolated"  # so that one bad row does not keep out the others


class BatchWriter(DatabaseSession):
    """Writes batches through its connection."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        window: Callable[[Connection], Window] = get_safe_window,
    ) -> None:
        """Set up the writer.

        Args:
            window: Returns the days that are kept. If such a day has no partition, the writer
                creates it. Rows of earlier days are expired.
        """
        super().__init__(connect)
        self._window = window
        self._slow_batches_left: Counter[str] = Counter()
        self._listed_children: set[int] = set()

    def write(self, batch: Batch, claims: Claims, high: Ends) -> WriteResult:
        """Store rows and bad messages of a batch and move the ledger, all or nothing.

        Each attempt is a transaction. Before the first one, expired rows whose day exists after all
        are added to the rows of the batch.

        Args:
            high: The end offset of each partition at the broker. None if it is not known.

        Raises:
            FencedError: Another consumer has claimed or advanced one of the partitions.
            psycopg.Error: The database is not available. The batch may be written again.
        """
        missing_days.admit_expired(self.connection, batch, self._window)
        batch.arrange()
        for path in (_WritePath.FAST, _WritePath.DEDUPLICATED):
            try:
                return self._write_in_transaction(batch, claims, high, path)
            except psycopg.Error as error:
                if classify_error(error) is not ErrorCause.BATCH:
                    raise
            for name in batch.rows:
                self._slow_batches_left[name] = SLOW_PATH_BATCHES
        return self._write_in_transaction(batch, claims, high, _WritePath.ISOLATED)

    def _write_in_transaction(
        self, batch: Batch, claims: Claims, high: Ends, path: _WritePath
    ) -> WriteResult:
        """Write the batch by one path, and commit.

        If a day has no partition, the transaction is rolled back, the partition is created, and the
        batch is written again.
        """
        outcome = StoreOutcome([*batch.repeated], [*batch.unplaced])
        connection = self.connection
        try:
            with connection.transaction():
                session.apply_settings_on_nodes(connection)
                for name in batch.list_entities():
                    self._store_rows(connection, BY_NAME[name], batch.rows[name], outcome, path)
                if path is not _WritePath.ISOLATED:  # that path stores each row with its keys
                    store_search_keys(connection, _collect_stored_keys(batch, outcome))
                rows = [*chain.from_iterable(batch.rows.values())]
                children = store_children(connection, rows, self._listed_children)
                bad_messages = [*batch.rejects, *outcome.rejects]
                rejects.quarantine_messages(connection, bad_messages, claims)
                rejects.resolve_read_again(connection, bad_messages, batch.progress, claims)
                empty_offsets.note_empty_offsets(
                    connection, outcome.repeated, batch.expired, batch.progress
                )
                written = _count_messages(batch, outcome)
                moves = [
                    LedgerMove(
                        claim=claims[source],
                        progress=batch.progress[source],
                        stored=written.stored[source],
                        repeated=written.repeated[source],
                        high_watermark=high.get(source),
                    )
                    for source in sorted(batch.progress)
                ]
                ledger.advance_partitions(connection, moves)
                unstored = (*outcome.repeated, *(reject.message for reject in outcome.rejects))
                # Last: readers of the feed of changes wait for the lock that this takes.
                late_versions.note_late_versions(connection, rows, unstored)
        except errors.CheckViolation as error:
            if not is_missing_partition(error):
                raise
            if not missing_days.create_missing_partitions(
                connection, batch, self._window(connection)
            ):
                raise
            return self._write_in_transaction(batch, claims, high, path)
        if len(self._listed_children) > REMEMBERED_CHILDREN:
            self._listed_children.clear()
        self._listed_children |= children
        return written

    def _store_rows(
        self,
        connection: Connection,
        entity: EntityKind,
        rows: list[DecodedRow],
        outcome: StoreOutcome,
        path: _WritePath,
    ) -> None:
        """Store the rows of one kind.

        Rows of a kind that needed the slow path lately do not try the fast one.

        Args:
            outcome: The repeats and rejects are added to it.
        """
        slow_batches_left = self._slow_batches_left[entity.name]
        if path is _WritePath.FAST and slow_batches_left == 0:
            copy_rows(connection, entity, rows)
            return
        store = store_isolated if path is _WritePath.ISOLATED else store_deduplicated
        kind_outcome = store(connection, entity, rows)
        outcome.repeated.extend(kind_outcome.repeated)
        outcome.rejects.extend(kind_outcome.rejects)
        if kind_outcome.repeated or kind_outcome.rejects or path is not _WritePath.FAST:
            self._slow_batches_left[entity.name] = SLOW_PATH_BATCHES
        else:
            self._slow_batches_left[entity.name] = slow_batches_left - 1


def _collect_stored_keys(batch: Batch, outcome: StoreOutcome) -> list[SearchKeyRow]:
    """Return the search keys of the rows that are in the tables now."""
    if not outcome.rejects:
        return batch.keys
    refused = {id(reject.message) for reject in outcome.rejects}
    keys = NewSearchKeys()
    for row in chain.from_iterable(batch.rows.values()):
        if id(row.message) not in refused:
            keys.add_record(row.record)
    return keys.list_rows()


def _count_messages(batch: Batch, outcome: StoreOutcome) -> WriteResult:
    """Return the result of the write, with the messages counted by partition."""
    repeated = _count_by_partition(batch, outcome.repeated)
    refused = _count_by_partition(batch, (reject.message for reject in outcome.rejects))
    stored = {
        source: progress.good - repeated[source] - refused[source]
        for source, progress in batch.progress.items()
    }
    # Some keys were not stored if a row was refused: then none is remembered as stored.
    fingerprints = {} if outcome.rejects else batch.fingerprints
    return WriteResult(stored, repeated, tuple(outcome.rejects), fingerprints)


def _count_by_partition(batch: Batch, messages: Iterable[Message]) -> Counter[TopicPartition]:
    """Count messages of the batch by the topic partition from which they came."""
    sources = {(source.topic, source.partition): source for source in batch.progress}
    return Counter(sources[message.topic, message.partition] for message in messages)
