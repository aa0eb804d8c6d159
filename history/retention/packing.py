"""Packs finished days: many versions of a document become one row, a block. Also unpacks them.

Begin with `pack_day`. It builds a new table beside the table of the day, and swaps the two in one
short transaction:

- Each block is unpacked and compared with its rows before it is written.
- The new table is read back and compared with the rows that were written to it.
- Triggers note the rows that change meanwhile. Under the lock of the swap both tables are proved to
  have the same versions (history.store.days.table_swap).

Nothing is changed before the swap. A run that is killed leaves its triggers, and the next run
removes them.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from itertools import cycle, groupby, islice, zip_longest
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter
from psycopg.rows import tuple_row

from history.common import clock
from history.common.explained_errors import ExplainedError
from history.kinds.entities import EntityKind
from history.models import PackAttempt, PackDictionary, SealedDay
from history.retention import cluster_swap
from history.retention.catalog import Partition, find_filled
from history.retention.cluster_swap import IdRange, KeyDigest, NodeUse
from history.retention.partition_output import format_size
from history.retention.seals import day_snapshot, late_rows, verification
from history.retention.seals.seal import YOUNGEST_DAYS
from history.store import distribution
from history.store.blocks import dictionaries
from history.store.blocks.codec import (
    MOST_BYTES,
    BlockPacker,
    CanonicalRow,
    expand_block,
    split_into_blocks,
)
from history.store.blocks.dictionaries import Dictionary
from history.store.database import forms, session
from history.store.days import days, table_swap
from history.store.days.canonical import Connection, stream_versions
from history.store.days.days import DayState, DayTable
from history.store.days.table_swap import StoredRow, TableWatch


class FormedRow(NamedTuple):
    """A row for the new table of a day, and how many versions this row stores."""

    row: StoredRow
    versions: int


# Called with the versions of one document. Yields the rows of the new table that store them.
FormRows: TypeAlias = Callable[[Iterable[CanonicalRow]], Iterable[FormedRow]]

# Called with the number of versions that were packed or unpacked since the last call.
ReportRows = Callable[[int], None]

# A day is packed again when more than this share of its rows came late.
LATE_SHARE: Final = 0.01
# A new dictionary is trained when the ratio of a day (see `_FilledTable.ratio`) is this many times
# the ratio of the first day that was packed with the present dictionary.
WORSE: Final = 1.1
# A dictionary is trained with at most this many snapshots, and this many bytes of snapshots.
# zstd gains nothing from more than a hundred times the size of the dictionary.
SAMPLES: Final = 4_000
SAMPLE_BYTES: Final = 100 * dictionaries.DICTIONARY_BYTES
# Progress is reported, and the rate of packing is checked, each time after this many versions.
ROWS_AT_ONCE: Final = 500


# Notes when the attempt to pack a day began.
_NOTE_ATTEMPT: Final = """
INSERT INTO pack_attempt ("table", day, began_at)
VALUES (%(table)s, %(day)s, clock_timestamp())
ON CONFLICT ("table", day) DO UPDATE SET began_at = excluded.began_at
"""
# Removes the note of an attempt that succeeded.
_DELETE_ATTEMPT: Final = """
DELETE FROM pack_attempt WHERE "table" = %(table)s AND day = %(day)s
"""
# Marks a day as packed.
_NOTE_PACKED: Final = """
INSERT INTO sealed_day ("table", day, packed_at)
VALUES (%(table)s, %(day)s, clock_timestamp())
ON CONFLICT ("table", day) DO UPDATE SET packed_at = excluded.packed_at, dropped_at = NULL
"""
# Marks a day as not packed.
_NOTE_UNPACKED: Final = """
UPDATE sealed_day SET packed_at = NULL WHERE "table" = %(table)s AND day = %(day)s
"""


class NotPackableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be packed or unpacked. The message says why."""


class DoubledVersionError(NotPackableError):
    """Raised when a day has two rows for one version. The message names version and remedy."""


