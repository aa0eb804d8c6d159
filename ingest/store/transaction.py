"""Writes one batch to the database in one transaction. Begin with `BatchWriter.write`.

Rows are written by COPY. If a row is stored already, or PostgreSQL refuses a row, the transaction
is rolled back. Then the slow path finds such rows and writes the batch.
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
from ingest.messages.message import KafkaMessage, TopicPartition
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

# After a batch that needed the slow path, this many further batches with rows of the same kind
# begin with the slow path.
SLOW_PATH_BATCHES = 20
# On a cluster, a writer remembers the children and days that it has added to the table of children,
# and does not add them again. If it remembers more than this number, it forgets all of them.
REMEMBERED_CHILDREN = 50_000


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The messages of a written batch by fate, and the search keys that were stored."""

    stored: Mapping[TopicPartition, int]  # how many messages were stored, by partition
    repeated: Mapping[TopicPartition, int]  # how many were stored before, by partition
    refused: tuple[BadMessage, ...] = ()  # messages that the database refused
    # the fingerprints of the search keys that were stored, by id of the document
    fingerprints: Mapping[str, KeyFingerprint] = field(default_factory=dict)


class _WritePath(Enum):
    """The ways to write the rows of a batch. They are tried in the order of the members."""

    FAST = "fast"  # all rows of a kind in one COPY
    DEDUPLICATED = "deduplicated"  # without the rows that are stored already
    ISOLATED = "isolated"  # also without the rows that PostgreSQL refuses


class BatchWriter(DatabaseSession):
    """A database session that writes batches, each in one transaction."""

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

    def write(self, batch: Batch, claims: Claims, end_offsets: Ends) -> WriteResult:
        """Store rows and bad messages of a batch, and move the ledger, in one transaction.

        The batch is tried with one write path after another, until one succeeds. Before that,
        expired rows that can still be stored are accepted: see `missing_days.admit_expired`.

        Args:
            end_offsets: The end offset of each partition at the broker. None if it is not known.

        Raises:
            FencedError: Another consumer has claimed or advanced one of the partitions.
            psycopg.Error: The database is not available. The caller can write the batch again.
        """
        missing_days.admit_expired(self.connection, batch, self._window)
        batch.arrange()
        for path in (_WritePath.FAST, _WritePath.DEDUPLICATED):
            try:
                return self._write_in_transaction(batch, claims, end_offsets, path)
            except psycopg.Error as error:
                if classify_error(error) is not ErrorCause.BATCH:
                    raise
            for name in batch.rows:
                self._slow_batches_left[name] = SLOW_PATH_BATCHES
        return self._write_in_transaction(batch, claims, end_offsets, _WritePath.ISOLATED)

    def _write_in_transaction(
        self, batch: Batch, claims: Claims, end_offsets: Ends, path: _WritePath
    ) -> WriteResult:
        """Write the batch by one path, and commit.

        If a day has no partition in the table, the transaction is rolled back. Then the day's
        partition is created, and the batch is written again by the same path.
        """
        # Messages of days that cannot get a partition go to quarantine, like messages that
        # PostgreSQL refuses.
        outcome = StoreOutcome(repeated=[*batch.repeated], refused=[*batch.unplaced])
        connection = self.connection
        try:
            with connection.transaction():
                session.apply_settings_on_nodes(connection)
                for name in batch.list_entities():
                    self._store_rows(connection, BY_NAME[name], batch.rows[name], outcome, path)
                if path is not _WritePath.ISOLATED:  # which stores each row with its search keys
                    store_search_keys(connection, _collect_stored_keys(batch, outcome))
                rows = [*chain.from_iterable(batch.rows.values())]
                children = store_children(connection, rows, self._listed_children)
                bad_messages = [*batch.bad_messages, *outcome.refused]
                rejects.quarantine_messages(connection, bad_messages, claims)
                rejects.resolve_reread_messages(connection, bad_messages, batch.progress, claims)
                empty_offsets.note_empty_offsets(
                    connection, outcome.repeated, batch.expired, batch.progress
                )
                written = _count_messages(batch, outcome)
                moves = [
                    LedgerMove(
                        claim=claims[topic_partition],
                        progress=batch.progress[topic_partition],
                        stored=written.stored[topic_partition],
                        repeated=written.repeated[topic_partition],
                        end_offset=end_offsets.get(topic_partition),
                    )
                    for topic_partition in sorted(batch.progress)
                ]
                ledger.advance_partitions(connection, moves)
                not_new = (
                    *outcome.repeated,
                    *(bad_message.message for bad_message in outcome.refused),
                )
                # Last, because requests for the feed of changes wait for a lock of this call.
                late_versions.note_late_versions(connection, rows, not_new)
        except errors.CheckViolation as error:
            if not is_missing_partition(error):
                raise
            if not missing_days.create_missing_partitions(
                connection, batch, self._window(connection)
            ):
                raise
            return self._write_in_transaction(batch, claims, end_offsets, path)
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

        If an earlier batch needed the slow path for this kind, the fast path is not tried for
        SLOW_PATH_BATCHES batches.

        Args:
            outcome: The repeated and refused messages of the kind are added to this object.
        """
        slow_batches_left = self._slow_batches_left[entity.name]
        if path is _WritePath.FAST and slow_batches_left == 0:
            copy_rows(connection, entity, rows)
            return
        store = store_isolated if path is _WritePath.ISOLATED else store_deduplicated
        kind_outcome = store(connection, entity, rows)
        outcome.repeated.extend(kind_outcome.repeated)
        outcome.refused.extend(kind_outcome.refused)
        if kind_outcome.repeated or kind_outcome.refused or path is not _WritePath.FAST:
            self._slow_batches_left[entity.name] = SLOW_PATH_BATCHES
        else:
            self._slow_batches_left[entity.name] = slow_batches_left - 1


def _collect_stored_keys(batch: Batch, outcome: StoreOutcome) -> list[SearchKeyRow]:
    """Return the search keys of the rows that PostgreSQL did not refuse."""
    if not outcome.refused:
        return batch.keys
    refused_ids = {id(bad_message.message) for bad_message in outcome.refused}
    keys = NewSearchKeys()
    for row in chain.from_iterable(batch.rows.values()):
        if id(row.message) not in refused_ids:
            keys.add_record(row.record)
    return keys.list_rows()


def _count_messages(batch: Batch, outcome: StoreOutcome) -> WriteResult:
    """Return the result of the write, with the messages counted by partition."""
    repeated = _count_by_partition(batch, outcome.repeated)
    refused = _count_by_partition(batch, (bad_message.message for bad_message in outcome.refused))
    stored = {
        topic_partition: progress.good - repeated[topic_partition] - refused[topic_partition]
        for topic_partition, progress in batch.progress.items()
    }
    # If a row was refused, some search keys were not stored, so none is remembered as stored.
    fingerprints = {} if outcome.refused else batch.fingerprints
    return WriteResult(stored, repeated, tuple(outcome.refused), fingerprints)


def _count_by_partition(batch: Batch, messages: Iterable[KafkaMessage]) -> Counter[TopicPartition]:
    """Count messages of the batch by the topic partition from which they came."""
    by_name = {topic_partition.kafka: topic_partition for topic_partition in batch.progress}
    return Counter(by_name[message.topic, message.partition] for message in messages)
