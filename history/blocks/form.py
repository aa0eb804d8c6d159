"""The form of a block: its columns, and the documents in it.

A block is the row of its newest version, with the documents of all its versions in `packed` and
none in `data`. Its versions have one id, one UTC day and one application. They are in the order of
their numbers, and their times do not go back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import zstandard

from history.blocks.dictionaries import Dictionary, decompress
from history.failure.complaints import Complaint

MOST_VERSIONS: Final = 64
# A larger document is alone in its block.
MOST_BYTES: Final = 256 * 1024
LEVEL: Final = 6
# No document has a line feed: PostgreSQL's text of JSONB escapes it in texts, and has no other.
BETWEEN: Final = b"\n"
# Documents of deletions that have none stay as they are: SQL looks for them.
NOTHING: Final = "null"
NUMBER: Final = 4  # bytes, of the dictionary

Row = tuple[Any, ...]
"""A row as history.daily.canonical.fields selects it: id, version, microseconds, client, author,
type, the application of a child, the text of the document."""


class DamagedBlockError(Complaint, RuntimeError):
    """A block cannot be read: it, or its dictionary, is not as it was. day: of the block, where it
    is known."""

    day: date | None = None


class Stored(NamedTuple):
    """The columns that a block has and a plain row lacks. moments: of all versions, microseconds
    since 1970; None where there is one. versions: their numbers; None where they follow one
    another. sources: lines of type, client and author, with tabs between them; source: of each
    version the number of its line; None: all have those of the row. unpacked: bytes of the
    documents."""

    moments: list[int] | None
    versions: list[int] | None
    source: bytes | None
    sources: str | None
    packed: bytes
    unpacked: int


class Packer:
    """Makes blocks of rows that come in the order of id, number and time."""

    def __init__(self, dictionary: Dictionary | None) -> None:
        data = None if dictionary is None else dictionary.data
        self._number = (0 if dictionary is None else dictionary.number).to_bytes(NUMBER)
        self._compress = zstandard.ZstdCompressor(
            LEVEL, dict_data=data, write_checksum=True, write_dict_id=False
        ).compress

    def pack(self, rows: Sequence[Row]) -> tuple[Row, Stored | None]:
        """The row of a block, without a document; or the only row, that is not packed."""
        newest = rows[-1]
        if newest[-1] == NOTHING:
            return newest, None
        text = BETWEEN.join(row[-1].encode() for row in rows)
        packed = self._number + self._compress(text)
        moments = versions = source = sources = None
        if len(rows) > 1:
            moments = [row[2] for row in rows]
            numbers = [row[1] for row in rows]
            if numbers != list(range(newest[1] - len(rows) + 1, newest[1] + 1)):
                versions = numbers
            given = [f"{row[5]}\t{row[3]}\t{row[4] or ''}" for row in rows]
            places = {each: place for place, each in enumerate(dict.fromkeys(given))}
            if len(places) > 1:
                source = bytes(places[each] for each in given)
                sources = "\n".join(places)
        stored = Stored(moments, versions, source, sources, packed, len(text))
        return (*newest[:-1], None), stored


def cut(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The rows of one document and day, in the order of number and time, as blocks."""
    begin = size = 0
    for place, row in enumerate(rows):
        before = rows[place - 1] if place > begin else None
        length = len(row[-1])
        if before is not None and (
            place - begin == MOST_VERSIONS
            or size + length > MOST_BYTES
            or row[2] < before[2]
            or row[6:-1] != before[6:-1]
            or NOTHING in (row[-1], before[-1])
            or _alone(row)
            or _alone(before)
        ):
            yield rows[begin:place]
            begin, size = place, 0
        size += length
    if begin < len(rows):
        yield rows[begin:]


def _alone(row: Row) -> bool:
    """Whether its client or author would not be read again out of `sources`."""
    return not {"\t", "\n"}.isdisjoint(row[3]) or not {"\t", "\n"}.isdisjoint(row[4] or "")


def is_packed(block: Sequence[Any]) -> bool:
    """Whether these are the columns of a block; a plain row has them empty."""
    return block[4] is not None


def documents(packed: bytes, dictionary: Dictionary | None) -> list[bytes]:
    """The documents in a block, in its order. Raises DamagedBlockError."""
    try:
        return decompress(dictionary, packed[NUMBER:]).split(BETWEEN)
    except zstandard.ZstdError as error:
        raise DamagedBlockError(f"it cannot be unpacked: {error}") from None


def expand(row: Row, block: Sequence[Any], dictionary: Dictionary | None) -> list[Row]:
    """The rows in a block, as they were, in its order. Raises DamagedBlockError."""
    stored = Stored(*block)
    texts = documents(stored.packed, dictionary)
    newest = row[1]
    moments = stored.moments or [row[2]]
    count = len(moments)
    numbers = stored.versions or range(newest - count + 1, newest + 1)
    if len(texts) != count or len(numbers) != count:
        raise DamagedBlockError(f"it has {len(texts)} documents for {count} versions")
    id, rest = row[0], row[6:-1]
    given = [(row[3], row[4], row[5])] * count
    if stored.source is not None:
        lines = [line.split("\t") for line in (stored.sources or "").split("\n")]
        named = [(client, author or None, int(kind)) for kind, client, author in lines]
        given = [named[place] for place in stored.source]
    found = [
        (id, number, moment, *source, *rest, text.decode())
        for number, moment, source, text in zip(numbers, moments, given, texts, strict=True)
    ]
    if found[-1][:6] != row[:6]:  # some answers take these columns from the row
        raise DamagedBlockError("its row is not its newest version")
    return found