class WrongRowsError(ExplainedError, RuntimeError):
    """Raised when the new table has other versions than the day. The day stays as it is.

    This is a defect of Annals.
    """


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The result of packing or unpacking a day."""

    rows: int  # versions of the day
    before: int  # bytes of the old table of the day, with indexes
    after: int  # bytes of the new table, with indexes


def find_due_days(
    existing: Iterable[Partition], today: date, after_days: int
) -> list[tuple[str, date]]:
    """Return table and day of each day to pack: plain days, and packed days with many late rows.

    The newest day comes first. Days with a failed attempt come last, the oldest attempt first.

    Args:
        existing: The partitions of the tables of versions.
        after_days: How many days after its end a day is packed. 0: no day is packed.
    """
    if not after_days:
        return []
    packed_at = dict(_load_packed_days())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS))
    plain_days: dict[str, tuple[str, date]] = {}  # by the name of the partition
    due_days = []
    for partition in existing:
        if partition.day and partition.day < end and partition.state is DayState.ATTACHED:
            table_day = partition.table, partition.day
            if table_day not in packed_at:
                plain_days[partition.name] = table_day
                continue
            late = late_rows.count_late_rows_since(*table_day, packed_at[table_day])
            if late > LATE_SHARE * partition.rows:
                due_days.append(table_day)
    due_days += [plain_days[name] for name in find_filled(list(plain_days))]
    due_days.sort(key=itemgetter(1), reverse=True)
    attempts = PackAttempt.objects.values_list("table", "day", "began_at")
    failed_at = {(table, day): began_at.timestamp() for table, day, began_at in attempts}
    return sorted(due_days, key=lambda table_day: failed_at.get(table_day, 0.0))


# A partition without rows takes less than this on disk: it has 88 KB of indexes. On a cluster, this
# holds for each shard.
_EMPTY_BYTES: Final = 128 * 1024


def count_overdue_days(existing: Iterable[Partition], today: date, after_days: int) -> Counter[str]:
    """Count the overdue days of each table. See `find_overdue_days`."""
    return Counter(table for table, _day in find_overdue_days(existing, today, after_days))


def find_overdue_days(
    existing: Iterable[Partition], today: date, after_days: int
) -> list[tuple[str, date]]:
    """Return table and day of each day with rows that should have been packed at least a day ago.

    Makes at most one query and does not read partitions, so the web may call it.

    Args:
        after_days: How many days after its end a day is packed. 0: no day is packed.
    """
    if not after_days:
        return []
    packed_at = dict(_load_packed_days())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS) + 1)
    return [
        (partition.table, partition.day)
        for partition in existing
        if partition.day
        and partition.day < end
        and partition.bytes > _EMPTY_BYTES * partition.shards
        if (partition.table, partition.day) not in packed_at
    ]


def _load_packed_days() -> Iterator[tuple[tuple[str, date], datetime]]:
    for table, day, packed_at in SealedDay.objects.values_list("table", "day", "packed_at"):
        if packed_at is not None:
            yield (table, day), packed_at


def pack_day(
    connection: Connection,
    entity: EntityKind,
    day: date,
    *,
    rate: int = 0,
    progress: ReportRows = lambda _: None,
) -> RewriteResult:
    """Pack a day of one table, while others read and write it.

    Needs the run lock, and a `connection` in autocommit mode.

    Args:
        rate: How many versions to pack per second. 0: as many as possible.

    Raises:
        NotPackableError: The day is too young by the clock of this machine or of the server, has a
            version twice, or needs more disk than is free. Or the partition of the day does not
            exist or was not created by Annals.
        EarlierReleaseError: A process is connected that cannot read blocks.
        SealedDayChangedError: The rows of the day differ from the seal.
        psycopg.errors.LockNotAvailable: Rows were changed meanwhile, or a transaction stays open. A
            later attempt can succeed.
    """
    first_date = day + timedelta(days=YOUNGEST_DAYS + 1)
    if clock.get_earlier_time(connection).date() < first_date:
        raise NotPackableError(
            f"{entity.table} {day} cannot be packed before {first_date} (UTC): until then rows of"
            " the day may still arrive"
        )
    return DayRewrite(connection, entity, day, rate, progress).pack()


def unpack_day(
    connection: Connection, entity: EntityKind, day: date, *, progress: ReportRows = lambda _: None
) -> RewriteResult:
    """Unpack a day: store each version of the day as a plain row again.

    See `pack_day` for conditions and errors. A day can be unpacked at any age.
    """
    return DayRewrite(connection, entity, day, 0, progress).unpack()


@dataclass(frozen=True, slots=True)
class DayRewrite:
    """Packs or unpacks one day. An instance is used once."""

    _connection: Connection
    _entity: EntityKind
    _day: date
    _rate: int
    _progress: ReportRows

    def pack(self) -> RewriteResult:
        day_table = self._locate_day()
        forms.activate(self._connection)
        self._check_disk(day_table)
        verification.check_sealed_day(self._connection, self._entity, self._day)
        self._note_attempt()
        dictionary = self.choose_dictionary(day_table)
        pack_document = partial(self._pack_document, BlockPacker(dictionary), dictionary)
        replacement = self._replace_table(day_table, pack_document, packed=True)
        if dictionary is not None:
            self._retrain_if_worse(day_table, dictionary, replacement.ratio)
        return replacement.result

    def unpack(self) -> RewriteResult:
        return self._replace_table(self._locate_day(), _keep_plain, packed=False).result

    def _locate_day(self) -> DayTable:
        day_table = days.locate_day(self._connection, self._entity.table, self._day)
        if day_table.state is not DayState.ATTACHED or not day_table.is_created_by_annals:
            raise NotPackableError(
                f"{self._entity.table} {self._day}: the partition does not exist or was not created"
                " by Annals"
            )
        return day_table

    def _check_disk(self, day_table: DayTable) -> None:
        """Check that the disk has space for the new table beside the old one.

        ANNALS_DISK_GB is the size of the disk. If it is not set, nothing is checked.

        Raises:
            NotPackableError: The server, or a node of the cluster, does not have the space.
        """
        if not settings.ANNALS.disk_gb:
            return
        if self._is_distributed():
            uses = cluster_swap.measure_nodes(self._connection, day_table.child)
        else:
            row = self._connection.execute("SELECT pg_database_size(current_database())").fetchone()
            uses = [NodeUse(None, row[0] if row else 0, self.measure_table(day_table.child))]
        for use in uses:
            free = max(0, settings.ANNALS.disk_gb * 10**9 - use.database)
            needed = use.table * 6 // 5  # the new table, and temporary files of sorting
            if free < needed:
                node = f" on {use.node}" if use.node else ""
                raise NotPackableError(
                    f"{self._entity.table} {self._day} is not packed: packing needs "
                    f"{format_size(needed)} of disk{node}"
                    f" for a while, and {format_size(free)} of ANNALS_DISK_GB are free"
                )

    def _note_attempt(self) -> None:
        """Note that packing begins.

        If packing this day kills the process, the next run packs the other days first.
        """
        self._connection.execute(_NOTE_ATTEMPT, {"table": self._entity.table, "day": self._day})

    def choose_dictionary(self, day_table: DayTable) -> Dictionary | None:
        """Return the newest dictionary of the table, or train and store the first one.

        Returns:
            None if the day has too few snapshots to train a dictionary.

        Raises:
            psycopg.errors.LockNotAvailable: A transaction that cannot see the new dictionary did
                not end within LOCK_WAIT_S.
        """
        newest = dictionaries.load_newest_dictionary(self._connection, self._entity.table)
        if newest is not None:
            return newest
        trained = dictionaries.train_dictionary(self._sample_snapshots(day_table))
        if trained is not None:
            self._store_dictionary(trained)
        return trained

    def _sample_snapshots(self, day_table: DayTable) -> list[bytes]:
        """Return some snapshots of a plain day, from all parts of its table.

        Snapshots that are larger than a block are left out.
        """
        order: sql.Composable = sql.SQL("")
        if self._is_distributed():
            use = cluster_swap.measure_table(self._connection, day_table.child)
            share = min(2 * SAMPLES / max(1, use.rows), 2 * SAMPLE_BYTES / max(1, use.table))
            percent: sql.Composable = sql.Literal(min(100.0, 100.0 * share))
            # Without ORDER BY the rows come shard by shard, and LIMIT cuts off the last shards.
            order = sql.SQL("ORDER BY hashtextextended(id, version)")
        else:
            percent = sql.SQL(
                "least(100, 100.0 * (SELECT least({rows} / greatest(1, reltuples),"
                "  {bytes} / greatest(1, pg_table_size(oid))::float8)"
                "  FROM pg_class WHERE oid = {name}::regclass))"
            ).format(
                name=sql.Literal(day_table.child.as_string(self._connection)),
                rows=sql.Literal(2 * SAMPLES),
                bytes=sql.Literal(2 * SAMPLE_BYTES),
            )
        query = sql.SQL(
            "SELECT convert_to(data::text, 'UTF8') FROM {table} TABLESAMPLE SYSTEM ({percent})"
            " WHERE packed IS NULL AND pg_column_size(data) <= {most}"
            " AND octet_length(data::text) <= {most} {order} LIMIT {rows}"
        ).format(
            table=day_table.child,
            order=order,
            percent=percent,
            rows=sql.Literal(2 * SAMPLES),
            most=sql.Literal(MOST_BYTES),
        )
        # psycopg refuses binary results on the client-side cursors that Django uses.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            return _limit_samples(text for (text,) in cursor.stream(query, binary=True))

    def _store_dictionary(self, dictionary: Dictionary) -> None:
        """Store a new dictionary, and wait until every open transaction sees it.

        The rows of the blocks are frozen, so even a transaction that began before the swap sees
        them. But it does not see a dictionary that was stored after it began. If such a transaction
        stays open, the dictionary is removed again.

        Raises:
            psycopg.errors.LockNotAvailable: A transaction did not end within LOCK_WAIT_S.
        """
        connection, table = self._connection, self._entity.table
        was_stored = PackDictionary.objects.filter(number=dictionary.number).exists()
        dictionaries.store_dictionary(connection, table, dictionary)
        if was_stored:
            return
        try:
            late_rows.wait_for_transactions(connection)
        except BaseException:
            if not connection.closed:
                connection.execute(
                    "DELETE FROM pack_dictionary WHERE number = %s", [dictionary.number]
                )
            raise

    def _pack_document(
        self, packer: BlockPacker, dictionary: Dictionary | None, rows: Iterable[CanonicalRow]
    ) -> Iterator[FormedRow]:
        """Yield the versions of a document as blocks.

        Raises:
            WrongRowsError: A block, unpacked again, differs from its versions.
        """
        for block in split_into_blocks(rows):
            packed = packer.pack_block(block)
            self.compare_versions(block, [packed], dictionary)
            yield FormedRow(packed, len(block))

    def compare_versions(
        self,
        rows: Sequence[CanonicalRow],
        stored_rows: Iterable[StoredRow],
        dictionary: Dictionary | None,
    ) -> None:
        """Check that `stored_rows` contain exactly the versions `rows`.

        Args:
            rows: The versions of the old table, as plain rows.
            stored_rows: The plain rows and blocks of the new table.
            dictionary: The dictionary of the blocks.

        Raises:
            WrongRowsError: The versions differ.
        """
        unpacked_rows = (  # one block at a time: a whole document may be too large for memory
            unpacked_row
            for row, block in stored_rows
            for unpacked_row in ([row] if block is None else expand_block(row, block, dictionary))
        )
        if any(
            unpacked_row != original_row
            for unpacked_row, original_row in zip_longest(unpacked_rows, rows)
        ):
            raise self._build_defect_error()

    def _replace_table(
        self, day_table: DayTable, form_rows: FormRows, *, packed: bool
    ) -> _Replacement:
        """Build a new table with the versions of the day, and swap it with the old one.

        Args:
            form_rows: Makes the rows of the new table.
            packed: Whether these rows are blocks.
        """
        if self._is_distributed():
            return self._replace_on_cluster(day_table, form_rows, packed=packed)
        connection, entity, day = self._connection, self._entity, self._day
        # The swap waits for these transactions anyway. If one of them stays open, fail now and not
        # after the work.
        late_rows.wait_for_others(connection, [day_table.parent, day_table.child])
        with table_swap.watch_table(connection, day_table) as watch, connection.transaction():
            distribution.use_one_connection(connection)
            new = day_table._replace(child=day_table.new)
            days.create_detached_table(connection, new, day, day_table.comment or days.MARK)
            filled = self.fill_table(day_table, form_rows, [cluster_swap.ALL_IDS])
            connection.execute(sql.SQL("REINDEX TABLE {}").format(day_table.new))
            connection.execute(sql.SQL("ANALYZE {}").format(day_table.new))
            if packed:
                table_swap.guard_table(connection, day_table.new)
            before, after = self.measure_table(day_table.child), self.measure_table(day_table.new)
            # Copy the rows that came meanwhile before the swap takes its lock. Then few rows are
            # left to copy under the lock.
            rows = filled.versions + watch.add_noted_rows(connection, entity, day_table)
            was_packed = days.is_packed(connection, entity.table, day)

            def prove(old: DayTable) -> None:
                self.prove_equal_versions(watch, old, rows, was_packed)

            days.replace_table(connection, entity.table, day, prove)
            self._note_form(packed)
        return _Replacement(RewriteResult(rows, before, after), filled.ratio)

    def fill_table(
        self, day_table: DayTable, form_rows: FormRows, ranges: Sequence[IdRange]
    ) -> _FilledTable:
        """Write the versions of the day to its new table. Check that the table has what was sent.

        Args:
            ranges: The ranges of ids in which the day is read, in the order of the ids.

        Raises:
            WrongRowsError: The new table has other rows than were sent.
            DoubledVersionError: The day has a version twice.
        """
        filled = _FilledTable()
        with closing(self._stream_day(day_table, ranges)) as rows:
            sent_digest = self._write_rows(
                day_table.new,
                self._form_day(rows, form_rows, filled),
                frozen=not self._is_distributed(),
            )
        if self._hash_stored_rows(day_table.new, ranges) != sent_digest:
            raise self._build_defect_error()
        return filled

    def _list_id_ranges(self, day_table: DayTable) -> Sequence[IdRange]:
        """Return the ranges of ids in which the day is read, one range after another.

        On a cluster there are several ranges, otherwise one with all ids.
        """
        if self._is_distributed():
            return cluster_swap.split_table(self._connection, day_table.child)
        return [cluster_swap.ALL_IDS]

    def _stream_day(
        self, day_table: DayTable, ranges: Sequence[IdRange]
    ) -> Generator[CanonicalRow]:
        """Yield the versions of the day, range after range.

        The versions are read in database sessions that do nothing else, so that reading, packing
        and writing go on at the same time. If there are several ranges, two sessions take turns:
        the nodes of the cluster sort the next range while this process packs the current range.
        """
        with ExitStack() as stack:
            readers = [stack.enter_context(self._open_reader()) for _ in ranges[:2]]
            streams = (
                self._stream_versions(reader, day_table, [id_range])
                for reader, id_range in zip(cycle(readers), ranges, strict=False)
            )
            rows = stack.enter_context(closing(cluster_swap.chain_streams(readers, streams)))
            yield from rows

    @contextmanager
    def _open_reader(self) -> Iterator[Connection]:
        """Open a session that reads the day. Close it when the `with` block ends."""
        info = self._connection.info
        with closing(psycopg.connect(info.dsn, password=info.password, autocommit=True)) as reader:
            session.remove_time_limit(reader)
            forms.open_session(reader)
            if self._is_distributed():
                cluster_swap.allow_memory(reader)
            yield reader

    def _stream_versions(
        self, connection: Connection, day_table: DayTable, ranges: Iterable[IdRange]
    ) -> Generator[CanonicalRow]:
        """Yield the versions of the day, with their snapshots as bytes.

        Within a range of ids they come in the canonical order.
        """
        for id_range in ranges:
            source = id_range.select_from(day_table.child)
            yield from stream_versions(connection, self._entity, source, data="bytea")

    def _form_day(
        self, rows: Iterable[CanonicalRow], form_rows: FormRows, filled: _FilledTable
    ) -> Iterator[StoredRow]:
        """Yield the rows of the new table, and count them in `filled`.

        Pauses if more versions were packed per second than the rate of this rewrite allows.
        """
        pace = _Pace(self._progress, self._rate)
        for _, document_rows in groupby(self.refuse_doubled(rows), itemgetter(0)):
            for formed in form_rows(document_rows):
                yield formed.row
                filled.add(formed)
                pace.add(formed.versions)
        pace.report_rest()

    def refuse_doubled(self, rows: Iterable[CanonicalRow]) -> Iterator[CanonicalRow]:
        """Yield the rows unchanged, and check that no two successive rows have the same key.

        Args:
            rows: Versions in the order of their keys.

        Raises:
            DoubledVersionError: Two rows have the same key.
        """
        previous_key = None
        for row in rows:
            if row[:3] == previous_key:
                raise DoubledVersionError(
                    f"{self._entity.table} {self._day} has version {row[1]} of {row[0]} twice: run"
                    f" `partitions repair {self._day}`"
                )
            previous_key = row[:3]
            yield row

    def _write_rows(self, new: sql.Identifier, rows: Iterable[StoredRow], *, frozen: bool) -> bytes:
        """Write rows to a new table, and return the SHA-256 of the bytes that were sent.

        Args:
            frozen: Whether to write the rows as frozen. VACUUM need not visit frozen rows again.
        """
        sent_hash = hashlib.sha256()
        table_swap.write_rows(
            self._connection,
            self._entity,
            new,
            rows,
            writer=partial(_HashingWriter, sent_hash),
            frozen=frozen,
        )
        return sent_hash.digest()

    def _hash_stored_rows(self, new: sql.Identifier, ranges: Sequence[IdRange]) -> bytes:
        """Return the SHA-256 of the rows of a new table, in the order of `_write_rows`."""
        if self._is_distributed():
            return cluster_swap.hash_rows(self._connection, self._entity, new, ranges)
        table_hash = hashlib.sha256()
        self._connection.execute("SET LOCAL synchronize_seqscans TO off")  # start at the first row
        query = table_swap.build_copy_command(self._entity, new, "TO STDOUT (FORMAT BINARY)")
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for chunk in copy:
                table_hash.update(chunk)
        return table_hash.digest()

    def prove_equal_versions(
        self, watch: TableWatch, old: DayTable, versions: int, was_packed: bool
    ) -> None:
        """Copy to the new table the rows that the old table got after `watch` was created.

        Then prove that the old and the new table have the same versions. Call this method while
        all writers are locked out.

        Args:
            watch: The watch that knows which rows of the old table have changed.
            old: The old table.
            versions: How many versions the new table has so far.
            was_packed: Whether the old table has blocks.

        Raises:
            ChangedMeanwhileError: Rows of the old table were changed or removed, so the tables
                cannot be equal. A later attempt can succeed.
            WrongRowsError: The numbers of versions differ.
        """
        versions += watch.settle(self._connection, self._entity, old)
        count = table_swap.count_cheaply(self._connection, old.child, was_packed)
        if count is not None and count != versions:
            raise self._build_defect_error()

    def _note_form(self, packed: bool) -> None:
        """Note that the day is packed or plain now, and that the attempt succeeded.

        The notes are part of the swap's transaction.
        """
        parameters = {"table": self._entity.table, "day": self._day}
        self._connection.execute(_NOTE_PACKED if packed else _NOTE_UNPACKED, parameters)
        self._connection.execute(_DELETE_ATTEMPT, parameters)

    def _replace_on_cluster(
        self, day_table: DayTable, form_rows: FormRows, *, packed: bool
    ) -> _Replacement:
        """Replace the table of a day on a cluster. See `_replace_table`.

        On a cluster there are no triggers. Instead the keys of the old table are digested twice:
        before the table is read, and under the lock of the swap. Different digests show that rows
        changed.
        """
        connection, entity, day = self._connection, self._entity, self._day
        before = cluster_swap.measure_table(connection, day_table.child).bytes
        was_packed = days.is_packed(connection, entity.table, day)
        former_keys = cluster_swap.digest_keys(connection, day_table.child, packed=was_packed)
        # Read the old table before the transaction begins. The transaction would hold its locks
        # while other sessions read the table. A session that asks for ACCESS EXCLUSIVE between the
        # two would wait for the transaction, and the readers for that session: for ever.
        ranges = self._list_id_ranges(day_table)

        try:
            with connection.transaction():
                cluster_swap.create_new_table(connection, day_table, day)
                filled = self.fill_table(day_table, form_rows, ranges)
                prove = partial(
                    self._prove_unchanged, day_table, former_keys, filled.versions, was_packed
                )
                days.replace_distributed_table(connection, entity.table, day, prove)
                self._note_form(packed)
        except cluster_swap.RowsChangedError:
            raise table_swap.ChangedMeanwhileError(
                f"{entity.table} {day} stays as it is: its rows changed while its new table was "
                "built. Try again"
            ) from None
        connection.execute(sql.SQL("ANALYZE {}").format(day_table.child))
        after = cluster_swap.measure_table(connection, day_table.child).bytes
        return _Replacement(RewriteResult(filled.versions, before, after), filled.ratio)

    def _prove_unchanged(
        self, day_table: DayTable, former_keys: KeyDigest, versions: int, was_packed: bool
    ) -> None:
        """Lock writers out of a distributed day, and prove that it has the rows that were read.

        Args:
            former_keys: The keys of the day before it was read.
            versions: How many versions were read.

        Raises:
            RowsChangedError: The keys of the day are not `former_keys` any more.
            WrongRowsError: Not all versions were read.
            psycopg.errors.LockNotAvailable: A transaction that writes stays open.
        """
        day_snapshot.stop_writers(self._connection, self._entity.table)
        keys = cluster_swap.digest_keys(self._connection, day_table.child, packed=was_packed)
        if keys != former_keys:
            raise cluster_swap.RowsChangedError
        if versions != keys.versions:
            raise self._build_defect_error()

    def _retrain_if_worse(self, day_table: DayTable, dictionary: Dictionary, ratio: float) -> None:
        """Train a new dictionary if this day was compressed much worse than the first day.

        The first day is the first that was packed with `dictionary`.

        Args:
            ratio: How well this day was compressed: see `_FilledTable.ratio`.
        """
        stored_dictionary = PackDictionary.objects.filter(number=dictionary.number)
        first_ratio = stored_dictionary.values_list("ratio", flat=True).first()
        if first_ratio is None:
            stored_dictionary.update(ratio=ratio)
        elif ratio > WORSE * first_ratio:
            ranges = self._list_id_ranges(day_table)
            # The day has blocks now, so TABLESAMPLE would not give single versions.
            with closing(self._stream_versions(self._connection, day_table, ranges)) as rows:
                snapshots = (row[-1] for row in islice(rows, 0, 4 * SAMPLES, 4))
                trained = dictionaries.train_dictionary(
                    _limit_samples(text for text in snapshots if len(text) <= MOST_BYTES)
                )
            if trained is not None:
                # If a transaction stays open, packing a later day tries again.
                with suppress(psycopg.errors.LockNotAvailable):
                    self._store_dictionary(trained)

    def _is_distributed(self) -> bool:
        """Return whether the table is distributed over the nodes of a cluster."""
        return distribution.is_distributed_table(self._connection, self._entity.table)

    def measure_table(self, table: sql.Identifier) -> int:
        """Return the bytes of a table with its indexes."""
        query = sql.SQL("SELECT pg_total_relation_size({}::regclass)")
        name = sql.Literal(table.as_string(self._connection))
        row = self._connection.execute(query.format(name)).fetchone()
        return int(row[0]) if row else 0

    def _build_defect_error(self) -> WrongRowsError:
        return WrongRowsError(
            f"{self._entity.table} {self._day} stays as it is: its new table has other versions."
            " This is a defect of Annals: set ANNALS_PACK_AFTER_DAYS=0 and report it"
        )


class _Replacement(NamedTuple):
    """The result of replacing a day's table, and how well the new table is compressed."""

    result: RewriteResult
    ratio: float  # see `_FilledTable.ratio`


