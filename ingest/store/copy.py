"""Writes rows to a table by COPY: all rows, or all except those that PostgreSQL cannot store.

The only place that uses COPY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import psycopg
from psycopg import errors, sql

from ingest.source.decode import Reason
from ingest.store.batch import Reject, Row
from ingest.store.copy_format import HEADER, TRAILER
from ingest.store.ledger import Connection

CHUNK_BYTES = 256 * 1024

# What a row itself can be guilty of; everything else is the database's state.
POISON = (psycopg.DataError, errors.ProgramLimitExceeded, errors.StatementTooComplex)
Poison = psycopg.DataError | errors.ProgramLimitExceeded | errors.StatementTooComplex


def copy(
    connection: Connection, table: sql.Identifier, names: Iterable[str], packed: Iterable[bytes]
) -> None:
    """COPY packed rows in chunks of about CHUNK_BYTES."""
    statement = sql.SQL("COPY {table} ({names}) FROM STDIN (FORMAT binary)").format(
        table=table, names=sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with connection.cursor() as cursor, cursor.copy(statement) as stream:
        pieces, size = [HEADER], len(HEADER)
        for row in packed:
            pieces.append(row)
            size += len(row)
            if size >= CHUNK_BYTES:
                stream.write(b"".join(pieces))
                pieces, size = [], 0
        stream.write(b"".join((*pieces, TRAILER)))


def copy_halving(
    connection: Connection, attempt: Callable[[Sequence[Row]], None], rows: Sequence[Row]
) -> list[Reject]:
    """Attempt all rows in a savepoint. If a row is poison, halve until it is found.

    Inside a transaction. Returns the poison rows; the others are in the table.
    """
    if not rows:
        return []
    try:
        with connection.transaction():
            attempt(rows)
    except POISON as error:
        if len(rows) == 1:
            return [_poison(rows[0], error)]
        middle = len(rows) // 2
        return [
            *copy_halving(connection, attempt, rows[:middle]),
            *copy_halving(connection, attempt, rows[middle:]),
        ]
    return []


def _poison(row: Row, error: Poison) -> Reject:
    reason, detail = Reason.NOT_STORABLE, "PostgreSQL cannot store the snapshot"
    if isinstance(error, errors.UntranslatableCharacter | errors.CharacterNotInRepertoire):
        reason, detail = Reason.BAD_TEXT, "a character that PostgreSQL cannot store, such as NUL"
    elif isinstance(error, errors.InvalidTextRepresentation):
        reason, detail = Reason.BAD_TEXT, "text that is no Unicode, such as a lone surrogate"
    elif isinstance(error, errors.NumericValueOutOfRange):
        reason, detail = Reason.BAD_NUMBER, "a number beyond what PostgreSQL can store"
    return Reject(row.message, reason, f"{detail} (SQLSTATE {error.sqlstate})")
