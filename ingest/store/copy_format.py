"""Records as rows of PostgreSQL's binary COPY format, and the columns they fill."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

from history.entities import Entity
from history.record import Record

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

# Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's timestamps start.
_EPOCH_2000 = 946_684_800_000_000

_START = Struct(">hi").pack
_VERSION_AND_DATA = Struct(">iiiB").pack
_TIME = Struct(">iq").pack
_LENGTH = Struct(">i").pack
_INTEGER = Struct(">ii").pack
_NULL = _LENGTH(-1)
_JSONB = 1  # the format's version byte before the text

_COLUMNS = ("id", "version", "data", "updated_at", "client_id", "author", "type")


def columns(entity: Entity) -> tuple[str, ...]:
    """The columns of an entity's table, in the order in which encode_row() puts them."""
    return _COLUMNS if entity.root else (*_COLUMNS, "product_instance_id")


def encode_row(record: Record) -> bytes:
    """One row in binary COPY format; columns as columns() names them."""
    ident = record.id.encode()
    application = record.product_instance_id
    return b"".join(
        (
            _START(7 if application is None else 8, len(ident)),
            ident,
            _VERSION_AND_DATA(4, record.version, len(record.data) + 1, _JSONB),
            record.data,
            _TIME(8, record.updated_at - _EPOCH_2000),
            _source(record.client_id, record.author, record.type),
            b"" if application is None else _text(application),
        )
    )


def numbered(number: int, row: bytes) -> bytes:
    """The same row with one more column in front: an integer."""
    count = int.from_bytes(row[:2], "big")
    return (count + 1).to_bytes(2, "big") + _INTEGER(4, number) + row[2:]


@lru_cache(4096)
def _source(client_id: str, author: str | None, kind: int) -> bytes:
    """client_id, author and type: few combinations, met again and again."""
    login = _NULL if author is None else _text(author)
    return _text(client_id) + login + _INTEGER(4, kind)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded
