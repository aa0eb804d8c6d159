"""The Parquet files: the rows of one day, sorted, in row groups that are found by id."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
from pyarrow import parquet as pq

from history.daily.canonical import columns, encode
from history.entities import Entity

GROUP_ROWS = 10_000
GROUP_BYTES = 64 << 20
# Versions of one document are neighbours and similar: a page must be long enough for many.
PAGE_BYTES = 4 << 20
ZSTD_LEVEL = 3
READ_ROWS = 2_000

Row = Sequence[Any]

TYPES = {
    "id": pa.string(),
    "version": pa.int32(),
    "updated_at": pa.timestamp("us", tz="UTC"),
    "client_id": pa.string(),
    "author": pa.string(),
    "type": pa.int32(),
    "product_instance_id": pa.string(),
    "data": pa.string(),
}


def schema(entity: Entity) -> pa.Schema:
    """The columns of an entity's files. data: the snapshot as JSON text, numbers exact."""
    return pa.schema(
        [pa.field(name, TYPES[name], nullable=name == "author") for name in columns(entity)]
    )


class Writer:
    """Writes rows, as history.daily.canonical.fields selects them, to a file; one row group in
    memory. ordered: the rows come by id and version; the file declares that."""

    def __init__(self, sink: IO[bytes], entity: Entity, ordered: bool = True) -> None:
        self._schema = schema(entity)
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
        self._rows: list[Row] = []
        self._bytes = 0

    def add(self, row: Row) -> None:
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


def rows(file: IO[bytes], groups: Sequence[int] | None = None) -> Iterator[Row]:
    """The rows of a file in their order, all or those of some row groups, as Writer took them."""
    reader = pq.ParquetFile(file)
    for batch in reader.iter_batches(READ_ROWS, row_groups=groups):
        values = [
            (column.cast(pa.int64()) if name == "updated_at" else column).to_pylist()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield from zip(*values, strict=True)


def check_columns(file: IO[bytes]) -> None:
    """Raise ValueError if a file has other columns than Writer gives it."""
    schema = pq.ParquetFile(file).schema_arrow
    if any(TYPES.get(field.name) != field.type for field in schema) or schema.names[0] != "id":
        raise ValueError("it has other columns than the files of the archive")


def groups_of(file: IO[bytes], id_: str) -> list[int]:
    """The row groups that may hold an id, by the least and greatest id of each in the footer."""
    metadata = pq.ParquetFile(file).metadata
    found = []
    for number in range(metadata.num_row_groups):
        bounds = metadata.row_group(number).column(0).statistics
        if bounds is None or not bounds.has_min_max or bounds.min <= id_ <= bounds.max:
            found.append(number)
    return found


def row_hash(row: Row) -> bytes:
    """The SHA-256 of a row's canonical bytes."""
    return hashlib.sha256(encode(row)).digest()
