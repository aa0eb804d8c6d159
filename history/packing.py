"""Packing a finished day: the versions of each document in one row, and back.

The new table of a day is built beside it and takes its place in one short transaction. Each block
is unpacked and compared with its rows before it is written, and the table is read back and compared
with what was written. Until then nothing is changed, so a run that is killed leaves nothing.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from django.conf import settings
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.copy import LibpqWriter

from history import distribution
from history.base import clock
from history.blocks import dictionaries, stored
from history.blocks.dictionaries import Dictionary
from history.blocks.form import Packer, Row, Stored, cut, expand
from history.daily import days
from history.daily.canonical import Connection, columns, versions
from history.daily.days import DayState, DayTable
from history.database import forms, session
from history.entities import Entity
from history.failure.complaints import Complaint
from history.models import PackDictionary, SealedDay
from history.partitions.catalog import Partition
from history.partitions.show import size
from history.seals import day_snapshot, late_rows, verification
from history.seals.finished import with_rows
from history.seals.seal import YOUNGEST_DAYS

# A row of a new table, plain or of a block; and what makes them of the versions of a document.
Made: TypeAlias = tuple[Row, Stored | None]
Form: TypeAlias = Callable[[Sequence[Row]], Iterable[Made]]

# rows done since the last call
ReportRows = Callable[[int], None]

# A day is packed again when more than this share of its rows came late.
LATE_SHARE: Final = 0.01
# A dictionary is trained anew when a day got larger by this share than the first one with it.
WORSE: Final = 1.1
SAMPLES: Final = 4_000
ROWS_AT_ONCE: Final = 500  # until the next report, and the next pause
_EPOCH: Final = 946_684_800_000_000  # of COPY's moments: 2000, in microseconds since 1970


class NotPackable(Complaint, RuntimeError):
    """A day that cannot be packed or unpacked; the text says why."""


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
    rows. after_days: 0: none. existing: partitions of versions."""
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
    return sorted(found, key=itemgetter(1), reverse=True)


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
    NotPackable if the day is not finished or not there, forms.EarlierReleaseError while a process
    is connected that cannot read blocks, SealedDayChangedError if it is not as it was sealed, and
    psycopg.errors.LockNotAvailable if rows came meanwhile or a transaction stays open: try again
    later."""
    if (clock.now().date() - day).days <= YOUNGEST_DAYS:
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
        dictionary = self._dictionary(place)
        packer = Packer(dictionary)

        def blocks(rows: Sequence[Row]) -> Sequence[Made]:
            made = list(map(packer.pack, cut(rows)))
            self._compare(rows, made, dictionary)
            return made

        done, ratio = self._replace(place, blocks, packed=True)
        if dictionary is not None:
            self._judge(place, dictionary, ratio)
        return done

    def unpack(self) -> Done:
        def plain(rows: Sequence[Row]) -> Iterator[Made]:
            return ((row, None) for row in rows)

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

    def _replace(self, place: DayTable, form: Form, *, packed: bool) -> tuple[Done, float]:
        """Give the day a table with rows of this form. Returns also the bytes of blocks for each
        byte of their documents."""
        connection, entity, day = self._connection, self._entity, self._day
        # From now on each row that comes is noted, so that no row is left behind.
        day_snapshot.announce(connection, place, entity.table, day)
        # Rather now than after the work.
        late_rows.wait_for_others(connection, [place.parent, place.child])
        with connection.transaction():
            distribution.one_by_one(connection)
            new = place._replace(child=place.new)
            days.create_detached(connection, new, day, place.comment or days.MARK)
            rows, *sizes = self._fill(place, form)
            connection.execute(sql.SQL("REINDEX TABLE {}").format(place.new))
            connection.execute(sql.SQL("ANALYZE {}").format(place.new))
            before, after = self._bytes(place.child), self._bytes(place.new)
            self._add_late(place)  # then only those that come meanwhile are left
            days.replace(connection, entity.table, day, self._add_late)
            connection.execute(
                "UPDATE sealed_day SET packed_at = CASE WHEN %s THEN clock_timestamp() END"
                ' WHERE "table" = %s AND day = %s',
                [packed, entity.table, day],
            )
        return Done(rows, before, after), sizes[0] / max(1, sizes[1])

    def _fill(self, place: DayTable, form: Form) -> tuple[int, int, int]:
        """Write the versions of the day to its new table. Returns their number, and the bytes of
        blocks and of the documents in them. Raises WrongRowsError."""
        packed = unpacked = done = reported = 0
        began = time.monotonic()

        def made(rows: Iterator[Row]) -> Iterator[Made]:
            nonlocal packed, unpacked, done, reported
            for _, of_document in groupby(rows, itemgetter(0)):
                together = list(of_document)
                for row, block in form(together):
                    yield row, block
                    if block is not None:
                        packed, unpacked = packed + len(block.packed), unpacked + block.unpacked
                done += len(together)
                if done - reported >= ROWS_AT_ONCE:
                    self._progress(done - reported)
                    reported = done
                    if self._rate:
                        time.sleep(max(0.0, reported / self._rate - (time.monotonic() - began)))
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

    def _compare(
        self, rows: Sequence[Row], made: Iterable[Made], dictionary: Dictionary | None
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

    def _write(self, new: sql.Identifier, rows: Iterable[Made]) -> bytes:
        """Write these to a table. Returns the SHA-256 of what was sent, as of what _stored() reads.
        COPY takes the bytes of a document for JSONB, and a number for a moment."""
        child = () if self._entity.parent is None else ("text",)
        types = ["text", "int4", "int8", "text", "text", "int4", *child, "bytea", *stored.TYPES]
        empty = (None,) * len(stored.BLOCK)
        with self._connection.cursor() as cursor:
            writer = _Hashing(cursor)
            with cursor.copy(self._copy(new, "FROM STDIN"), writer=writer) as copy:
                copy.set_types(types)
                for (id, version, moment, *rest, text), block in rows:
                    data = None if text is None else b"\1" + text
                    own = (id, version, moment - _EPOCH, *rest, data)
                    copy.write_row((*own, *(empty if block is None else block)))
        return writer.written.digest()

    def _stored(self, new: sql.Identifier) -> bytes:
        """The SHA-256 of the rows of a new table, in the order in which they were written."""
        found = hashlib.sha256()
        self._connection.execute("SET LOCAL synchronize_seqscans TO off")  # from the first row on
        query = self._copy(new, "TO STDOUT")
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for part in copy:
                found.update(part)
        return found.digest()

    def _copy(self, new: sql.Identifier, way: LiteralString) -> sql.Composed:
        names = map(sql.Identifier, (*columns(self._entity), *stored.BLOCK))
        return sql.SQL("COPY {} ({}) " + way + " (FORMAT BINARY)").format(
            new, sql.SQL(", ").join(names)
        )

    def _wrong(self) -> WrongRowsError:
        return WrongRowsError(
            f"{self._entity.table} {self._day} stays as it is: what was built of it has other"
            " versions. This is a defect of Annals; set ANNALS_PACK_AFTER_DAYS=0 and report it"
        )

    def _add_late(self, old: DayTable) -> None:
        """Add the rows that came while the new table was built, when nobody can write any more.
        They are few, and each is found by its key: everybody waits."""
        self._connection.execute(
            "SET LOCAL enable_seqscan TO off; SET LOCAL enable_hashjoin TO off;"
            "SET LOCAL enable_mergejoin TO off; SET LOCAL enable_bitmapscan TO off"
        )
        names = sql.SQL(", ").join(map(sql.Identifier, columns(self._entity)))
        versions = stored.versions(self._entity, old.new.as_string(self._connection))
        self._connection.execute(
            sql.SQL(
                "INSERT INTO {new} ({names}) SELECT {names} FROM {old} AS old"
                " WHERE packed IS NULL AND (id, version) IN ("
                '  SELECT row_id, version FROM late_row WHERE "table" = {table} AND day = {day}'
                "  AND noted_at > now() - interval '1 day')"
                " AND NOT EXISTS (SELECT FROM {versions} AS new WHERE new.id = old.id"
                "  AND new.version = old.version AND new.updated_at = old.updated_at)"
            ).format(
                new=old.new,
                old=old.child,
                names=names,
                table=sql.Literal(self._entity.table),
                day=sql.Literal(self._day),
                versions=sql.SQL(versions),
            )
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
        """What the day is packed with: the newest of its table, or a first one."""
        found = dictionaries.newest(self._connection, self._entity.table)
        return found or self._train(self._sample(place))

    def _sample(self, place: DayTable) -> list[bytes]:
        """Some documents of a plain day."""
        query = sql.SQL(
            "SELECT data::text FROM {} TABLESAMPLE SYSTEM (least(100, 100.0 * {} / greatest(1,"
            " (SELECT reltuples FROM pg_class WHERE oid = {}::regclass))))"
            " WHERE packed IS NULL LIMIT {}"
        ).format(
            place.child,
            sql.Literal(2 * SAMPLES),
            sql.Literal(place.child.as_string(self._connection)),
            sql.Literal(SAMPLES),
        )
        return [text.encode() for (text,) in self._connection.execute(query)]

    def _train(self, documents: list[bytes]) -> Dictionary | None:
        """A dictionary of these documents, kept for the following days too."""
        made = dictionaries.train(documents)
        if made is not None:
            dictionaries.keep(self._connection, self._entity.table, made)
        return made

    def _judge(self, place: DayTable, dictionary: Dictionary, ratio: float) -> None:
        """Train a new dictionary where this one does worse than on its first day."""
        known = PackDictionary.objects.filter(number=dictionary.number)
        first = known.values_list("ratio", flat=True).first()
        if first is None:
            known.update(ratio=ratio)
        elif ratio > WORSE * first:
            with closing(self._rows(self._connection, place)) as rows:  # packed now
                documents = [row[-1] for row in islice(rows, 0, 4 * SAMPLES, 4)]
            self._train(documents)
