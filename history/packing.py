"""Packing a finished day: the versions of each document in one row, and back.

The new table of a day is built beside it and takes its place in one short transaction. Each block
is unpacked and compared with its rows before it is written, and the table is read back and compared
with what was written. What changes meanwhile is noted by triggers, and under the lock of the swap
both tables are proved to have the same versions (history.daily.rebuild). Until then nothing is
changed. A run that is killed leaves the triggers, and the next one removes them.
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

from history import distribution
from history.base import clock
from history.blocks import dictionaries
from history.blocks.dictionaries import Dictionary
from history.blocks.form import MOST_BYTES, Packer, Row, cut, expand
from history.daily import days, rebuild
from history.daily.canonical import Connection, versions
from history.daily.days import DayState, DayTable
from history.daily.rebuild import StoredRow, Watch
from history.database import forms, session
from history.entities import Entity
from history.failure.complaints import Complaint
from history.models import PackAttempt, PackDictionary, SealedDay
from history.partitions.catalog import Partition
from history.partitions.show import size
from history.seals import day_snapshot, late_rows, verification
from history.seals.finished import with_rows
from history.seals.seal import YOUNGEST_DAYS

# What makes the rows of a new table of the versions of a document, one block at a time: each with
# the number of versions in it.
Form: TypeAlias = Callable[[Iterable[Row]], Iterable[tuple[StoredRow, int]]]

# rows done since the last call
ReportRows = Callable[[int], None]

# A day is packed again when more than this share of its rows came late.
LATE_SHARE: Final = 0.01
# A dictionary is trained anew when a day got larger by this share than the first one with it.
WORSE: Final = 1.1
# Documents of which a dictionary is trained: at most so many, with at most so many bytes together.
# zstd gains nothing from more than a hundred times the size of the dictionary.
SAMPLES: Final = 4_000
SAMPLE_BYTES: Final = 100 * dictionaries.BYTES
ROWS_AT_ONCE: Final = 500  # until the next report, and the next pause


class NotPackable(Complaint, RuntimeError):
    """A day that cannot be packed or unpacked; the text says why."""


class DoubledVersionError(NotPackable):
    """A day has two rows for one version; the text says which version, and what to do."""


class WrongRowsError(Complaint, RuntimeError):
    """A defect: what was built of a day has other versions than the day, which stays as it is."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a day. rows: versions. before, after: bytes of its table with indexes."""

    rows: int
    before: int
    after: int


def due(existing: Iterable[Partition], today: date, after_days: int) -> list[tuple[str, date]]:
    """The days to pack, newest first: finished for after_days, and not packed yet or with many late
    rows. Days that were tried in vain come last, the one tried longest ago first of them.
    after_days: 0: none. existing: partitions of versions."""
    if not after_days:
        return []
    packed = dict(_packed_at())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS))
    plain: dict[str, tuple[str, date]] = {}
    found = []
    for part in existing:
        if part.day and part.day < end and part.state is DayState.ATTACHED:
            place = part.table, part.day
            if place not in packed:
                plain[part.name] = place
            elif late_rows.since(*place, packed[place]) > LATE_SHARE * part.rows:
                found.append(place)
    found += [plain[name] for name in with_rows(list(plain))]
    found.sort(key=itemgetter(1), reverse=True)
    attempts = PackAttempt.objects.values_list("table", "day", "began_at")
    began = {(table, day): began_at.timestamp() for table, day, began_at in attempts}
    return sorted(found, key=lambda place: began.get(place, 0.0))


# An empty day has its indexes.
_EMPTY_BYTES: Final = 64 * 1024


def overdue(existing: Iterable[Partition], today: date, after_days: int) -> Counter[str]:
    """By table how many days of behind() there are."""
    return Counter(table for table, _day in behind(existing, today, after_days))


def behind(existing: Iterable[Partition], today: date, after_days: int) -> list[tuple[str, date]]:
    """The days that have rows and are not packed a day after they should be. after_days: 0: none.
    One query at most. The web may ask, which reads no partition."""
    if not after_days:
        return []
    packed = dict(_packed_at())
    end = today - timedelta(days=max(after_days, YOUNGEST_DAYS) + 1)
    return [
        (part.table, part.day)
        for part in existing
        if part.day and part.day < end and part.bytes > _EMPTY_BYTES
        if (part.table, part.day) not in packed
    ]


def _packed_at() -> Iterator[tuple[tuple[str, date], datetime]]:
    for table, day, at in SealedDay.objects.values_list("table", "day", "packed_at"):
        if at is not None:
            yield (table, day), at


