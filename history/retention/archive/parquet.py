"""Writes and reads the Parquet files of the archive.

Their rows are sorted by id, so the row groups that may contain an id are found without a scan.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet as pq

from history.kinds.entities import EntityKind
from history.store.days.canonical import encode_row, list_columns

GROUP_ROWS = 10_000
GROUP_BYTES = 64 << 20
# Neighbouring rows are similar, because they are versions of one document. A page with many rows
# compresses well.
PAGE_BYTES = 4 << 20
ZSTD_LEVEL = 3
READ_ROWS = 2_000

ArchivedRow = Sequence[Any]

ARROW_TYPES = {
    "id": pa.string(),
    "version": pa.int32(),
    "updated_at": pa.timestamp("us", tz="UTC"),
    "client_id": pa.string(),
    "author": pa.string(),
    "type": pa.int32(),
    "product_instance_id": pa.string(),
    "data": pa.string(),
}


def build_schema(entity: EntityKind) -> pa.Schema:
    """Build the columns of a kind's files. `data` is the snapshot as JSON text."""
    return pa.schema(
        [
            pa.field(name, ARROW_TYPES[name], nullable=name == "author")
            for name in list_columns(entity)
        ]
    )


class ArchiveFileWriter:
    """Writes canonical rows to a Parquet file, with one row group in memory.

    Args:
        ordered: Whether the rows come in the order of id and version. If so, the file declares it.
    """

    def __init__(self, sink: IO[bytes], entity: EntityKind, ordered: bool = True) -> None:
        self._schema = build_schema(entity)
        self._writer = pq.ParquetWriter(
            sink,
            self._schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            use_dictionary=["id", "client_id", "author", "product_instance_id"],
            data_page_size=PAGE_BYTES,
            write_statistics=True,
            sorting_columns=pq.SortingColumn.from_ordering(
                self._schema, [("id", "ascending"), ("version", "ascending")]
            )
            if ordered
            else None,
        )
        self._rows: list[ArchivedRow] = []
        self._bytes = 0

    def add(self, row: ArchivedRow) -> None:
        self._rows.append(row)
        self._bytes += len(row[-1])
        if len(self._rows) == GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*self._rows, strict=True), self._schema, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), GROUP_ROWS)
        self._rows, self._bytes = [], 0


def read_rows(file: IO[bytes], groups: Sequence[int] | None = None) -> Iterator[ArchivedRow]:
    """Yield the rows of a file in the order of the file.

    Args:
        groups: The numbers of the row groups to read, ascending. None: all row groups.
    """
    reader = pq.ParquetFile(file)
    for batch in reader.iter_batches(READ_ROWS, row_groups=groups):
        values = [
            (column.cast(pa.int64()) if name == "updated_at" else column).to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield from zip(*values, strict=True)


def check_columns(file: IO[bytes]) -> None:
    """Raise ValueError if a file does not have the columns of an archived file."""
    schema = pq.ParquetFile(file).schema_arrow
    if (
        any(ARROW_TYPES.get(field.name) != field.type for field in schema)
        or schema.names[0] != "id"
    ):
        raise ValueError("the file has other columns than the files of the archive")


def find_row_groups(file: IO[bytes], id_: str) -> list[int]:
    """Return the numbers of the row groups that might contain a row with the id `id_`.

    A row group might contain such a row if `id_` is between the smallest and the largest id of the
    group, or if the group does not have statistics.
    """
    metadata = pq.ParquetFile(file).metadata
    groups = []
    for number in range(metadata.num_row_groups):
        bounds = metadata.row_group(number).column(0).statistics
        if bounds is None or not bounds.has_min_max or bounds.min <= id_ <= bounds.max:
            groups.append(number)
    return groups


def hash_row(row: ArchivedRow) -> bytes:
    """Return the SHA-256 of a row's canonical bytes."""
    return hashlib.sha256(encode_row(row)).digest()
