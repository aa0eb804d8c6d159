"""The form of a block: its columns, and the documents in it.

A block is the row of its newest version, with the documents of all its versions in `packed` and
none in `data`. Its versions have one id, one UTC day and one application. They are in the order of
their numbers, and their times do not go back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any, Final, NamedTuple

import zstandard

from history.blocks.dictionaries import Dictionary, decompress
from history.failure.complaints import Complaint

MOST_VERSIONS: Final = 64
# A larger document stays a plain row, which PostgreSQL compresses: packing it would need it several
# times in memory.
MOST_BYTES: Final = 256 * 1024
LEVEL: Final = 6
# No document has a line feed: PostgreSQL's text of JSONB escapes it in texts, and has no other.
BETWEEN: Final = b"\n"
# Documents of deletions that have none stay as they are: SQL looks for them.
NOTHING: Final = b"null"
NUMBER: Final = 4  # bytes, of the dictionary, in the place of the first ones of zstd, always these:
_MAGIC: Final = zstandard.FRAME_HEADER

Row = tuple[Any, ...]
"""A row as history.daily.canonical.fields selects it: id, version, microseconds, client, author,
type, the application of a child, the text of the document; here as bytes."""


class DamagedBlockError(Complaint, RuntimeError):
    """A block cannot be read: it, or its dictionary, is not as it was. day: of the block, where it
    is known."""

    day: date | None = None


class Stored(NamedTuple):
    """The columns that a block has and a plain row lacks. unpacked: bytes of the documents. keys:
    of each version but the newest, in their order, eight bytes: five with the microseconds until
    the newest, its type, its client, its author; None where there is one version. names: lines,
    whose numbers are these clients and authors, an empty one for no author; 0: that of the row.
    versions: all numbers; None where they follow one another."""

    unpacked: int
    keys: bytes | None
    versions: list[int] | None
    names: str | None
    packed: bytes


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
        if newest[-1] == NOTHING or len(newest[-1]) > MOST_BYTES:
            return newest, None
        text = BETWEEN.join([row[-1] for row in rows])
        packed = self._number + self._compress(text)[len(_MAGIC) :]
        keys = versions = None
        names: dict[str, int] = {}
        if len(rows) > 1:
            _, number, moment, client, author, *_ = newest
            made = []
            for row in rows[:-1]:
                key = moment - row[2] << 8 | row[5]
                for name, own in ((row[3], client), (row[4], author)):
                    place = 0 if name == own else names.setdefault(name or "", len(names) + 1)
                    key = key << 8 | place
                made.append(key)
            keys = struct.pack(f">{len(made)}q", *made)
            numbers = [row[1] for row in rows]
            if numbers != list(range(number - len(made), number + 1)):
                versions = numbers
        stored = Stored(len(text), keys, versions, "\n".join(names) if names else None, packed)
        return (*newest[:-1], None), stored


def cut(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of one document and day, in the order of number and time, as blocks.

    Only the rows of one block are in memory.
    """
    block: list[Row] = []
    size = 0
    was_alone = False
    for row in rows:
        length = len(row[-1])
        alone = row[-1] == NOTHING or _alone(*row[3:6])
        if block and (
            alone
            or was_alone
            or len(block) == MOST_VERSIONS
            or size + length > MOST_BYTES
            or row[2] < block[-1][2]
            or row[6:-1] != block[-1][6:-1]
        ):
            yield block
            block, size = [], 0
        block.append(row)
        size += length
        was_alone = alone
    if block:
        yield block


def _alone(client: str, author: str | None, type: int) -> bool:
    """Whether these would not be read again out of `keys` and `names`."""
    return "\n" in client or author == "" or "\n" in (author or "") or not 0 <= type < 256


def documents(packed: bytes, dictionary: Dictionary | None) -> list[bytes]:
    """The documents in a block, in its order. Raises DamagedBlockError."""
    try:
        return decompress(dictionary, _MAGIC + packed[NUMBER:]).split(BETWEEN)
    except zstandard.ZstdError as error:
        raise DamagedBlockError(f"it cannot be unpacked: {error}") from None


def expand(row: Row, block: Sequence[Any], dictionary: Dictionary | None) -> list[Row]:
    """The rows in a block, as they were, in its order. Raises DamagedBlockError."""
    stored = Stored(*block)
    texts = documents(stored.packed, dictionary)
    id, newest, moment, client, author, *_ = row
    rest = row[6:-1]
    names = (stored.names or "").split("\n")
    clients, authors = [client, *names], [author, *(name or None for name in names)]
    older = len(stored.keys or b"") // 8
    numbers = stored.versions or range(newest - older, newest + 1)
    if len(texts) != older + 1 or len(numbers) != older + 1:
        raise DamagedBlockError(f"it has {len(texts)} documents for {older + 1} versions")
    if numbers[-1] != newest:  # some answers take it from the row
        raise DamagedBlockError("its row is not its newest version")
    try:
        keys = struct.unpack(f">{older}q", stored.keys or b"")
        found = [
            (id, number, moment - (key >> 24), clients[key >> 8 & 255], authors[key & 255],
             key >> 16 & 255, *rest, text)
            for number, key, text in zip(numbers, keys, texts, strict=False)
        ]  # fmt: skip
    except (struct.error, IndexError):
        raise DamagedBlockError("its keys are not those of its versions") from None
    return [*found, (*row[:-1], texts[-1])]
