"""Packing a finished day: the versions of each document in one row, and back.

The new table of a day is built beside it and takes its place in one short transaction. Each block
is unpacked and compared with its rows before it is written, and the table is read back and compared
with what was written. What changes meanwhile is noted by triggers, and under the lock of the swap
both tables are proved to have the same versions (history.store.days.table_swap). Until then nothing
is changed. A run that is killed leaves the triggers, and the next one removes them.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from typing import Any, Final, TypeAlias

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter
from psycopg.rows import tuple_row

from history.common import clock
from history.common.complaints import ExplainedError
from history.kinds.entities import EntityKind
from history.models import PackAttempt, PackDictionary, SealedDay
from history.retention import cluster_swap
from history.retention.catalog import Partition, find_filled
from history.retention.seals import day_snapshot, late_rows, verification
from history.retention.seals.seal import YOUNGEST_DAYS
from history.retention.tables import format_size
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
from history.store.days.canonical import (
    Connection,
    DayDigest,
    compute_digest,
    encode_row,
    stream_versions,
)
from history.store.days.days import DayState, DayTable
from history.store.days.table_swap import StoredRow, TableWatch

# What makes the rows of a new table of the versions of a document, one block at a time: each with
# the number of versions in it.
RowForm: TypeAlias = Callable[[Iterable[CanonicalRow]], Iterable[tuple[StoredRow, int]]]

# rows done since the last call
ReportRows = Callable[[int], None]

# A day is packed again when more than this share of its rows came late.
LATE_SHARE: Final = 0.01
# A dictionary is trained anew when a day got larger by this share than the first one with it.
WORSE: Final = 1.1
# Documents of which a dictionary is trained: at most so many, with at most so many bytes together.
# zstd gains nothing from more than a hundred times the size of the dictionary.
SAMPLES: Final = 4_000
SAMPLE_BYTES: Final = 100 * dictionaries.DICTIONARY_BYTES
ROWS_AT_ONCE: Final = 500  # until the next report, and the next pause


# Packing of a day begins now.
_NOTE_ATTEMPT: Final = """
INSERT INTO pack_attempt ("table", day, began_at)
VALUES (%(table)s, %(day)s, clock_timestamp())
ON CONFLICT ("table", day) DO UPDATE SET began_at = excluded.began_at
"""
# The attempt to pack or unpack a day has come to its end.
_DELETE_ATTEMPT: Final = """
DELETE FROM pack_attempt WHERE "table" = %(table)s AND day = %(day)s
"""
# The day has blocks from now on.
_NOTE_PACKED: Final = """
INSERT INTO sealed_day ("table", day, packed_at)
VALUES (%(table)s, %(day)s, clock_timestamp())
ON CONFLICT ("table", day) DO UPDATE SET packed_at = excluded.packed_at, dropped_at = NULL
"""
# The day has no blocks any more.
_NOTE_UNPACKED: Final = """
UPDATE sealed_day SET packed_at = NULL WHERE "table" = %(table)s AND day = %(day)s
"""


class NotPackableError(ExplainedError, RuntimeError):
    """Raised when a day cannot be packed or unpacked; the text says why."""


class DoubledVersionError(NotPackableError):
    """A day has two rows for one version; the text says which version, and what to do."""


class WrongRowsError(ExplainedError, RuntimeError):
    """A defect: what was built of a day has other versions than the day, which stays as it is."""


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A day that was packed or unpacked: its versions, and the bytes of its table with indexes."""

    rows: int
    before: int
    after: int


def find_due_days(
    existing: Iterable[Partition], today: date, after_days: int
) -> list[tuple[str, date]]:
    """Return the days to pack, newest first: not packed yet, or with many late rows.

    Days of failed attempts come last, the one tried longest ago first.

    Args:
        existing: the partitions of the tables of versions.
        after_days: how many days after its end a day is packed; 0: no day is packed.
    """
    if not after_days:
        return []
    packed = dict(_load_packed_days())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS))
    plain: dict[str, tuple[str, date]] = {}
    places = []
    for part in existing:
        if part.day and part.day < end and part.state is DayState.ATTACHED:
            place = part.table, part.day
            if place not in packed:
                plain[part.name] = place
            elif late_rows.count_late_rows_since(*place, packed[place]) > LATE_SHARE * part.rows:
                places.append(place)
    places += [plain[name] for name in find_filled(list(plain))]
    places.sort(key=itemgetter(1), reverse=True)
    attempts = PackAttempt.objects.values_list("table", "day", "began_at")
    began = {(table, day): began_at.timestamp() for table, day, began_at in attempts}
    return sorted(places, key=lambda place: began.get(place, 0.0))


