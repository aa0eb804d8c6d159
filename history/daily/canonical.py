"""The canonical form of stored rows in SQL (seals) and Python (archive): order, bytes, digest."""

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

from history.blocks import dictionaries, stored
from history.blocks.form import DamagedBlockError, Row
from history.daily.day_reading import locked
from history.entities import Entity
from history.kinds.kind import DayRows, Form

Connection = psycopg.Connection[Any]

RANGE_ROWS = 10_000

# A text field is preceded by its length, so that two rows never have the same bytes. NULL is `-`.
_TEXT = "octet_length({0}) || ':' || {0}"
_MICROSECONDS = "(extract(epoch FROM {0}) * 1000000)::bigint"


def columns(entity: Entity) -> tuple[str, ...]:
    """The names of the columns of an entity's table, in the canonical order."""
    return tuple(column.name for column in entity.columns)


def fields(entity: Entity) -> sql.SQL:
    """The select list of the rows that `encode` takes."""
    forms = {"updated_at": _MICROSECONDS.format("updated_at"), "data": "data::text"}
    return sql.SQL(", ".join(forms.get(name, name) for name in columns(entity)))


def order(connection: Connection, rows: DayRows) -> sql.SQL:
    """ORDER BY of the rows, a text by its bytes: id, version, updated_at of a version."""
    row = connection.execute(
        "SELECT datlocprovider = 'b' OR datlocprovider = 'c' AND datcollate IN ('C', 'POSIX')"
        " FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    bytewise = row is not None and row[0]
    texts = {name for name, form in rows.columns if form is Form.TEXT and not bytewise}
    parts = [f'{name} COLLATE "C"' if name in texts else name for name in rows.order]
    return sql.SQL(", ".join(parts))


def _stored_order(connection: Connection, entity: Entity) -> sql.Composable:
    """Return ORDER BY of stored rows, a block where its first version is: then `stored.logical`
    gives the versions in the canonical order, and need not know the next block."""
    id, _ = order(connection, entity).as_string(connection).split(", ", 1)
    return sql.SQL(f"{id}, {stored.FIRST_KEY}")


def encode(row: Sequence[Any]) -> bytes:
    """The canonical bytes of one row, selected with `fields`; a text may be given as its bytes."""
    parts = []
    for value in row:
        if type(value) is int:
            parts.append(b"%d" % value)
        elif value is None:
            parts.append(b"-")
        else:
            data = value if type(value) is bytes else value.encode()
            parts.append(b"%d:%b" % (len(data), data))
    return b",".join(parts)


def timestamp(microseconds: int) -> str:
    """PostgreSQL's text of a moment, exact to the microsecond and with its offset."""
    seconds, rest = divmod(microseconds, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest:06}+00"


def encoded(rows: DayRows) -> sql.SQL:
    """An SQL expression with the value of `encode`, as bytea."""
    forms = {
        Form.TEXT: f"coalesce({_TEXT}, '-')",
        Form.NUMBER: "{0}",
        Form.MOMENT: _MICROSECONDS,
        Form.JSON: _TEXT.replace("{0}", "{0}::text"),
    }
    parts = [forms[form].format(name) for name, form in rows.columns]
    return sql.SQL(f"convert_to(concat_ws(',', {', '.join(parts)}), 'UTF8')")


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive rows: the first and the last as (id, version), their number, digest in hex."""

    first: tuple[str, int]
    last: tuple[str, int]
    rows: int
    digest: str


class Digest:
    """The digest of a day's ordered rows, computed row by row. The digest of a range of RANGE_ROWS
    rows is the SHA-256 of its rows' SHA-256; that of the day is the SHA-256 of its ranges'."""

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self.rows = 0
        self._open = hashlib.sha256()
        self._first = self._last = ("", 0)
        self._count = 0

    def add(self, id: str, version: int, row_hash: bytes) -> None:
        """Add the next row. row_hash: the SHA-256 of its canonical bytes."""
        self._last = (id, version)
        if self._count == 0:
            self._first = self._last
        self._open.update(row_hash)
        self.rows += 1
        self._count += 1
        if self._count == RANGE_ROWS:
            self._close()

    def finish(self) -> str:
        """The digest of all rows, in hex. Nothing can be added afterwards."""
        if self._count:
            self._close()
        whole = hashlib.sha256()
        for part in self.ranges:
            whole.update(bytes.fromhex(part.digest))
        return whole.hexdigest()

    def _close(self) -> None:
        part = Range(self._first, self._last, self._count, self._open.hexdigest())
        self.ranges.append(part)
        self._open, self._count = hashlib.sha256(), 0


def versions(
    connection: Connection,
    entity: Entity,
    source: sql.Composable,
    *,
    ordered: bool = True,
    data: str = "text",
    damaged: Callable[[DamagedBlockError], None] | None = None,
) -> Generator[Row]:
    """The rows of a table of versions as `fields` selects them, in the canonical order, or as they
    come; streamed. data: bytea for the bytes of documents. damaged: gets the error of each row that
    cannot be read, which is left out. Close it, to use the connection again. Raises
    DamagedBlockError where there is none."""
    by = _stored_order(connection, entity) if ordered else None
    packed = _with_text if data == "text" else None
    return _stream(connection, entity, source, fields(entity), data, by, packed, damaged)


def hashes(
    connection: Connection, rows: DayRows, source: sql.Composable
) -> Iterator[tuple[Any, ...]]:
    """Of each row of a table its text and integer to call it by, and the SHA-256 of its canonical
    bytes, in the canonical order; as `versions`. The server hashes the rows that are not packed."""
    if isinstance(rows, Entity):
        *names, _ = columns(rows)
        parts = [_MICROSECONDS.format(name) if name == "updated_at" else name for name in names]
        plain = sql.SQL("{}, CASE WHEN packed IS NULL THEN sha256({}) END").format(
            sql.SQL(", ".join(parts)), encoded(rows)
        )
        by = _stored_order(connection, rows)
        for row in _stream(connection, rows, source, plain, "bytea", by, _hashed):
            yield row[0], row[1], row[-1]
        return
    query = sql.SQL(
        "COPY (SELECT {}, {}, sha256({}) FROM {} ORDER BY {}) TO STDOUT (FORMAT BINARY)"
    ).format(*map(sql.SQL, rows.called), encoded(rows), source, order(connection, rows))
    with locked(connection, source), connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(["text", "int4", "bytea"])
        yield from copy.rows()


def _stream(
    connection: Connection,
    entity: Entity,
    source: sql.Composable,
    select: sql.Composable,
    last: str,
    by: sql.Composable | None,
    packed: Callable[[Row], Row] | None = None,
    damaged: Callable[[DamagedBlockError], None] | None = None,
) -> Generator[Row]:
    """As `versions`. select: of plain rows: `fields` but for the document, then what has the type
    `last`; a version of a block has its document there, and becomes what packed makes of it."""
    query = sql.SQL("COPY (SELECT {}, {} FROM {}{}) TO STDOUT (FORMAT BINARY)").format(
        select,
        sql.SQL(", ".join(stored.BLOCK)),
        source,
        sql.SQL("") if by is None else sql.SQL(" ORDER BY {}").format(by),
    )
    dictionaries.read(connection)
    child = () if entity.parent is None else ("text",)
    # COPY takes its snapshot before it waits for a lock.
    with locked(connection, source), connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(
            ["text", "int4", "int8", "text", "text", "int4", *child, last, *stored.TYPES]
        )
        yield from stored.logical(entity.table, copy.rows(), packed, damaged)


def _with_text(row: Row) -> Row:
    return (*row[:-1], row[-1].decode())


def _hashed(row: Row) -> Row:
    return (*row[:-1], hashlib.sha256(encode(row)).digest())


def digest(connection: Connection, rows: DayRows, source: sql.Composable) -> Digest:
    """The digest of the rows of a table or partition. Raises DamagedBlockError."""
    result = Digest()
    for id_, version, row_hash in hashes(connection, rows, source):
        result.add(id_, version, row_hash)
    return result
