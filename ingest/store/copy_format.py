"""Records as rows of PostgreSQL's binary COPY format, and the columns they fill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from struct import Struct

from msgspec.structs import astuple

from history.entities import Entity
from history.record import Record

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

# Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's timestamps start.
_EPOCH_2000 = 946_684_800_000_000

# psycopg copies what is larger than 128 KiB once more, in parts; a usual row is below 8 KiB.
CHUNK_BYTES = 120 * 1024

_TIME = Struct(">iq").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_NULL = _LENGTH(-1)
_JSONB = 1  # the format's version byte before the text

_COLUMNS = ("id", "version", "data", "updated_at", "client_id", "author", "type")


def columns(entity: Entity) -> tuple[str, ...]:
    """The columns of an entity's table, in the order in which encode_row() puts them."""
    return _COLUMNS if entity.parent is None else (*_COLUMNS, "product_instance_id")


def encode_rows(records: Iterable[Record]) -> Iterator[bytes]:
    """Rows in binary COPY format, in chunks of at least CHUNK_BYTES; columns as columns() names
    them. A document is copied once, into its chunk."""
    pieces: list[bytes | memoryview] = []
    size = 0
    for record in records:
        start, data, end = _pieces(record)
        pieces += (start, data, end)
        size += len(start) + len(data) + len(end)
        if size >= CHUNK_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def encode_row(record: Record) -> bytes:
    """One row of encode_rows()."""
    return b"".join(_pieces(record))


def _pieces(record: Record) -> tuple[bytes, bytes | memoryview, bytes]:
    """A row, with its document in the middle."""
    _, id, version, kind, updated_at, client_id, author, application, data = astuple(record)
    ident = id.encode()
    length, count = len(ident), 7 if application is None else 8
    start = _start(length)(count, length, ident, 4, version, len(data) + 1, _JSONB)
    end = _TIME(8, updated_at - _EPOCH_2000) + _source(client_id, author, kind)
    return start, data, end if application is None else end + _text(application)


def numbered(number: int, row: bytes) -> bytes:
    """The same row with one more column in front: an integer."""
    count = int.from_bytes(row[:2], "big")
    return (count + 1).to_bytes(2, "big") + _INTEGER(4, number) + row[2:]


@lru_cache(256)
def _start(length: int) -> Callable[..., bytes]:
    """What packs a row up to its document: the number of columns, an id of this many bytes, the
    version, and the document's length."""
    return Struct(f">hi{length}siiiB").pack


@lru_cache(4096)
def _source(client_id: str, author: str | None, kind: int) -> bytes:
    """client_id, author and type: few combinations, met again and again."""
    login = _NULL if author is None else _text(author)
    return _text(client_id) + login + _INTEGER(4, kind)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded
