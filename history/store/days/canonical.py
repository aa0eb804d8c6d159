"""The canonical form of stored rows, in SQL for seals and in Python for the archive.

It defines the order of the rows, the bytes of each row, and the digest of a day.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql

from history.kinds.entities import EntityKind
from history.kinds.kind import CanonicalForm, DayRows
from history.store.blocks import dictionaries, queries
from history.store.blocks.codec import CanonicalRow, DamagedBlockError
from history.store.days.day_reading import lock_source

Connection = psycopg.Connection[Any]

RANGE_ROWS = 10_000

# A text field is preceded by its length, so that two rows never have the same bytes. NULL is `-`.
_TEXT = "octet_length({0}) || ':' || {0}"
_MICROSECONDS = "(extract(epoch FROM {0}) * 1000000)::bigint"


def list_columns(entity: EntityKind) -> tuple[str, ...]:
    """Return the column names of a kind's table in the canonical order."""
    return tuple(column.name for column in entity.columns)


def build_select_list(entity: EntityKind) -> sql.SQL:
    """Build the select list that gives rows in the form that `encode_row` takes."""
    forms = {"updated_at": _MICROSECONDS.format("updated_at"), "data": "data::text"}
    return sql.SQL(", ".join(forms.get(name, name) for name in list_columns(entity)))


def build_order(connection: Connection, rows: DayRows) -> sql.SQL:
    """Build the ORDER BY of the canonical order. Texts are ordered by their bytes."""
    row = connection.execute(
        "SELECT datlocprovider = 'b' OR datlocprovider = 'c' AND datcollate IN ('C', 'POSIX')"
        " FROM pg_database WHERE datname = current_database()"
    ).fetchone()
    bytewise = row is not None and row[0]
    texts = {name for name, form in rows.columns if form is CanonicalForm.TEXT and not bytewise}
    parts = [f'{name} COLLATE "C"' if name in texts else name for name in rows.order]
    return sql.SQL(", ".join(parts))


def build_stored_order(connection: Connection, entity: EntityKind) -> sql.Composable:
    """Build the ORDER BY that sorts stored rows as `queries.iterate_versions` needs them.

    A block is sorted by its first version. So `iterate_versions` has read every block before one of
    its versions is due, and can yield the versions in the canonical order.
    """
    id, _ = build_order(connection, entity).as_string(connection).split(", ", 1)
    return sql.SQL(f"{id}, {queries.FIRST_KEY}")


def encode_row(row: Sequence[Any]) -> bytes:
    """Return the canonical bytes of one row. A text in the row may be a str, or bytes in UTF-8."""
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


