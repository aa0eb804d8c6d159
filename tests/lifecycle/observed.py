"""The real state of the store: tables, archive, ledger, quarantine and seals.

It is read without the code under test.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import zstandard
from psycopg.rows import namedtuple_row
from pyarrow import parquet

from tests.lifecycle.sent import BY_TABLE, ENTITIES, Row, to_canonical, to_microseconds

TABLES = [entity.table for entity in ENTITIES]
# Leaves out the seals of the access journal, which the lifecycle test does not cover.
_SEALS = 'SELECT id, "table", day, rows FROM day_seal WHERE "table" = ANY(%s) ORDER BY 1'
_DAYS = """
SELECT parent.relname AS table, child.relname AS name, link.inhdetachpending AS pending,
       link.inhparent IS NOT NULL AS linked, obj_description(child.oid, 'pg_class') AS mark
FROM pg_class parent JOIN pg_class child
    ON child.relname ~ ('^' || parent.relname || '_[0-9]{8}$') AND child.relkind = 'r'
LEFT JOIN pg_inherits link ON link.inhparent = parent.oid AND link.inhrelid = child.oid
WHERE parent.relname = ANY(%s) ORDER BY 2
"""
_ROWS = """
SELECT '{table}', id, version, (extract(epoch FROM updated_at) * 1000000)::bigint AS at, client_id,
       author, type, {application} AS application, data::text AS data, keys, versions, names,
       packed
FROM {partition}
"""

TableDay = tuple[str, date]  # a table and a UTC day
TopicOffset = tuple[str, int]  # a topic and an offset


@dataclass(frozen=True)
class Day:
    """The table of a day."""

    name: str
    attached: bool  # whether queries see its rows, and new rows go there
    restored: bool


@dataclass(frozen=True)
class Observed:
    """The state of the store at one moment."""

    days: dict[TableDay, Day]
    rows: Counter[Row]  # of all tables of days, attached or not
    archive: Counter[Row]
    archived: dict[TableDay, tuple[str, ...]]  # the files of each archived day
    ledger: dict[str, Any]  # the row of each topic
    quarantine: dict[TopicOffset, Any]
    removed: dict[TopicOffset, Any]  # messages that retention has removed from quarantine
    sealed: dict[TableDay, tuple[int, int]]  # id and row count of the newest seal

    @property
    def anywhere(self) -> set[Row]:
        """The rows in the tables or in the archive."""
        return {*self.rows, *self.archive}

    def has_partition(self, place: TableDay) -> bool:
        """Return whether the table has an attached partition for this day."""
        day = self.days.get(place)
        return day is not None and day.attached


class Observer:
    """Reads one database and the archive in one directory."""

    def __init__(self, connection: psycopg.Connection[Any], archive: Path) -> None:
        self._connection = connection
        self._archive = archive
        self._files: dict[tuple[Any, ...], list[Row]] = {}

    def observe(self) -> Observed:
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            days = {
                (row.table, _parse_day(row.name)): Day(
                    row.name, row.linked and not row.pending, row.mark == "annals_restored"
                )
                for row in self._query(_DAYS, [TABLES])
            }
            archived = self._query('SELECT "table", day, files FROM archived_day')
            return Observed(
                days=days,
                rows=Counter(self._read_rows(days)),
                archive=Counter(
                    row
                    for item in archived
                    for file in item.files
                    for row in self._read_file(item.table, file["name"])
                ),
                archived={
                    (item.table, item.day): tuple(file["name"] for file in item.files)
                    for item in archived
                },
                ledger={row.topic: row for row in self._query("SELECT * FROM ingest_ledger")},
                quarantine=self._query_messages("ingest_quarantine"),
                removed=self._query_messages("clock.removed"),
                sealed={
                    (row.table, row.day): (row.id, row.rows)
                    for row in self._query(_SEALS, [TABLES])
                },
            )

    def _query_messages(self, table: str) -> dict[TopicOffset, Any]:
        return {(row.topic, row.offset): row for row in self._query(f"SELECT * FROM {table}")}

    def _read_rows(self, days: dict[TableDay, Day]) -> Iterator[Row]:
        selects = [
            _ROWS.format(
                table=table,
                application="NULL" if BY_TABLE[table].root else "product_instance_id",
                partition=day.name,
            )
            for (table, _), day in days.items()
        ]
        for row in self._query(" UNION ALL ".join(selects)) if selects else ():
            if row.packed is None:
                yield Row._make((*row[:8], to_canonical(row.data)))
            else:
                yield from self._unpack_block(row)

    def _unpack_block(self, row: Any) -> Iterator[Row]:
        """Yield the versions in a block, decoded without the code under test."""
        checksum = 4
        query = "SELECT content FROM pack_dictionary WHERE number = %s"
        [dictionary] = self._query(query, [int.from_bytes(row.packed[:4]) & 0x7FFFFFFF]) or [None]
        data = dictionary and zstandard.ZstdCompressionDict(dictionary.content)
        frame = b"\x28\xb5\x2f\xfd" + row.packed[4:]
        texts = zstandard.ZstdDecompressor(dict_data=data).decompress(frame).split(b"\n")
        keys, names = row.keys or b"", (row.names or "").split("\n")
        assert len(keys) == 8 * (len(texts) - 1) + checksum
        for place, text in enumerate(texts):
            number, micros = row.version - len(texts) + 1 + place, row.at
            kind, client, author = row.type, row.client_id, row.author
            if key := keys[8 * place : min(8 * place + 8, len(keys) - checksum)]:
                micros -= int.from_bytes(key[:5])
                kind = key[5]
                client = names[key[6] - 1] if key[6] else client
                author = names[key[7] - 1] or None if key[7] else author
            yield Row(
                row[0],
                row.id,
                row.versions[place] if row.versions else number,
                micros,
                client,
                author,
                kind,
                row.application,
                to_canonical(text.decode()),
            )

    def _read_file(self, table: str, name: str) -> list[Row]:
        path = self._archive / name
        status = path.stat()
        version = (name, status.st_mtime_ns, status.st_size)
        if version not in self._files:
            self._files[version] = [
                Row(
                    table,
                    row["id"],
                    row["version"],
                    to_microseconds(row["updated_at"]),
                    row["client_id"],
                    row["author"],
                    row["type"],
                    row.get("product_instance_id"),
                    to_canonical(row["data"]),
                )
                for row in parquet.ParquetFile(path).read().to_pylist()
            ]
        return self._files[version]

    def _query(self, text: str, values: Any = None) -> list[Any]:
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            return cursor.execute(text, values).fetchall()


def _parse_day(name: str) -> date:
    return datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC).date()
