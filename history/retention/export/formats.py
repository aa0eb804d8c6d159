"""The formats of an export: JSON lines and Parquet.

The method `add` of a writer takes one row, with the columns of build_select_list in
history.store.days.canonical. The row has the snapshot as the bytes of its JSON text.
"""

from datetime import timedelta
from typing import IO

import msgspec

from history.documents.record import ChangeType
from history.kinds.entities import EntityKind
from history.retention.archive.parquet import ArchivedRow, ArchiveFileWriter
from history.store.blocks.queries import EPOCH

TYPE_NAMES = {kind.value: kind.name for kind in ChangeType}


class JsonLinesWriter:
    """Writes one line for each version, with the fields of the message. Numbers are exact.

    The fields are id, version, type, updatedAt (UTC), clientId, author, productInstanceId and data.
    """

    def __init__(self, sink: IO[bytes], entity: EntityKind) -> None:  # noqa: ARG002 - all writers have these parameters
        self._write = sink.write
        self._encode = msgspec.json.Encoder().encode

    def add(self, row: ArchivedRow) -> None:
        id, version, updated_at, client_id, author, kind, *parent, data = row
        line = {
            "id": id,
            "version": version,
            "type": TYPE_NAMES[kind],
            "updatedAt": EPOCH + timedelta(microseconds=updated_at),
            "clientId": client_id,
            "author": author,
        }
        if parent:
            line["productInstanceId"] = parent[0]
        line["data"] = msgspec.Raw(data)
        self._write(self._encode(line) + b"\n")

    def close(self) -> None:
        """Do nothing: the last line is complete already."""


class ParquetExportWriter(ArchiveFileWriter):
    """Writes a Parquet file with the columns of the archive, its rows in no particular order."""

    def __init__(self, sink: IO[bytes], entity: EntityKind) -> None:
        super().__init__(sink, entity, ordered=False)


ExportWriter = JsonLinesWriter | ParquetExportWriter
FORMATS: dict[str, type[ExportWriter]] = {"jsonl": JsonLinesWriter, "parquet": ParquetExportWriter}
