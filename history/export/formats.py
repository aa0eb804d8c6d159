"""The formats of an export: JSON lines and Parquet."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import IO, Any, Protocol

from psycopg import sql

from history.archive.parquet import Row, Writer
from history.daily.canonical import Connection, columns, versions
from history.documents.jsonb import from_store, line_from_store
from history.entities import Entity
from history.masking import Mask
from history.record import ChangeType

# rows done since the last call
Tick = Callable[[int], None]
TICK_ROWS = 5_000
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the lines add the Z themselves

NAMES = {
    "updated_at": "updatedAt",
    "client_id": "clientId",
    "product_instance_id": "productInstanceId",
}


class Format(Protocol):
    """One output stream. `day` appends the rows of one table and returns their number; `add`
    appends one row as history.daily.canonical.fields selects it."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None: ...
    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int: ...
    def add(self, row: Row) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """One line for each version, made by PostgreSQL, with the fields of the message: id, version,
    type, updatedAt (UTC), clientId, author, productInstanceId, data. Numbers are exact."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None:
        self._sink = sink
        self._entity = entity
        self._names = columns(entity)
        self._order = _order(entity)

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        # CSV without quoting: a JSON text contains no control characters.
        query = sql.SQL(
            "COPY (SELECT {} FROM {}) TO STDOUT"
            " (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01', ESCAPE E'\\x01')"
        ).format(_line(self._entity), source)
        write, rows = self._sink.write, 0
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for line in copy:
                write(line_from_store(line))
                rows += 1
                if rows % TICK_ROWS == 0:
                    tick(TICK_ROWS)
        tick(rows % TICK_ROWS)
        return rows

    def add(self, row: Row) -> None:
        values = dict(zip(self._names, _document(row), strict=True))
        parts = [f'"{NAMES.get(name, name)}":{_json(name, values[name])}' for name in self._order]
        self._sink.write(f"{{{','.join(parts)}}}\n".encode())

    def close(self) -> None:
        """JSON lines have no trailer."""


class Parquet:
    """The columns of the archive's files; the rows are in no particular order."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None:
        self._writer = Writer(sink, entity, ordered=False)
        self._entity = entity

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        return add_rows(connection, self._entity, source, self.add, tick)

    def add(self, row: Row) -> None:
        self._writer.add(_document(row))

    def close(self) -> None:
        self._writer.close()


FORMATS: dict[str, type[Format]] = {"jsonl": JsonLines, "parquet": Parquet}


class Masked:
    """Another format with masked documents. The server cannot make the lines of a table then."""

    def __init__(self, output: Format, entity: Entity, mask: Mask) -> None:
        self._output = output
        self._entity = entity
        self._mask = mask

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        return add_rows(connection, self._entity, source, self.add, tick)

    def add(self, row: Row) -> None:
        id, *rest, data = _document(row)
        self._output.add((id, *rest, self._mask(str(id), str(data).encode()).decode()))

    def close(self) -> None:
        self._output.close()


def add_rows(
    connection: Connection,
    entity: Entity,
    source: sql.Composable,
    add: Callable[[Row], object],
    tick: Tick,
) -> int:
    """Call `add` with each row, as history.daily.canonical.fields selects it."""
    rows = 0
    for row in versions(connection, entity, source, ordered=False):
        add(row)
        rows += 1
        if rows % TICK_ROWS == 0:
            tick(TICK_ROWS)
    tick(rows % TICK_ROWS)
    return rows


def _document(row: Row) -> Row:
    """The row with the text of the document instead of the text of the stored JSONB."""
    *rest, data = row
    return row if data[:1] == "{" else (*rest, from_store(data.encode()).decode())


def _line(entity: Entity) -> sql.SQL:
    """The SQL expression of one JSON line."""
    kinds = " ".join(f"WHEN {kind.value} THEN '\"{kind.name}\"'" for kind in ChangeType)
    forms = {
        "version": "version",
        "type": f"CASE type {kinds} END",
        # Not to_char: it takes a third of the time of the whole line.
        "updated_at": "left(to_json(updated_at AT TIME ZONE 'UTC')::text, -1) || 'Z\"'",
        "data": "data::text",
    }
    parts = [
        f"'\"{NAMES.get(name, name)}\":' || "
        + forms.get(name, f"coalesce(to_json({name})::text, 'null')")
        for name in _order(entity)
    ]
    return sql.SQL("'{' || " + " || ',' || ".join(parts) + " || '}'")


def _order(entity: Entity) -> tuple[str, ...]:
    """The columns in the order of a JSON line."""
    return ("id", "version", "type", "updated_at", "client_id", "author", *columns(entity)[6:])


def _json(name: str, value: Any) -> str:
    """The JSON text of one column of an archived row, as PostgreSQL writes it."""
    match name:
        case "data":
            return str(value)
        case "type":
            return f'"{ChangeType(value).name}"'
        case "updated_at":
            moment = EPOCH + timedelta(microseconds=value)
            # Fractions of a second without trailing zeros.
            text = moment.isoformat(timespec="microseconds").rstrip("0").rstrip(".")
            return f'"{text if value % 1_000_000 else moment.isoformat()}Z"'
        case _:
            return json.dumps(value, ensure_ascii=False)
