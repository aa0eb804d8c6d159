"""Rows as PostgreSQL's binary COPY format. (That it reads them: tests/db/test_writer.py.)"""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from history.entities import BY_NAME, ROOT
from history.record import Record
from ingest.store.copy import CHUNK_BYTES, columns, encode_row, encode_rows, numbered

EPOCH_2000 = 946_684_800_000_000
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)

RECORDS = st.builds(
    Record,
    entity=st.just("product-task"),
    id=TEXT,
    version=st.integers(0, 2**31 - 1),
    type=st.integers(0, 2),
    updated_at=st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    client_id=TEXT,
    author=st.none() | TEXT,
    product_instance_id=st.none() | TEXT,
    data=st.binary(),
)


def fields(encoded: bytes) -> list[bytes | None]:
    """The columns of one row, as a server would read them."""
    (count,) = struct.unpack_from(">h", encoded)
    found: list[bytes | None] = []
    at = 2
    for _ in range(count):
        (size,) = struct.unpack_from(">i", encoded, at)
        at += 4
        found.append(None if size < 0 else encoded[at : at + size])
        at += max(size, 0)
    assert at == len(encoded)
    return found


def integer(field: bytes | None) -> Any:
    assert field is not None
    return int.from_bytes(field, "big", signed=True)


@given(RECORDS)
def test_a_row_holds_its_record(record: Record) -> None:
    ident, version, data, moment, client, author, kind, *application = fields(encode_row(record))
    assert ident == record.id.encode()
    assert integer(version) == record.version
    assert data == b"\x01" + record.data
    assert integer(moment) == record.updated_at - EPOCH_2000
    assert client == record.client_id.encode()
    assert author == (None if record.author is None else record.author.encode())
    assert integer(kind) == record.type
    given = record.product_instance_id
    assert application == ([] if given is None else [given.encode()])


@given(RECORDS, st.integers(-(2**31), 2**31 - 1))
def test_a_number_goes_in_front(record: Record, number: int) -> None:
    encoded = encode_row(record)
    first, *rest = fields(numbered(number, encoded))
    assert integer(first) == number
    assert rest == fields(encoded)


def test_as_many_columns_as_fields() -> None:
    for entity, application in ((ROOT, None), (BY_NAME["product-task"], "A1")):
        record = Record(entity.name, "a", 1, 0, 0, "c", None, application, b"{}")
        assert len(fields(encode_row(record))) == len(columns(entity))


@given(st.lists(RECORDS, max_size=5), st.integers(0, 2))
def test_chunks_hold_the_rows_in_order(records: list[Record], large: int) -> None:
    padded = [
        structs.replace(each, data=bytes(each.data) + b"x" * large * CHUNK_BYTES)
        for each in records
    ]
    chunks = list(encode_rows(padded))
    assert b"".join(chunks) == b"".join(map(encode_row, padded))
    assert all(len(chunk) >= CHUNK_BYTES for chunk in chunks[:-1])
    if large:
        assert len(chunks) == len(records)