def pack(
    connection: Connection,
    entity: Entity,
    day: date,
    *,
    rate: int = 0,
    progress: ReportRows = lambda _: None,
) -> Done:
    """Pack a day of one table. rate: rows a second, 0: as fast as it can. Readers and writers go
    on. Only with the lock of maintain's runs; `connection` is in autocommit mode. Raises
    NotPackable if the day is not finished by this machine's and the server's clock, is not there or
    has a version twice; forms.EarlierReleaseError while a process is connected that cannot read
    blocks; SealedDayChangedError if it is not as it was sealed; and
    psycopg.errors.LockNotAvailable if rows were changed meanwhile or a transaction stays open: try
    again later."""
    if (clock.earlier(connection).date() - day).days <= YOUNGEST_DAYS:
        raise NotPackable(f"{entity.table} {day} is not finished: it ended less than a day ago")
    return _Rewrite(connection, entity, day, rate, progress).pack()


def unpack(
    connection: Connection, entity: Entity, day: date, *, progress: ReportRows = lambda _: None
) -> Done:
    """Make the rows of a packed day plain again; otherwise as pack()."""
    return _Rewrite(connection, entity, day, 0, progress).unpack()


class _Hashing(LibpqWriter):
    """Sends what COPY writes. written: its SHA-256."""

    def __init__(self, cursor: psycopg.Cursor[Any]) -> None:
        super().__init__(cursor)
        self.written = hashlib.sha256()

    def write(self, data: Buffer) -> None:
        self.written.update(data)
        super().write(data)


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """One call of pack() or unpack()."""

    _connection: Connection
    _entity: Entity
    _day: date
    _rate: int
    _progress: ReportRows

    def pack(self) -> Done:
        place = self._place()
        forms.activate(self._connection)
        self._check_disk(place)
        verification.check(self._connection, self._entity, self._day)
        self._note_attempt()
        dictionary = self._dictionary(place)
        packer = Packer(dictionary)

        def blocks(rows: Iterable[Row]) -> Iterator[tuple[StoredRow, int]]:
            for block in cut(rows):
                made = packer.pack(block)
                self._compare(block, [made], dictionary)
                yield made, len(block)

        done, ratio = self._replace(place, blocks, packed=True)
        if dictionary is not None:
            self._judge(place, dictionary, ratio)
        return done

    def unpack(self) -> Done:
        def plain(rows: Iterable[Row]) -> Iterator[tuple[StoredRow, int]]:
            return (((row, None), 1) for row in rows)

        return self._replace(self._place(), plain, packed=False)[0]

    def _place(self) -> DayTable:
        place = days.locate(self._connection, self._entity.table, self._day)
        if day_snapshot.spread(self._connection, self._entity.table):
            raise NotPackable("the days of a cluster are not packed")
        if place.state is not DayState.ATTACHED or not place.ours:
            raise NotPackable(
                f"{self._entity.table} has no partition of {self._day} that Annals made"
            )
        return place

    def _note_attempt(self) -> None:
        """Note that packing begins: a day that ends the process must not be the first each time."""
        self._connection.execute(
            'INSERT INTO pack_attempt ("table", day, began_at) VALUES (%s, %s, clock_timestamp())'
            ' ON CONFLICT ("table", day) DO UPDATE SET began_at = excluded.began_at',
            [self._entity.table, self._day],
        )

    def _replace(self, place: DayTable, form: Form, *, packed: bool) -> tuple[Done, float]:
        """Give the day a table with rows of this form. Returns also the bytes of blocks for each
        byte of their documents."""
        connection, entity, day = self._connection, self._entity, self._day
        # Rather now than after the work.
        late_rows.wait_for_others(connection, [place.parent, place.child])
        with rebuild.watched(connection, place) as watch, connection.transaction():
            distribution.one_by_one(connection)
            new = place._replace(child=place.new)
            days.create_detached(connection, new, day, place.comment or days.MARK)
            rows, *sizes = self._fill(place, form)
            connection.execute(sql.SQL("REINDEX TABLE {}").format(place.new))
            connection.execute(sql.SQL("ANALYZE {}").format(place.new))
            if packed:
                rebuild.guard(connection, place.new)
            before, after = self._bytes(place.child), self._bytes(place.new)
            # Then only those that come meanwhile are left.
            rows += watch.add_noted(connection, entity, place)
            was_packed = days.is_packed(connection, entity.table, day)

            def prove(old: DayTable) -> None:
                self._prove(watch, old, rows, was_packed)

            days.replace(connection, entity.table, day, prove)
            self._mark(packed)
        return Done(rows, before, after), sizes[0] / max(1, sizes[1])

    def _prove(self, watch: Watch, old: DayTable, rows: int, was_packed: bool) -> None:
        """Prove that the new table has the versions of the old one, while nobody can write.

        Args:
            rows: how many versions were read and added before.

        Raises:
            psycopg.errors.LockNotAvailable: the old table was changed in another way than by new
                rows.
            WrongRowsError: the numbers of versions differ.
        """
        rows += watch.settle(self._connection, self._entity, old)
        there = rebuild.count_cheaply(self._connection, old.child, was_packed)
        if there is not None and there != rows:
            raise self._wrong()

    def _mark(self, packed: bool) -> None:
        """Note whether the day has blocks, in the transaction of the swap."""
        place = [self._entity.table, self._day]
        if packed:
            self._connection.execute(
                'INSERT INTO sealed_day ("table", day, packed_at)'
                " VALUES (%s, %s, clock_timestamp())"
                ' ON CONFLICT ("table", day) DO UPDATE'
                " SET packed_at = excluded.packed_at, dropped_at = NULL",
                place,
            )
        else:
            self._connection.execute(
                'UPDATE sealed_day SET packed_at = NULL WHERE "table" = %s AND day = %s', place
            )
        self._connection.execute('DELETE FROM pack_attempt WHERE "table" = %s AND day = %s', place)

    def _fill(self, place: DayTable, form: Form) -> tuple[int, int, int]:
        """Write the versions of the day to its new table. Returns their number, and the bytes of
        blocks and of the documents in them. Raises WrongRowsError, DoubledVersionError."""
        packed = unpacked = done = reported = 0
        began = time.monotonic()

        def made(rows: Iterator[Row]) -> Iterator[StoredRow]:
            nonlocal packed, unpacked, done, reported
            for _, of_document in groupby(self._each_once(rows), itemgetter(0)):
                for (row, block), number in form(of_document):
                    yield row, block
                    if block is not None:
                        packed, unpacked = packed + len(block.packed), unpacked + block.unpacked
                    done += number
                    if done - reported >= ROWS_AT_ONCE:
                        self._progress(done - reported)
                        reported = done
                        if self._rate:
                            pause = reported / self._rate - (time.monotonic() - began)
                            time.sleep(max(0.0, pause))
            self._progress(done - reported)

        # Read in a session of its own: so the server reads, this process packs, and the server
        # writes at the same time, and one COPY fills the pages.
        info = self._connection.info
        with closing(psycopg.connect(info.dsn, password=info.password, autocommit=True)) as reader:
            session.unlimited(reader)
            forms.open_session(reader)
            with closing(self._rows(reader, place)) as rows:
                written = self._write(place.new, made(rows))
        if self._stored(place.new) != written:
            raise self._wrong()
        return done, packed, unpacked

    def _each_once(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, which come in the order of their keys. Raises DoubledVersionError."""
        before = None
        for row in rows:
            if row[:3] == before:
                raise DoubledVersionError(
                    f"{self._entity.table} {self._day} has version {row[1]} of {row[0]} twice: run"
                    f" `partitions repair {self._day}`"
                )
            before = row[:3]
            yield row

    def _compare(
        self, rows: Sequence[Row], made: Iterable[StoredRow], dictionary: Dictionary | None
    ) -> None:
        """Raises WrongRowsError unless these rows and blocks have the versions of a document."""
        found = (  # one block at a time: all of a document may be large
            each
            for row, block in made
            for each in ([row] if block is None else expand(row, block, dictionary))
        )
        if any(one != other for one, other in zip_longest(found, rows)):
            raise self._wrong()

    def _rows(self, connection: Connection, place: DayTable) -> Generator[Row]:
        """The versions of the day in the canonical order, each document as bytes."""
        return versions(connection, self._entity, place.child, data="bytea")

    def _write(self, new: sql.Identifier, rows: Iterable[StoredRow]) -> bytes:
        """Write these to a table. Returns the SHA-256 of what was sent, as of what _stored()
        reads."""
        writers = []

        def hashing(cursor: psycopg.Cursor[Any]) -> _Hashing:
            writers.append(_Hashing(cursor))
            return writers[0]

        rebuild.copy_in(self._connection, self._entity, new, rows, hashing)
        return writers[0].written.digest()

    def _stored(self, new: sql.Identifier) -> bytes:
        """The SHA-256 of the rows of a new table, in the order in which they were written."""
        found = hashlib.sha256()
        self._connection.execute("SET LOCAL synchronize_seqscans TO off")  # from the first row on
        query = rebuild.copy_command(self._entity, new, "TO STDOUT (FORMAT BINARY)")
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for part in copy:
                found.update(part)
        return found.digest()

    def _wrong(self) -> WrongRowsError:
        return WrongRowsError(
            f"{self._entity.table} {self._day} stays as it is: what was built of it has other"
            " versions. This is a defect of Annals; set ANNALS_PACK_AFTER_DAYS=0 and report it"
        )

    def _check_disk(self, place: DayTable) -> None:
        """Where ANNALS_DISK_GB says how large the disk is. Raises NotPackable."""
        row = self._connection.execute("SELECT pg_database_size(current_database())").fetchone()
        free = settings.ANNALS.disk_gb * 10**9 - (row[0] if row else 0)
        needed = self._bytes(place.child) * 6 // 5  # its sort, and the copy
        if settings.ANNALS.disk_gb and free < needed:
            raise NotPackable(
                f"{self._entity.table} {self._day} is not packed: this needs {size(needed)} of disk"
                f" for a while, and {size(max(0, free))} of ANNALS_DISK_GB are free"
            )

    def _bytes(self, table: sql.Identifier) -> int:
        query = sql.SQL("SELECT pg_total_relation_size({}::regclass)")
        name = sql.Literal(table.as_string(self._connection))
        row = self._connection.execute(query.format(name)).fetchone()
        return int(row[0]) if row else 0

    def _dictionary(self, place: DayTable) -> Dictionary | None:
        """What the day is packed with: the newest of its table, or a first one.

        Raises:
            psycopg.errors.LockNotAvailable: a transaction stays open that would not see it.
        """
        found = dictionaries.newest(self._connection, self._entity.table)
        if found is not None:
            return found
        made = dictionaries.train(self._sample(place))
        if made is not None:
            self._keep(made)
        return made

    def _sample(self, place: DayTable) -> list[bytes]:
        """Some documents of a plain day, from all of its pages, none larger than a block."""
        query = sql.SQL(
            "SELECT convert_to(data::text, 'UTF8') FROM {table} TABLESAMPLE SYSTEM (least(100,"
            " 100.0 * (SELECT least({rows} / greatest(1, reltuples),"
            "  {bytes} / greatest(1, pg_table_size(oid))::float8)"
            "  FROM pg_class WHERE oid = {name}::regclass)))"
            " WHERE packed IS NULL AND pg_column_size(data) <= {most}"
            " AND octet_length(data::text) <= {most} LIMIT {rows}"
        ).format(
            table=place.child,
            name=sql.Literal(place.child.as_string(self._connection)),
            rows=sql.Literal(2 * SAMPLES),
            bytes=sql.Literal(2 * SAMPLE_BYTES),
            most=sql.Literal(MOST_BYTES),
        )
        # Django's own cursors give no bytes as they are.
        with psycopg.Cursor(self._connection, row_factory=tuple_row) as cursor:
            return _bounded(text for (text,) in cursor.stream(query, binary=True))

    def _keep(self, made: Dictionary) -> None:
        """Store a new dictionary, and wait until every open transaction sees it.

        A transaction with an older snapshot would see the blocks, which are frozen, and not their
        dictionary. Nothing is packed with one that cannot be kept.

        Raises:
            psycopg.errors.LockNotAvailable: a transaction stays open.
        """
        connection, table = self._connection, self._entity.table
        known = PackDictionary.objects.filter(number=made.number).exists()
        dictionaries.keep(connection, table, made)
        if known:
            return
        try:
            late_rows.wait_for_transactions(connection)
        except BaseException:
            if not connection.closed:
                connection.execute("DELETE FROM pack_dictionary WHERE number = %s", [made.number])
            raise

    def _judge(self, place: DayTable, dictionary: Dictionary, ratio: float) -> None:
        """Train a new dictionary where this one does worse than on its first day."""
        known = PackDictionary.objects.filter(number=dictionary.number)
        first = known.values_list("ratio", flat=True).first()
        if first is None:
            known.update(ratio=ratio)
        elif ratio > WORSE * first:
            with closing(self._rows(self._connection, place)) as rows:  # packed now
                documents = (row[-1] for row in islice(rows, 0, 4 * SAMPLES, 4))
                made = dictionaries.train(
                    _bounded(text for text in documents if len(text) <= MOST_BYTES)
                )
            if made is not None:
                with suppress(psycopg.errors.LockNotAvailable):  # a later day trains one again
                    self._keep(made)


def _bounded(documents: Iterable[bytes]) -> list[bytes]:
    """Return the first documents, at most SAMPLES with at most SAMPLE_BYTES."""
    found: list[bytes] = []
    size = 0
    for text in documents:
        size += len(text)
        if size > SAMPLE_BYTES or len(found) == SAMPLES:
            break
        found.append(text)
    return found