def format_timestamp(microseconds: int) -> str:
    """Format a moment as PostgreSQL does, exact to the microsecond and with its offset."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{fraction:06}+00"


def build_encoding(rows: DayRows) -> sql.SQL:
    """Build an SQL expression for the bytes that `encode_row` returns."""
    forms = {
        CanonicalForm.TEXT: f"coalesce({_TEXT}, '-')",
        CanonicalForm.NUMBER: "{0}",
        CanonicalForm.MOMENT: _MICROSECONDS,
        CanonicalForm.JSON: _TEXT.replace("{0}", "{0}::text"),
    }
    parts = [forms[form].format(name) for name, form in rows.columns]
    return sql.SQL(f"convert_to(concat_ws(',', {', '.join(parts)}), 'UTF8')")


@dataclass(frozen=True, slots=True)
class RowRange:
    """A range of consecutive rows of a day, in the canonical order."""

    first: tuple[str, int]  # id and version of the first row
    last: tuple[str, int]  # id and version of the last row
    rows: int  # how many rows
    digest: str  # in hex


class DayDigest:
    """The digest of a day's rows in their order, computed row by row.

    The digest of a range of RANGE_ROWS rows is the SHA-256 over the SHA-256 of each row. The digest
    of the day is the SHA-256 over the digests of the ranges.
    """

    def __init__(self) -> None:
        self.ranges: list[RowRange] = []
        self.rows = 0
        self._open = hashlib.sha256()
        self._first = self._last = ("", 0)
        self._count = 0

    def add(self, id: str, version: int, row_hash: bytes) -> None:
        """Add the hash of the next row to the digest of the day.

        Args:
            id: The first value of the display key of the row. See `DayRows.display_key`.
            version: The second value of the display key.
            row_hash: The SHA-256 of the canonical bytes of the row.
        """
        self._last = (id, version)
        if self._count == 0:
            self._first = self._last
        self._open.update(row_hash)
        self.rows += 1
        self._count += 1
        if self._count == RANGE_ROWS:
            self._close()

    def finish(self) -> str:
        """Return the digest of all rows in hex. No row can be added afterwards."""
        if self._count:
            self._close()
        whole = hashlib.sha256()
        for part in self.ranges:
            whole.update(bytes.fromhex(part.digest))
        return whole.hexdigest()

    def _close(self) -> None:
        part = RowRange(self._first, self._last, self._count, self._open.hexdigest())
        self.ranges.append(part)
        self._open, self._count = hashlib.sha256(), 0


def stream_versions(
    connection: Connection,
    entity: EntityKind,
    source: sql.Composable,
    *,
    ordered: bool = True,
    data: str = "text",
    on_damage: Callable[[DamagedBlockError], None] | None = None,
) -> Generator[CanonicalRow]:
    """Stream the canonical rows of a table of versions.

    Close the stream before you use the connection again.

    Args:
        ordered: Whether the rows come in the canonical order.
        data: The type of the snapshots, `text` or `bytea`.
        on_damage: Called with the error of each row that cannot be read. These rows are left out.

    Raises:
        DamagedBlockError: A row cannot be read, and `on_damage` is None.
    """
    order = build_stored_order(connection, entity) if ordered else None
    convert = _decode_snapshot if data == "text" else None
    return _copy_rows(
        connection, entity, source, build_select_list(entity), data, order, convert, on_damage
    )


def stream_hashes(
    connection: Connection, rows: DayRows, source: sql.Composable
) -> Iterator[tuple[Any, ...]]:
    """Yield the display key and the SHA-256 of each row of a table in the canonical order.

    The display key is two values, see DayRows. The versions of a block are yielded as rows.
    PostgreSQL hashes plain rows, and this process hashes the versions in blocks.
    """
    if isinstance(rows, EntityKind):
        *names, _ = list_columns(rows)
        parts = [_MICROSECONDS.format(name) if name == "updated_at" else name for name in names]
        plain = sql.SQL("{}, CASE WHEN packed IS NULL THEN sha256({}) END").format(
            sql.SQL(", ".join(parts)), build_encoding(rows)
        )
        order = build_stored_order(connection, rows)
        for row in _copy_rows(connection, rows, source, plain, "bytea", order, _hash_version):
            yield row[0], row[1], row[-1]
        return
    query = sql.SQL(
        "COPY (SELECT {}, {}, sha256({}) FROM {} ORDER BY {}) TO STDOUT (FORMAT BINARY)"
    ).format(
        *map(sql.SQL, rows.display_key), build_encoding(rows), source, build_order(connection, rows)
    )
    with lock_source(connection, source), connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(["text", "int4", "bytea"])
        yield from copy.rows()


def _copy_rows(
    connection: Connection,
    entity: EntityKind,
    source: sql.Composable,
    select: sql.Composable,
    last_type: str,
    order: sql.Composable | None,
    convert: Callable[[CanonicalRow], CanonicalRow] | None = None,
    on_damage: Callable[[DamagedBlockError], None] | None = None,
) -> Generator[CanonicalRow]:
    """Stream the rows of a table by one COPY. A block is streamed as a row for each version.

    Args:
        select: The select list of plain rows: all columns except the snapshot, then a value of the
            type `last_type`, such as the snapshot as text or a hash.
        convert: Does for a version in a block what `select` does for a plain row: it is called with
            a row that has the snapshot as last value, and returns a row that has a value of
            `last_type` there. None: the snapshot stays.
    """
    query = sql.SQL("COPY (SELECT {}, {} FROM {}{}) TO STDOUT (FORMAT BINARY)").format(
        select,
        sql.SQL(", ".join(queries.BLOCK_COLUMNS)),
        source,
        sql.SQL("") if order is None else sql.SQL(" ORDER BY {}").format(order),
    )
    dictionaries.read_new_dictionaries(connection)
    child = () if entity.parent is None else ("text",)
    # The table is locked first: COPY takes PostgreSQL's snapshot before it waits for a lock.
    with lock_source(connection, source), connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(
            [
                "text",
                "int4",
                "int8",
                "text",
                "text",
                "int4",
                *child,
                last_type,
                *queries.BLOCK_TYPES,
            ]
        )
        yield from queries.iterate_versions(entity.table, copy.rows(), convert, on_damage)


def _decode_snapshot(row: CanonicalRow) -> CanonicalRow:
    return (*row[:-1], row[-1].decode())


def _hash_version(row: CanonicalRow) -> CanonicalRow:
    return (*row[:-1], hashlib.sha256(encode_row(row)).digest())


def compute_digest(connection: Connection, rows: DayRows, source: sql.Composable) -> DayDigest:
    """Compute the digest of the rows of a table or partition.

    Raises:
        DamagedBlockError: A block cannot be read.
    """
    result = DayDigest()
    for id_, version, row_hash in stream_hashes(connection, rows, source):
        result.add(id_, version, row_hash)
    return result
