"""Packing a finished day: the versions of each document in one row, and back.

The new table of a day is built beside it, compared with it row by row, and takes its place in one
short transaction. Until then nothing is changed, so a run that is killed leaves nothing.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

import psycopg
from django.conf import settings
from psycopg import sql

from history import distribution
from history.base import clock
from history.blocks import dictionaries, stored
from history.blocks.dictionaries import Dictionary
from history.blocks.form import Packer, Row, Stored, cut
from history.daily import days
from history.daily.canonical import (
    Connection,
    Digest,
    columns,
    digest,
    encode,
    encoded,
    fields,
    order,
    timestamp,
)
from history.daily.days import DayState, DayTable
from history.entities import Entity
from history.failure.complaints import Complaint
from history.models import PackDictionary, SealedDay
from history.partitions.catalog import Partition
from history.partitions.show import size
from history.seals import day_snapshot, late_rows, verification
from history.seals.finished import with_rows
from history.seals.seal import YOUNGEST_DAYS

# rows done since the last call
ReportRows = Callable[[int], None]

# A day is packed again when more than this share of its rows came late.
LATE_SHARE: Final = 0.01
# A dictionary is trained anew when a day got larger by this share than the first one with it.
WORSE: Final = 1.1
SAMPLES: Final = 4_000
ROWS_AT_ONCE: Final = 10_000


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
    NotPackable if the day is not finished or not there, SealedDayChangedError if it is not as it
    was sealed, and psycopg.errors.LockNotAvailable if rows came meanwhile or a transaction stays
    open: try again later."""
    if (clock.now().date() - day).days <= YOUNGEST_DAYS:
        raise NotPackable(f"{entity.table} {day} is not finished: it ended less than a day ago")
    return _Rewrite(connection, entity, day, rate, progress).pack()


def unpack(
    connection: Connection,
    entity: Entity,
    day: date,
    *,
    rate: int = 0,
    progress: ReportRows = lambda _: None,
) -> Done:
    """Make the rows of a packed day plain again; otherwise as pack()."""
    return _Rewrite(connection, entity, day, rate, progress).unpack()


