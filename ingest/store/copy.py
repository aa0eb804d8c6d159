"""Writes rows to a table by COPY: all rows, or all except those that PostgreSQL cannot store.

The only place that uses COPY.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import errors, sql

from history.exponents import MOST_AFTER_POINT, MOST_BEFORE_POINT
from ingest.source.decode import Reason
from ingest.store.batch import Reject, Row
from ingest.store.copy_format import CHUNK_BYTES, HEADER, TRAILER
from ingest.store.ledger import Connection
from ingest.store.sqlstate import Cause, cause, of_shard

_BAD_NUMBER = (
    f"a number in `data` has more than {MOST_BEFORE_POINT} digits before its point or more than"
    f" {MOST_AFTER_POINT} after it; send it as a text"
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that PostgreSQL does not store, and its error."""

    row: Row
    error: psycopg.Error


def copy(
    connection: Connection, table: sql.Identifier, names: Iterable[str], rows: Iterable[bytes]
) -> None:
    """COPY rows in PostgreSQL's binary format, one or many in each of `rows`, in chunks of at least
    CHUNK_BYTES."""
    statement = sql.SQL("COPY {table} ({names}) FROM STDIN (FORMAT binary)").format(
        table=table, names=sql.SQL(", ").join(map(sql.Identifier, names))
    )
    try:
        _send(connection, statement, rows)
    except errors.InternalError_ as error:
        raise of_shard(error, table.as_string(connection).strip('"')) from error


def _send(connection: Connection, statement: sql.Composed, rows: Iterable[bytes]) -> None:
    with connection.cursor() as cursor, cursor.copy(statement) as stream:
        pieces, size = [HEADER], len(HEADER)
        for row in rows:
            pieces.append(row)
            size += len(row)
            if size >= CHUNK_BYTES:
                stream.write(b"".join(pieces))
                pieces, size = [], 0
        stream.write(b"".join((*pieces, TRAILER)))


def halve(
    connection: Connection,
    attempt: Callable[[Sequence[Row]], None],
    rows: Sequence[Row],
    conflicts: bool = False,
) -> list[Refused]:
    """Attempt all rows in a savepoint. If a row is at fault, halve until it is found.

    Inside a transaction. Returns the rows at fault; the others are stored. conflicts: also look for
    the rows that violate a unique constraint; otherwise that error is raised, as are all errors
    that are not the rows' fault.
    """
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
