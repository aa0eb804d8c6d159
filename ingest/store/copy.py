"""Writes rows by COPY in PostgreSQL's binary format, and finds rows that cannot be stored."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

import psycopg
from msgspec.structs import astuple
from psycopg import errors, sql

from history.documents.record import Record
from history.kinds.entities import EntityKind
from ingest.messages.explanations import Code, Explanation
from ingest.messages.rejection import Reason
from ingest.store.batch import BadMessage, DecodedRow
from ingest.store.ledger import Connection
from ingest.store.sqlstate import (
    ErrorCause,
    classify_error,
    convert_shard_error,
    get_constraint_name,
)

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

# Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's timestamps start.
_EPOCH_2000 = 946_684_800_000_000

# psycopg splits a chunk above 128 KiB, which copies its bytes once more. A usual row is below
# 8 KiB.
CHUNK_BYTES = 120 * 1024

_TIME = Struct(">iq").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_NULL = _LENGTH(-1)
_JSONB = 1  # the version byte of jsonb's binary format, before the text

Piece = bytes | memoryview
_COLUMNS = ("id", "version", "data", "updated_at", "client_id", "author", "type")


def get_copy_columns(entity: EntityKind) -> tuple[str, ...]:
    """Return the columns of a kind's table in the order of `encode_row`."""
    return _COLUMNS if entity.parent is None else (*_COLUMNS, "product_instance_id")


def encode_rows(records: Iterable[Record]) -> Iterator[Piece]:
    """Yield rows in the binary format of COPY, in pieces.

    A piece with a snapshot is a reference to the bytes of the record, not a copy of them.
    """
    for record in records:
        yield from _encode_pieces(record)


def encode_row(record: Record) -> bytes:
    """Encode one row in the binary format of COPY."""
    return b"".join(_encode_pieces(record))


def _encode_pieces(record: Record) -> tuple[bytes, Piece, bytes]:
    """Encode one row as three pieces: columns to the left of the snapshot, snapshot, the rest."""
    _, id, version, change_type, updated_at, client_id, author, application, data = astuple(record)
    ident = id.encode()
    length, count = len(ident), 7 if application is None else 8
    start = _get_start_packer(length)(count, length, ident, 4, version, len(data) + 1, _JSONB)
    end = _TIME(8, updated_at - _EPOCH_2000) + _encode_origin(client_id, author, change_type)
    return start, data, end if application is None else end + _encode_text(application)


def prefix_number(number: int, row: bytes) -> bytes:
    """Return an encoded row with an integer as its first column, before all others."""
    count = int.from_bytes(row[:2], "big")
    return (count + 1).to_bytes(2, "big") + _INTEGER(4, number) + row[2:]


@lru_cache(256)
def _get_start_packer(id_length: int) -> Callable[..., bytes]:
    """Return the function that encodes the columns to the left of the snapshot.

    Args:
        id_length: The length of the id in bytes.
    """
    return Struct(f">hi{id_length}siiiB").pack


@lru_cache(4096)
def _encode_origin(client_id: str, author: str | None, change_type: int) -> bytes:
    """Encode client_id, author and type. Few combinations occur, so results are cached."""
    encoded_author = _NULL if author is None else _encode_text(author)
    return _encode_text(client_id) + encoded_author + _INTEGER(4, change_type)


def _encode_text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that PostgreSQL refuses to store, with its error."""

    row: DecodedRow
    error: psycopg.Error


class RowsDroppedError(psycopg.OperationalError):
    """Raised when PostgreSQL stored fewer rows than were sent: a trigger or rule drops rows."""


def copy_pieces(
    connection: Connection, table: sql.Identifier, names: Iterable[str], rows: Iterable[Piece]
) -> int:
    """Send encoded rows by COPY, in chunks of at least CHUNK_BYTES.

    Args:
        names: The columns.

    Returns:
        How many rows PostgreSQL stored.
    """
    statement = sql.SQL("COPY {table} ({names}) FROM STDIN (FORMAT binary)").format(
        table=table, names=sql.SQL(", ").join(map(sql.Identifier, names))
    )
    try:
        return _send_pieces(connection, statement, rows)
    except errors.InternalError_ as error:
        raise convert_shard_error(error, table.as_string(connection).strip('"')) from error


def _send_pieces(connection: Connection, statement: sql.Composed, rows: Iterable[Piece]) -> int:
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


def isolate_bad_rows(
    connection: Connection,
    attempt: Callable[[Sequence[DecodedRow]], None],
    rows: Sequence[DecodedRow],
    conflicts: bool = False,
) -> list[RefusedRow]:
    """Store all rows that PostgreSQL can store, and return the others.

    If an attempt fails, the rows are split in halves, until each bad row is found.

    Args:
        attempt: Stores rows, or raises an error. Called in a savepoint of the caller's transaction.
        conflicts: Whether a row that violates a unique constraint counts as bad. If False, the
            UniqueViolation is raised.

    Raises:
        psycopg.Error: The error was not caused by a row, for example an outage.
    """
    if not rows:
        return []
    try:
        with connection.transaction():
            attempt(rows)
    except psycopg.Error as error:
        if classify_error(error) is not ErrorCause.BATCH:
            raise
        if isinstance(error, errors.UniqueViolation) and not conflicts:
            raise
        if len(rows) == 1:
            return [RefusedRow(rows[0], error)]
        middle = len(rows) // 2
        return [
            *isolate_bad_rows(connection, attempt, rows[:middle], conflicts),
            *isolate_bad_rows(connection, attempt, rows[middle:], conflicts),
        ]
    return []


def make_bad_message(refused: RefusedRow) -> BadMessage:
    """Return the message of a refused row, with the reason for the quarantine."""
    error = refused.error
    reason, code = Reason.NOT_STORABLE, Code.ROW_REFUSED
    parameters = {"sqlstate": str(error.sqlstate)}
    if isinstance(error, errors.UntranslatableCharacter | errors.CharacterNotInRepertoire):
        reason, code = Reason.BAD_TEXT, Code.DATA_NOT_UTF8
    elif isinstance(error, errors.InvalidTextRepresentation):
        reason, code = Reason.BAD_TEXT, Code.DATA_LONE_SURROGATE
    elif isinstance(error, errors.NumericValueOutOfRange):
        reason, code = Reason.BAD_NUMBER, Code.NUMBER_TOO_LONG
    elif isinstance(error, psycopg.IntegrityError):
        code = Code.CONSTRAINT
        parameters["name"] = str(get_constraint_name(error))
    return BadMessage(refused.row.message, reason, Explanation(code, **parameters))