def _keep_plain(rows: Iterable[CanonicalRow]) -> Iterator[FormedRow]:
    """Yield each version as a plain row."""
    for row in rows:
        yield FormedRow((row, None), 1)


@dataclass(slots=True)
class _FilledTable:
    """How much was written to the new table of a day."""

    versions: int = 0
    block_bytes: int = 0
    snapshot_bytes: int = 0  # bytes of the snapshots in the blocks, unpacked

    def add(self, formed: FormedRow) -> None:
        self.versions += formed.versions
        _, block = formed.row
        if block is not None:
            self.block_bytes += len(block.packed)
            self.snapshot_bytes += block.unpacked

    @property
    def ratio(self) -> float:
        """The bytes of the blocks, divided by the bytes of the snapshots in them."""
        return self.block_bytes / max(1, self.snapshot_bytes)


@dataclass(slots=True)
class _Pace:
    """Counts the versions that were written to the new table, and pauses to keep to a rate.

    Calls `report` after every ROWS_AT_ONCE versions.
    """

    report: ReportRows
    rate: int  # versions a second; 0: as fast as possible
    rows: int = 0  # versions that are done
    _reported: int = 0
    _began: float = field(default_factory=time.monotonic)

    def add(self, rows: int) -> None:
        """Count finished versions. After every ROWS_AT_ONCE of them, report them and pause."""
        self.rows += rows
        if self.rows - self._reported < ROWS_AT_ONCE:
            return
        self.report_rest()
        if self.rate:
            time.sleep(max(0.0, self.rows / self.rate - (time.monotonic() - self._began)))

    def report_rest(self) -> None:
        """Call `report` with the number of versions finished since the last call of `report`."""
        self.report(self.rows - self._reported)
        self._reported = self.rows


class _HashingWriter(LibpqWriter):
    """Sends the bytes of a COPY to the server, and adds them to a hash."""

    def __init__(self, sent_hash: hashlib._Hash, cursor: psycopg.Cursor[Any]) -> None:
        super().__init__(cursor)
        self._sent_hash = sent_hash

    def write(self, data: Buffer) -> None:
        self._sent_hash.update(data)
        super().write(data)


def _limit_samples(snapshots: Iterable[bytes]) -> list[bytes]:
    """Return the first snapshots: at most SAMPLES, and together at most SAMPLE_BYTES."""
    samples: list[bytes] = []
    size = 0
    for text in snapshots:
        size += len(text)
        if size > SAMPLE_BYTES or len(samples) == SAMPLES:
            break
        samples.append(text)
    return samples