# An empty day has its indexes.
_EMPTY_BYTES: Final = 64 * 1024


def count_overdue_days(existing: Iterable[Partition], today: date, after_days: int) -> Counter[str]:
    """Count the overdue days of each table."""
    return Counter(table for table, _day in find_overdue_days(existing, today, after_days))


def find_overdue_days(
    existing: Iterable[Partition], today: date, after_days: int
) -> list[tuple[str, date]]:
    """Return the days with rows that should have been packed at least a day ago.

    Makes at most one query and reads no partition, so the web may call it.

    Args:
        after_days: how many days after its end a day is packed; 0: no day is packed.
    """
    if not after_days:
        return []
    packed = dict(_load_packed_days())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS) + 1)
    return [
        (part.table, part.day)
        for part in existing
        if part.day and part.day < end and part.bytes > _EMPTY_BYTES
        if (part.table, part.day) not in packed
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
    """Pack a day of one table. Readers and writers go on.

    The caller holds the lock of the runs. `connection` is in autocommit mode.

    Args:
        rate: rows a second; 0: as fast as it can.

    Raises:
        NotPackableError: the day is not finished by this machine's and the server's clock, does not
            exist, or has a version twice.
        EarlierReleaseError: a process is connected that cannot read blocks.
        SealedDayChangedError: the day is not as it was sealed.
        psycopg.errors.LockNotAvailable: rows were changed meanwhile, or a transaction stays open:
            try again later.
    """
    if (clock.get_earlier_time(connection).date() - day).days <= YOUNGEST_DAYS:
        raise NotPackableError(
            f"{entity.table} {day} is not finished: it ended less than a day ago"
        )
    return DayRewrite(connection, entity, day, rate, progress).pack()


def unpack_day(
    connection: Connection, entity: EntityKind, day: date, *, progress: ReportRows = lambda _: None
) -> RewriteResult:
    """Make the rows of a packed day plain again. See `pack_day` for conditions and errors."""
    return DayRewrite(connection, entity, day, 0, progress).unpack()


class _HashingWriter(LibpqWriter):
    """Sends what COPY writes, and computes the SHA-256 of it."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        super().__init__(cursor)
        self.written = hashlib.sha256()

    def write(self, data: Buffer) -> None:
        self.written.update(data)
        super().write(data)


@dataclass(frozen=True, slots=True)
class DayRewrite:
    """One call of pack() or unpack(). Tests step in between its steps."""

    _connection: Connection
    _entity: EntityKind
    _day: date
    _rate: int
    _progress: ReportRows

    def pack(self) -> RewriteResult:
        place = self._locate_day()
        forms.activate(self._connection)
        self._check_disk(place)
        verification.check_sealed_day(self._connection, self._entity, self._day)
        self._note_attempt()
        dictionary = self.choose_dictionary(place)
        packer = BlockPacker(dictionary)

        def blocks(rows: Iterable[CanonicalRow]) -> Iterator[tuple[StoredRow, int]]:
            for block in split_into_blocks(rows):
                packed = packer.pack_block(block)
                self.compare_versions(block, [packed], dictionary)
                yield packed, len(block)

        result, ratio = self._replace_table(place, blocks, packed=True)
        if dictionary is not None:
            self._retrain_dictionary(place, dictionary, ratio)
        return result

    def unpack(self) -> RewriteResult:
        def plain(rows: Iterable[CanonicalRow]) -> Iterator[tuple[StoredRow, int]]:
            return (((row, None), 1) for row in rows)

        return self._replace_table(self._locate_day(), plain, packed=False)[0]

    def _locate_day(self) -> DayTable:
        place = days.locate_day(self._connection, self._entity.table, self._day)
        if place.state is not DayState.ATTACHED or not place.ours:
            raise NotPackableError(
                f"{self._entity.table} has no partition of {self._day} that Annals made"
            )
        return place

    def _note_attempt(self) -> None:
        """Note that packing begins: a day that ends the process must not be the first each time."""
        self._connection.execute(_NOTE_ATTEMPT, {"table": self._entity.table, "day": self._day})

    def _replace_table(
        self, place: DayTable, form: RowForm, *, packed: bool
    ) -> tuple[RewriteResult, float]:
        """Give the day a table with rows of this form. Returns also the bytes of blocks for each
        byte of their documents."""
        if self._is_spread():
            return self._replace_on_cluster(place, form, packed=packed)
        connection, entity, day = self._connection, self._entity, self._day
        # Rather now than after the work.
        late_rows.wait_for_others(connection, [place.parent, place.child])
        with table_swap.watch_table(connection, place) as watch, connection.transaction():
            distribution.use_one_connection(connection)
            new = place._replace(child=place.new)
            days.create_detached_table(connection, new, day, place.comment or days.MARK)
            rows, *sizes = self.fill_table(place, form)
            connection.execute(sql.SQL("REINDEX TABLE {}").format(place.new))
            connection.execute(sql.SQL("ANALYZE {}").format(place.new))
            if packed:
                table_swap.guard_table(connection, place.new)
            before, after = self.measure_table(place.child), self.measure_table(place.new)
            # Then only those that come meanwhile are left.
            rows += watch.add_noted_rows(connection, entity, place)
            was_packed = days.is_packed(connection, entity.table, day)

            def prove(old: DayTable) -> None:
                self.prove_equal_versions(watch, old, rows, was_packed)

            days.replace_table(connection, entity.table, day, prove)
            self._note_form(packed)
        return RewriteResult(rows, before, after), sizes[0] / max(1, sizes[1])

    def _is_spread(self) -> bool:
        return day_snapshot.is_spread(self._connection, self._entity.table)

    def _replace_on_cluster(
        self, place: DayTable, form: RowForm, *, packed: bool
    ) -> tuple[RewriteResult, float]:
        """Do what `_replace_table` does where the tables are distributed."""
        connection, entity, day = self._connection, self._entity, self._day
        before = cluster_swap.measure_table(connection, place.child).bytes
        was_packed = days.is_packed(connection, entity.table, day)
        former_keys = cluster_swap.digest_keys(connection, place.child, packed=was_packed)

        def prove(old: DayTable) -> None:
            keys = cluster_swap.digest_keys(connection, old.child, packed=was_packed)
            if keys != former_keys:
                raise cluster_swap.RowsChangedError

        try:
            with connection.transaction():
                cluster_swap.create_new_table(connection, place, day)
                rows, *sizes = self.fill_table(place, form)
                days.replace_table(connection, entity.table, day, prove)
                self._note_form(packed)
        except cluster_swap.RowsChangedError:
            raise table_swap.ChangedMeanwhileError(
                f"{entity.table} {day} stays as it is, because rows of it came, went or were "
                "changed while its new table was built. Try it again"
            ) from None
        connection.execute(sql.SQL("ANALYZE {}").format(place.child))
        after = cluster_swap.measure_table(connection, place.child).bytes
        return RewriteResult(rows, before, after), sizes[0] / max(1, sizes[1])

    def prove_equal_versions(
        self, watch: TableWatch, old: DayTable, rows: int, was_packed: bool
    ) -> None:
        """Prove that the new table has the versions of the old one, while nobody can write.

        Args:
            rows: how many versions were read and added before.

        Raises:
            psycopg.errors.LockNotAvailable: the old table was changed in another way than by new
                rows.
            WrongRowsError: the numbers of versions differ.
        """
        rows += watch.settle(self._connection, self._entity, old)
        count = table_swap.count_cheaply(self._connection, old.child, was_packed)
        if count is not None and count != rows:
            raise self._build_defect_error()

    def _note_form(self, packed: bool) -> None:
        """Note whether the day has blocks, in the transaction of the swap."""
        place = {"table": self._entity.table, "day": self._day}
        self._connection.execute(_NOTE_PACKED if packed else _NOTE_UNPACKED, place)
        self._connection.execute(_DELETE_ATTEMPT, place)

    def fill_table(self, place: DayTable, form: RowForm) -> tuple[int, int, int]:
        """Write the versions of the day to its new table. Returns their number, and the bytes of
        blocks and of the documents in them. Raises WrongRowsError, DoubledVersionError."""
        packed = unpacked = row_count = reported = 0
        began = time.monotonic()

        def made(rows: Iterator[CanonicalRow]) -> Iterator[StoredRow]:
            nonlocal packed, unpacked, row_count, reported
            for _, of_document in groupby(self.refuse_doubled(rows), itemgetter(0)):
                for (row, block), number in form(of_document):
                    yield row, block
                    if block is not None:
                        packed, unpacked = packed + len(block.packed), unpacked + block.unpacked
                    row_count += number
                    if row_count - reported >= ROWS_AT_ONCE:
                        self._progress(row_count - reported)
                        reported = row_count
                        if self._rate:
                            pause = reported / self._rate - (time.monotonic() - began)
                            time.sleep(max(0.0, pause))
            self._progress(row_count - reported)

        # Read in a session of its own: so the server reads, this process packs, and the server
        # writes at the same time, and one COPY fills the pages.
        info = self._connection.info
        with closing(psycopg.connect(info.dsn, password=info.password, autocommit=True)) as reader:
            session.remove_time_limit(reader)
            forms.open_session(reader)
            with closing(self._stream_versions(reader, place)) as rows:
                if self._is_spread():
                    is_equal = self._write_on_cluster(place.new, rows, made)
                else:
                    sent_digest = self._write_rows(place.new, made(rows))
                    is_equal = self._hash_stored_rows(place.new) == sent_digest
        if not is_equal:
            raise self._build_defect_error()
        return row_count, packed, unpacked

    def _write_on_cluster(
        self,
        new: sql.Identifier,
        rows: Iterable[CanonicalRow],
        made: Callable[[Iterator[CanonicalRow]], Iterator[StoredRow]],
    ) -> bool:
        """Write rows to a new table, and return whether it has their versions.

        The nodes return rows in an order of their own, so the versions are compared in the
        canonical order.
        """
        sent = DayDigest()

        def digested() -> Iterator[CanonicalRow]:
            for row in rows:
                sent.add(row[0], row[1], hashlib.sha256(encode_row(row)).digest())
                yield row

        self._write_rows(new, made(digested()), frozen=False)
        stored = compute_digest(self._connection, self._entity, new)
        return stored.finish() == sent.finish()

    def refuse_doubled(self, rows: Iterable[CanonicalRow]) -> Iterator[CanonicalRow]:
        """Yield the rows, which come in the order of their keys. Raises DoubledVersionError."""
        previous_key = None
        for row in rows:
            if row[:3] == previous_key:
                raise DoubledVersionError(
                    f"{self._entity.table} {self._day} has version {row[1]} of {row[0]} twice: run"
                    f" `partitions repair {self._day}`"
                )
            previous_key = row[:3]
            yield row

    def compare_versions(
        self,
        rows: Sequence[CanonicalRow],
        stored_rows: Iterable[StoredRow],
        dictionary: Dictionary | None,
    ) -> None:
        """Raises WrongRowsError unless these rows and blocks have the versions of a document."""
        unpacked_rows = (  # one block at a time: all of a document may be large
            unpacked_row
            for row, block in stored_rows
            for unpacked_row in ([row] if block is None else expand_block(row, block, dictionary))
        )
        if any(
            unpacked_row != original_row
            for unpacked_row, original_row in zip_longest(unpacked_rows, rows)
        ):
            raise self._build_defect_error()

    def _stream_versions(self, connection: Connection, place: DayTable) -> Generator[CanonicalRow]:
        """The versions of the day in the canonical order, each document as bytes."""
        return stream_versions(connection, self._entity, place.child, data="bytea")

    def _write_rows(
        self, new: sql.Identifier, rows: Iterable[StoredRow], *, frozen: bool = True
    ) -> bytes:
        """Write rows to a new table, and return the SHA-256 of the bytes that were sent."""
        writers = []

        def hashing(cursor: psycopg.Cursor[Any]) -> _HashingWriter:
            writers.append(_HashingWriter(cursor))
            return writers[0]

        table_swap.write_rows(self._connection, self._entity, new, rows, hashing, frozen=frozen)
        return writers[0].written.digest()

    def _hash_stored_rows(self, new: sql.Identifier) -> bytes:
        """Compute the SHA-256 of the rows of a new table in the order of writing."""
        table_hash = hashlib.sha256()
        self._connection.execute("SET LOCAL synchronize_seqscans TO off")  # from the first row on
        query = table_swap.build_copy_command(self._entity, new, "TO STDOUT (FORMAT BINARY)")
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for part in copy:
                table_hash.update(part)
        return table_hash.digest()

    def _build_defect_error(self) -> WrongRowsError:
        return WrongRowsError(
            f"{self._entity.table} {self._day} stays as it is: what was built of it has other"
            " versions. This is a defect of Annals; set ANNALS_PACK_AFTER_DAYS=0 and report it"
        )

    def _check_disk(self, place: DayTable) -> None:
        """Raise an error if the disk of ANNALS_DISK_GB cannot hold the day twice."""
        if self._is_spread():  # ANNALS_DISK_GB is the disk of each node; the coordinator sorts
            used = cluster_swap.find_fullest_node(self._connection)
            size = cluster_swap.measure_table(self._connection, place.child).bytes
        else:
            row = self._connection.execute("SELECT pg_database_size(current_database())").fetchone()
            used, size = row[0] if row else 0, self.measure_table(place.child)
        free = settings.ANNALS.disk_gb * 10**9 - used
        needed = size * 6 // 5  # its sort, and the copy
        if settings.ANNALS.disk_gb and free < needed:
            raise NotPackableError(
                f"{self._entity.table} {self._day} is not packed: this needs "
                f"{format_size(needed)} of disk"
                f" for a while, and {format_size(max(0, free))} of ANNALS_DISK_GB are free"
            )

    def measure_table(self, table: sql.Identifier) -> int:
        query = sql.SQL("SELECT pg_total_relation_size({}::regclass)")
        name = sql.Literal(table.as_string(self._connection))
        row = self._connection.execute(query.format(name)).fetchone()
        return int(row[0]) if row else 0

    def choose_dictionary(self, place: DayTable) -> Dictionary | None:
        """What the day is packed with: the newest of its table, or a first one.

        Raises:
            psycopg.errors.LockNotAvailable: a transaction stays open that would not see it.
        """
        newest = dictionaries.load_newest_dictionary(self._connection, self._entity.table)
        if newest is not None:
            return newest
        trained = dictionaries.train_dictionary(self._sample_documents(place))
        if trained is not None:
            self._store_dictionary(trained)
        return trained

    def _sample_documents(self, place: DayTable) -> list[bytes]:
        """Some documents of a plain day, from all of its pages, none larger than a block."""
        if self._is_spread():  # the same share of each shard
            use = cluster_swap.measure_table(self._connection, place.child)
            share = min(2 * SAMPLES / max(1, use.rows), 2 * SAMPLE_BYTES / max(1, use.table))
            percent: sql.Composable = sql.Literal(min(100.0, 100.0 * share))
        else:
            percent = sql.SQL(
                "least(100, 100.0 * (SELECT least({rows} / greatest(1, reltuples),"
                "  {bytes} / greatest(1, pg_table_size(oid))::float8)"
                "  FROM pg_class WHERE oid = {name}::regclass))"
            ).format(
                name=sql.Literal(place.child.as_string(self._connection)),
                rows=sql.Literal(2 * SAMPLES),
                bytes=sql.Literal(2 * SAMPLE_BYTES),
            )
        query = sql.SQL(
            "SELECT convert_to(data::text, 'UTF8') FROM {table} TABLESAMPLE SYSTEM ({percent})"
            " WHERE packed IS NULL AND pg_column_size(data) <= {most}"
            " AND octet_length(data::text) <= {most} LIMIT {rows}"
        ).format(
            table=place.child,
            percent=percent,
            rows=sql.Literal(2 * SAMPLES),
            most=sql.Literal(MOST_BYTES),
        )
        # Django's own cursors give no bytes as they are.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            return _limit_samples(text for (text,) in cursor.stream(query, binary=True))

    def _store_dictionary(self, dictionary: Dictionary) -> None:
        """Store a new dictionary, and wait until every open transaction sees it.

        A transaction with an older snapshot would see the blocks, which are frozen, and not their
        dictionary. Nothing is packed with one that cannot be kept.

        Raises:
            psycopg.errors.LockNotAvailable: a transaction stays open.
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

    def _retrain_dictionary(self, place: DayTable, dictionary: Dictionary, ratio: float) -> None:
        """Train a new dictionary where this one does worse than on its first day."""
        stored_dictionary = PackDictionary.objects.filter(number=dictionary.number)
        first = stored_dictionary.values_list("ratio", flat=True).first()
        if first is None:
            stored_dictionary.update(ratio=ratio)
        elif ratio > WORSE * first:
            with closing(self._stream_versions(self._connection, place)) as rows:  # packed now
                documents = (row[-1] for row in islice(rows, 0, 4 * SAMPLES, 4))
                trained = dictionaries.train_dictionary(
                    _limit_samples(text for text in documents if len(text) <= MOST_BYTES)
                )
            if trained is not None:
                with suppress(psycopg.errors.LockNotAvailable):  # a later day trains one again
                    self._store_dictionary(trained)


def _limit_samples(documents: Iterable[bytes]) -> list[bytes]:
    """Return the first documents, at most SAMPLES with at most SAMPLE_BYTES."""
    samples: list[bytes] = []
    size = 0
    for text in documents:
        size += len(text)
        if size > SAMPLE_BYTES or len(samples) == SAMPLES:
            break
        samples.append(text)
    return samples
