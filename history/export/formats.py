"""The formats of an export: JSON lines, Parquet and Avro."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, Any, Protocol

import fastavro.write
from psycopg import sql

from history.archive.parquet import Writer
from history.canonical import Connection, columns, fields
from history.entities import Entity
from history.record import ChangeType

# rows done since the last call
Tick = Callable[[int], None]
TICK_ROWS = 5_000
AVRO_BLOCK = 1 << 20

NAMES = {
    "updated_at": "updatedAt",
    "client_id": "clientId",
    "product_instance_id": "productInstanceId",
}


class Format(Protocol):
    """One output stream. `day` appends the rows of one table and returns their number."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None: ...
    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int: ...
    def close(self) -> None: ...


class JsonLines:
    """One line for each version, with the fields of the message: id, version, type, updatedAt
    (UTC), clientId, author, productInstanceId, data. Numbers are exact.

    PostgreSQL makes the lines; Python only copies their bytes.
    """

    def __init__(self, sink: IO[bytes], entity: Entity) -> None:
        self._sink = sink
        self._entity = entity

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        # CSV without quoting: a JSON text contains no control characters.
        query = sql.SQL(
            "COPY (SELECT {} FROM {}) TO STDOUT"
            " (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01', ESCAPE E'\\x01')"
        ).format(_line(self._entity), source)
        write, rows = self._sink.write, 0
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            for line in copy:
                write(line)
                rows += 1
                if rows % TICK_ROWS == 0:
                    tick(TICK_ROWS)
        tick(rows % TICK_ROWS)
        return rows

    def close(self) -> None:
        """JSON lines have no trailer."""


class Parquet:
    """The columns of the archive's files; the rows are in no particular order."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None:
        self._writer = Writer(sink, entity, ordered=False)
        self._entity = entity

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        return _rows(connection, self._entity, source, self._writer.add, tick)

    def close(self) -> None:
        self._writer.close()


class Avro:
    """An Avro container file; updated_at is timestamp-micros, data is the JSON text."""

    def __init__(self, sink: IO[bytes], entity: Entity) -> None:
        self._names = columns(entity)
        self._entity = entity
        self._writer = fastavro.write.Writer(
            sink,
            _avro_schema(entity),
            codec="deflate",
            sync_interval=AVRO_BLOCK,
            compression_level=1,
        )

    def day(self, connection: Connection, source: sql.Composable, tick: Tick) -> int:
        names, write = self._names, self._writer.write
        return _rows(
            connection,
            self._entity,
            source,
            lambda row: write(dict(zip(names, row, strict=True))),
            tick,
        )

    def close(self) -> None:
        self._writer.flush()


FORMATS: dict[str, type[Format]] = {"jsonl": JsonLines, "parquet": Parquet, "avro": Avro}


def _rows(
    connection: Connection,
    entity: Entity,
    source: sql.Composable,
    add: Callable[[tuple[Any, ...]], object],
    tick: Tick,
) -> int:
    """Call `add` with each row, as history.canonical.fields selects it."""
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT BINARY)")
    child = () if entity.root else ("text",)
    rows = 0
    with (
        connection.cursor() as cursor,
        cursor.copy(query.format(fields(entity), source)) as copy,
    ):
        copy.set_types(["text", "int4", "int8", "text", "text", "int4", *child, "text"])
        for row in copy.rows():
            add(row)
            rows += 1
            if rows % TICK_ROWS == 0:
                tick(TICK_ROWS)
    tick(rows % TICK_ROWS)
    return rows


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
    order = ("id", "version", "type", "updated_at", "client_id", "author", *columns(entity)[6:])
    parts = [
        f"'\"{NAMES.get(name, name)}\":' || "
        + forms.get(name, f"coalesce(to_json({name})::text, 'null')")
        for name in order
    ]
    return sql.SQL("'{' || " + " || ',' || ".join(parts) + " || '}'")


def _avro_schema(entity: Entity) -> dict[str, Any]:
    types: dict[str, object] = {
        "version": "int",
        "type": "int",
        "updated_at": {"type": "long", "logicalType": "timestamp-micros"},
        "author": ["null", "string"],
    }
    return {
        "type": "record",
        "name": entity.model_name,
        "fields": [{"name": name, "type": types.get(name, "string")} for name in columns(entity)],
    }
