"""Writes rows to a table by COPY: all rows, or all except those that PostgreSQL cannot store."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

import psycopg
from msgspec.structs import astuple
from psycopg import errors, sql

from history.documents.jsonb import MOST_AFTER_POINT, MOST_BEFORE_POINT
from history.entities import Entity
from history.record import Record
from ingest.source.decode import Reason
from ingest.store.batch import Reject, Row
from ingest.store.ledger import Connection
from ingest.store.sqlstate import Cause, cause, of_shard

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

# Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's timestamps start.
_EPOCH_2000 = 946_684_800_000_000

# psycopg copies what is larger than 128 KiB once more, in parts; a usual row is below 8 KiB.
CHUNK_BYTES = 120 * 1024

_TIME = Struct(">iq").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_NULL = _LENGTH(-1)
_JSONB = 1  # the format's version byte before the text

Piece = bytes | memoryview
_COLUMNS = ("id", "version", "data", "updated_at", "client_id", "author", "type")


def columns(entity: Entity) -> tuple[str, ...]:
    """The columns of an entity's table, in the order in which encode_row() puts them."""
    return _COLUMNS if entity.parent is None else (*_COLUMNS, "product_instance_id")


def encode_rows(records: Iterable[Record]) -> Iterator[Piece]:
    """Rows in binary COPY format, in pieces."""
    for record in records:
        yield from _pieces(record)


def encode_row(record: Record) -> bytes:
    """One row of encode_rows()."""
    return b"".join(_pieces(record))


def _pieces(record: Record) -> tuple[bytes, Piece, bytes]:
    """A row, with its document in the middle."""
    _, id, version, kind, updated_at, client_id, author, application, data = astuple(record)
    ident = id.encode()
    length, count = len(ident), 7 if application is None else 8
    start = _start(length)(count, length, ident, 4, version, len(data) + 1, _JSONB)
    end = _TIME(8, updated_at - _EPOCH_2000) + _source(client_id, author, kind)
    return start, data, end if application is None else end + _text(application)


def numbered(number: int, row: bytes) -> bytes:
    """The same row with one more column in front: an integer."""
    count = int.from_bytes(row[:2], "big")
    return (count + 1).to_bytes(2, "big") + _INTEGER(4, number) + row[2:]


@lru_cache(256)
def _start(length: int) -> Callable[..., bytes]:
    """What packs a row up to its document."""
    return Struct(f">hi{length}siiiB").pack


@lru_cache(4096)
def _source(client_id: str, author: str | None, kind: int) -> bytes:
    """client_id, author and type: few combinations, met again and again."""
    login = _NULL if author is None else _text(author)
    return _text(client_id) + login + _INTEGER(4, kind)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


_BAD_NUMBER = (
    f"a number in `data` has more than {MOST_BEFORE_POINT} digits before its point or more than"
    f" {MOST_AFTER_POINT} after it; send it as a text"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that PostgreSQL does not store, and its error."""

    row: Row
    error: psycopg.Error


class RowsDroppedError(psycopg.OperationalError):
    """PostgreSQL took fewer rows than it was given: the store is wrong, not the rows."""


def copy(
    connection: Connection, table: sql.Identifier, names: Iterable[str], rows: Iterable[Piece]
) -> int:
    """COPY rows in PostgreSQL's binary format, given in pieces, in chunks of at least CHUNK_BYTES.
    Returns how many PostgreSQL took."""
    statement = sql.SQL("COPY {table} ({names}) FROM STDIN (FORMAT binary)").format(
        table=table, names=sql.SQL(", ").join(map(sql.Identifier, names))
    )
    try:
        return _send(connection, statement, rows)
    except errors.InternalError_ as error:
        raise of_shard(error, table.as_string(connection).strip('"')) from error


def _send(connection: Connection, statement: sql.Composed, rows: Iterable[Piece]) -> int:
    with connection.cursor() as cursor:
        with cursor.copy(statement) as stream:
            pieces: list[Piece] = [HEADER]
            size = len(HEADER)
            for piece in rows:
                pieces.append(piece)
                size += len(piece)
                if size >= CHUNK_BYTES:
                    stream.write(b"".join(pieces))
                    pieces, size = [], 0
            stream.write(b"".join((*pieces, TRAILER)))
        return cursor.rowcount


def halve(
    connection: Connection,
    attempt: Callable[[Sequence[Row]], None],
    rows: Sequence[Row],
    conflicts: bool = False,
) -> list[Refused]:
    """Attempt all rows in a savepoint, in a transaction; if one is at fault, halve until it is
    found. Returns the rows at fault; the others are stored. conflicts: also rows that violate a
    unique constraint; else that is raised, as are all errors that are not the rows' fault."""
    if not rows:
        return []
    try:
        with connection.transaction():
            attempt(rows)
    except psycopg.Error as error:
        if cause(error) is not Cause.BATCH:
            raise
        if isinstance(error, errors.UniqueViolation) and not conflicts:
            raise
        if len(rows) == 1:
            return [Refused(rows[0], error)]
        middle = len(rows) // 2
        return [
            *halve(connection, attempt, rows[:middle], conflicts),
            *halve(connection, attempt, rows[middle:], conflicts),
        ]
    return []


def reject(refused: Refused) -> Reject:
    """The reject for a row that PostgreSQL does not store. The detail quotes nothing of the row."""
    error = refused.error
    reason, detail = Reason.NOT_STORABLE, "PostgreSQL refuses the row"
    if isinstance(error, errors.UntranslatableCharacter | errors.CharacterNotInRepertoire):
        reason = Reason.BAD_TEXT
        detail = "a text in `data` has bytes that are not UTF-8; the message must be JSON in UTF-8"
    elif isinstance(error, errors.InvalidTextRepresentation):
        reason = Reason.BAD_TEXT
        detail = "a text in `data` has half of a surrogate pair, which is no character"
    elif isinstance(error, errors.NumericValueOutOfRange):
        reason, detail = Reason.BAD_NUMBER, _BAD_NUMBER
    elif isinstance(error, psycopg.IntegrityError):
        detail = f"PostgreSQL refuses the row by the constraint {error.diag.constraint_name}"
    return Reject(refused.row.message, reason, f"{detail} (SQLSTATE {error.sqlstate})")