class _Rewrite:
    """One call of pack() or unpack()."""

    def __init__(
        self, connection: Connection, entity: Entity, day: date, rate: int, progress: ReportRows
    ) -> None:
        self._connection = connection
        self._entity = entity
        self._day = day
        self._rate = rate
        self._progress = progress

    def pack(self) -> Done:
        place = self._place()
        self._check_disk(place)
        verification.check(self._connection, self._entity, self._day)
        dictionary = self._dictionary(place)
        packer = Packer(dictionary)

        def blocks(rows: Sequence[Row]) -> Iterator[tuple[Row, Stored | None]]:
            return map(packer.pack, cut(rows))

        done, ratio = self._replace(place, blocks, packed=True)
        if dictionary is not None:
            self._judge(place, dictionary, ratio)
        return done

    def unpack(self) -> Done:
        def plain(rows: Sequence[Row]) -> Iterator[tuple[Row, Stored | None]]:
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

    def _replace(
        self,
        place: DayTable,
        form: Callable[[Sequence[Row]], Iterable[tuple[Row, Stored | None]]],
        *,
        packed: bool,
    ) -> tuple[Done, float]:
        """Give the day a table with rows of this form. Returns also the bytes of blocks for each
        byte of their documents."""
        connection, entity, day = self._connection, self._entity, self._day
        # From now on each row that comes is noted, so that no row is left behind.
        day_snapshot.announce(connection, place, entity.table, day)
        # Rather now than after the work.
        late_rows.wait_for_others(connection, [place.parent, place.child])
        read = Digest()
        with connection.transaction():
            distribution.one_by_one(connection)
            new = place._replace(child=place.new)
            days.create_detached(connection, new, day, place.comment or days.MARK)
            sizes = self._fill(place, form, read)
            connection.execute(sql.SQL("REINDEX TABLE {}").format(place.new))
            connection.execute(sql.SQL("ANALYZE {}").format(place.new))
            self._compare(place.new, read)
            before, after = self._bytes(place.child), self._bytes(place.new)
            self._add_late(place)  # then only those that come meanwhile are left
            days.replace(connection, entity.table, day, self._add_late)
            connection.execute(
                "UPDATE sealed_day SET packed_at = CASE WHEN %s THEN clock_timestamp() END"
                ' WHERE "table" = %s AND day = %s',
                [packed, entity.table, day],
            )
        return Done(read.rows, before, after), sizes[0] / max(1, sizes[1])

    def _fill(
        self,
        place: DayTable,
        form: Callable[[Sequence[Row]], Iterable[tuple[Row, Stored | None]]],
        read: Digest,
    ) -> tuple[int, int]:
        """Write the rows of the day to its new table. Returns the bytes of blocks, and of the
        documents in them. read: gets what is read of the day."""
        names = [*columns(self._entity), *stored.BLOCK]
        query = sql.SQL("COPY {} ({}) FROM STDIN").format(
            place.new, sql.SQL(", ").join(map(sql.Identifier, names))
        )
        packed = unpacked = done = reported = 0
        began = time.monotonic()
        waiting: list[tuple[Row, Stored | None]] = []
        for _, rows in groupby(self._rows(place, read), itemgetter(0)):
            together = list(rows)
            waiting += form(together)
            done += len(together)
            if len(waiting) >= ROWS_AT_ONCE:
                self._write(query, waiting)
                waiting = []
                self._progress(done - reported)
                reported = done
                if self._rate:
                    time.sleep(max(0.0, done / self._rate - (time.monotonic() - began)))
            for _, block in waiting[-len(together) :]:
                if block is not None:
                    packed, unpacked = packed + len(block.packed), unpacked + block.unpacked
        self._write(query, waiting)
        self._progress(done - reported)
        return packed, unpacked

    def _compare(self, new: sql.Identifier, read: Digest) -> None:
        """Raises WrongRowsError."""
        built = digest(self._connection, self._entity, new)
        if (built.rows, built.finish()) != (read.rows, read.finish()):
            raise WrongRowsError(
                f"{self._entity.table} {self._day} stays as it is: what was built of it has other"
                " versions. This is a defect of Annals; set ANNALS_PACK_AFTER_DAYS=0 and report it"
            )

    def _rows(self, place: DayTable, read: Digest) -> Iterator[Row]:
        """The rows of a day in the canonical order. The server hashes those that are not packed,
        in the same statement: no row can come between the digest and the copy."""
        connection, entity = self._connection, self._entity
        query = sql.SQL(
            "SELECT {}, CASE WHEN packed IS NULL THEN sha256({}) END, {} FROM {} ORDER BY {}"
        ).format(
            fields(entity),
            encoded(entity),
            sql.SQL(", ".join(stored.BLOCK)),
            place.child,
            order(connection, entity),
        )
        dictionaries.read(connection)
        with psycopg.ServerCursor(connection, "annals_day") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(query, binary=True)
            # A version of a block has its document where a plain row has the hash.
            for *row, text, last in stored.logical(entity.table, cursor):
                version = (*row, last if text is None else text)
                row_hash = hashlib.sha256(encode(version)).digest() if text is None else last
                read.add(row[0], row[1], row_hash)
                yield version

    def _write(self, query: sql.Composed, rows: Iterable[tuple[Row, Stored | None]]) -> None:
        with self._connection.cursor() as cursor, cursor.copy(query) as copy:
            for (id, version, moment, *rest), block in rows:
                parts = (None,) * len(stored.BLOCK) if block is None else _texts(block)
                copy.write_row((id, version, timestamp(moment), *rest, *parts))

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
            with self._connection.transaction():  # the day is packed now
                rows = islice(self._rows(place, Digest()), 0, 4 * SAMPLES, 4)
                documents = [row[-1].encode() for row in rows]
            self._train(documents)


def _texts(block: Stored) -> tuple[Any, ...]:
    """The columns of a block in the form of COPY."""
    return tuple(_array(part) if isinstance(part, list) else part for part in block)


def _array(numbers: list[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"
