"""The form of a block: its columns, and the snapshots in it.

A block is one row with one or more versions. The columns that a plain row also has contain the
values of the newest version, but `data` is NULL. The column `packed` has the snapshots of all
versions in the block. The versions of a block have one id, one UTC day and one application. They
are in the order of their numbers, and their moments do not decrease.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import lru_cache
from typing import Any, Final, NamedTuple

import zstandard

from history.common.explained_errors import ExplainedError
from history.store.blocks.dictionaries import Dictionary, decompress

MOST_VERSIONS: Final = 64
# A larger snapshot stays a plain row, which PostgreSQL compresses: packing would need it several
# times in memory.
MOST_BYTES: Final = 256 * 1024
LEVEL: Final = 6
# A snapshot never has a line feed: in the text of JSONB, PostgreSQL escapes line feeds of strings.
SNAPSHOT_SEPARATOR: Final = b"\n"
# The data of a deletion without a snapshot. It is not packed: SQL compares `data` with it.
NULL_SNAPSHOT: Final = b"null"
# `packed` begins with the number of the dictionary, instead of the bytes with which zstd begins.
DICTIONARY_NUMBER_BYTES: Final = 4
_MAGIC: Final = zstandard.FRAME_HEADER
# This bit in the number of the dictionary says that the last bytes of `keys` are a checksum of the
# row. Blocks that early releases wrote have neither the bit nor the checksum. In all blocks, zstd
# adds a checksum of the snapshots.
_CHECKED: Final = 1 << 31
CHECKSUM: Final = 4  # bytes
# Bytes. PostgreSQL does not store larger values.
_LARGEST: Final = 1 << 30

CanonicalRow = tuple[Any, ...]
"""A row with the columns of history.store.days.canonical.build_select_list: id, version, moment in
microseconds, client, author, type, the application of a child, and the snapshot as JSON text. In
this module the text is bytes."""


class DamagedBlockError(ExplainedError, RuntimeError):
    """Raised if a block, or the dictionary that the block needs, is not as it was written."""

    day: date | None = None  # the day of the block, if known


class BlockColumns(NamedTuple):
    """The columns that only a block has. In a plain row they are NULL.

    Attributes:
        unpacked: How many bytes the unpacked snapshots have, with the separators between them.
        keys: Eight bytes for each version except the newest, in the order of numbers. Five bytes
            have the microseconds from the moment of the version to the moment of the newest
            version. The last three bytes have the type, the service and the author. The checksum
            of the row is at the end.
        versions: The numbers of all versions. None: every number is one higher than the number
            before it.
        names: One line for each name of a service or an author that the newest version does not
            have. In `keys`, a number counted from 1 stands for a line of `names`, and 0 stands for
            the service or the author of the newest version. An empty line stands for no author.
        packed: The number of the dictionary, and the compressed snapshots.
    """

    unpacked: int
    keys: bytes | None
    versions: list[int] | None
    names: str | None
    packed: bytes


class BlockPacker:
    """Packs rows into blocks, with one dictionary or none."""

    def __init__(self, dictionary: Dictionary | None) -> None:
        data = None if dictionary is None else dictionary.data
        number = 0 if dictionary is None else dictionary.number
        self._number = (number | _CHECKED).to_bytes(DICTIONARY_NUMBER_BYTES)
        self._compress = zstandard.ZstdCompressor(
            LEVEL, dict_data=data, write_checksum=True, write_dict_id=False
        ).compress

    def pack_block(self, rows: Sequence[CanonicalRow]) -> tuple[CanonicalRow, BlockColumns | None]:
        """Pack versions of one document and day into a block.

        Args:
            rows: One portion of split_into_blocks.

        Returns:
            The newest of `rows` without its snapshot, and the columns that only a block has. If
            `rows` is one row with a snapshot that is null or too large to be packed: this row
            unchanged, which stays a plain row, and None.
        """
        newest = rows[-1]
        if newest[-1] == NULL_SNAPSHOT or len(newest[-1]) > MOST_BYTES:
            return newest, None
        text = SNAPSHOT_SEPARATOR.join([row[-1] for row in rows])
        packed = self._number + self._compress(text)[len(_MAGIC) :]
        keys, versions = b"", None
        numbered: dict[str, int] = {}
        if len(rows) > 1:
            _, number, moment, client, author, *_ = newest
            packed_keys = []
            for row in rows[:-1]:
                key = moment - row[2] << 8 | row[5]
                for name, newest_name in ((row[3], client), (row[4], author)):
                    name_number = 0
                    if name != newest_name:
                        name_number = numbered.setdefault(name or "", len(numbered) + 1)
                    key = key << 8 | name_number
                packed_keys.append(key)
            keys = struct.pack(f">{len(packed_keys)}q", *packed_keys)
            numbers = [row[1] for row in rows]
            if numbers != list(range(number - len(packed_keys), number + 1)):
                versions = numbers
        names = "\n".join(numbered) if numbered else None
        keys += compute_checksum(newest, len(text), keys, versions, names)
        return (*newest[:-1], None), BlockColumns(len(text), keys, versions, names, packed)


def split_into_blocks(rows: Iterable[CanonicalRow]) -> Iterator[list[CanonicalRow]]:
    """Yield the rows of one document and day in portions, each for one block.

    Only the rows of one portion are in memory.

    Args:
        rows: The rows in the order of number and moment.
    """
    block: list[CanonicalRow] = []
    size = 0
    was_alone = False
    for row in rows:
        length = len(row[-1])
        is_alone = row[-1] == NULL_SNAPSHOT or _must_stay_plain(*row[3:6])
        if block and (
            is_alone
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
        was_alone = is_alone
    if block:
        yield block


def _must_stay_plain(client: str, author: str | None, type: int) -> bool:
    """Return whether `keys` and `names` cannot store these values, so that the row stays plain."""
    return "\n" in client or author == "" or "\n" in (author or "") or not 0 <= type < 256


def compute_checksum(
    row: CanonicalRow, unpacked: int, keys: bytes, versions: list[int] | None, names: str | None
) -> bytes:
    """Return the checksum of the columns of a block except `packed`.

    The checksum is the beginning of a SHA-256 over the bytes that PostgreSQL's record_send makes
    from these columns. So SQL can compute it, too: `_IS_CHECKSUM_RIGHT` of
    history.store.blocks.queries.

    Args:
        row: The columns that the block shares with plain rows. The snapshot in `row` is ignored.
        keys: The column `keys` before the checksum is added to it.
    """
    id, version, updated_at, client, author, type, *parent, _snapshot = row
    name = id.encode()
    content = b"".join(
        (
            _NUMBERS(_FIELDS, _INT4, 4, version, _MOMENT, 8, updated_at - _EPOCH),
            _MORE_NUMBERS(_INT4, 4, type, _INT4, 4, unpacked, _TEXT, len(name)),
            name,
            _encode_text(client),
            _encode_text(author),
            _encode_text(parent[0] if parent else None),  # the application of a child
            _HEAD(_BYTES, len(keys)),
            keys,
            _NO_NUMBERS if versions is None else _encode_array(versions),
            _encode_text(names),
        )
    )
    return hashlib.sha256(content).digest()[:CHECKSUM]


_NUMBERS: Final = struct.Struct(">iiiiiiq").pack
_MORE_NUMBERS: Final = struct.Struct(">iiiiiiii").pack
_HEAD: Final = struct.Struct(">ii").pack
# The number of columns, and the OIDs of their types, which are constants of PostgreSQL.
_FIELDS: Final = 11
_INT4, _MOMENT, _TEXT, _BYTES, _ARRAY = 23, 1184, 1043, 17, 1007
_NO_NUMBERS: Final = _HEAD(_ARRAY, -1)
_EPOCH: Final = 946_684_800_000_000  # of PostgreSQL: 2000, in microseconds since 1970


@lru_cache(maxsize=1_024)
def _encode_text(value: str | None) -> bytes:
    if value is None:
        return _HEAD(_TEXT, -1)
    data = value.encode()
    return _HEAD(_TEXT, len(data)) + data


def _encode_array(numbers: Sequence[int]) -> bytes:
    count = len(numbers)
    items = b"".join(_HEAD(4, number) for number in numbers)
    return struct.pack(">iiiiiii", _ARRAY, 20 + len(items), 1, 0, _INT4, count, 1) + items


def get_dictionary_number(packed: bytes) -> int:
    """Return the number of the dictionary that a block needs, or 0 if it needs none."""
    return int.from_bytes(packed[:DICTIONARY_NUMBER_BYTES]) & ~_CHECKED


def unpack_snapshots(packed: bytes, dictionary: Dictionary | None) -> list[bytes]:
    """Return the snapshots of a block in the order of its versions.

    Raises:
        DamagedBlockError: The snapshots cannot be unpacked.
    """
    frame = _MAGIC + packed[DICTIONARY_NUMBER_BYTES:]
    try:
        # zstd would allocate as much memory as a damaged header says.
        if zstandard.frame_content_size(frame) > _LARGEST:
            raise DamagedBlockError(
                "the snapshots cannot be unpacked: the header states an impossible length"
            )
        return decompress(dictionary, frame).split(SNAPSHOT_SEPARATOR)
    except (zstandard.ZstdError, MemoryError) as error:
        raise DamagedBlockError(f"the snapshots cannot be unpacked: {error}") from None


def check_block(row: CanonicalRow, block: Sequence[Any]) -> BlockColumns:
    """Check the row of a block, and return its columns. `keys` is returned without the checksum.

    Raises:
        DamagedBlockError: The row is not as it was written.
    """
    stored = BlockColumns(*block)
    keys = stored.keys or b""
    has_checksum = bool(int.from_bytes(stored.packed[:DICTIONARY_NUMBER_BYTES]) & _CHECKED)
    if has_checksum != (len(keys) % 8 == CHECKSUM):
        raise DamagedBlockError(
            "only one of the columns `packed` and `keys` says that the row has a checksum"
        )
    if not has_checksum:
        return stored
    keys, written = keys[:-CHECKSUM], keys[-CHECKSUM:]
    if compute_checksum(row, stored.unpacked, keys, stored.versions, stored.names) != written:
        raise DamagedBlockError("the row is not as it was written")
    return stored._replace(keys=keys)


def expand_block(
    row: CanonicalRow, block: Sequence[Any], dictionary: Dictionary | None
) -> list[CanonicalRow]:
    """Return the rows that were packed into a block, in the order of its versions.

    Raises:
        DamagedBlockError: The block cannot be read.
    """
    stored = check_block(row, block)
    texts = unpack_snapshots(stored.packed, dictionary)
    id, newest, moment, client, author, *_ = row
    parent = row[6:-1]  # the id of the application, or nothing in a table of applications
    names = (stored.names or "").split("\n")
    clients, authors = [client, *names], [author, *(name or None for name in names)]
    older = len(stored.keys or b"") // 8
    numbers = stored.versions or range(newest - older, newest + 1)
    if len(texts) != older + 1 or len(numbers) != older + 1:
        raise DamagedBlockError(f"the row has {len(texts)} snapshots for {older + 1} versions")
    if numbers[-1] != newest:  # some answers take the newest version from the row alone
        raise DamagedBlockError(
            f"the newest version is {newest} in the column `version`, but {numbers[-1]} in the "
            "column `versions`"
        )
    try:
        keys = struct.unpack(f">{older}q", stored.keys or b"")
        older_rows = []
        for number, key, text in zip(numbers, keys, texts, strict=False):
            older_client, older_author = clients[key >> 8 & 255], authors[key & 255]
            older_moment, older_type = moment - (key >> 24), key >> 16 & 255
            older_rows.append(
                (id, number, older_moment, older_client, older_author, older_type, *parent, text)
            )
    except (struct.error, IndexError):
        raise DamagedBlockError(
            "the column `keys` has a wrong length, or refers to a name that the column `names` "
            "does not have"
        ) from None
    return [*older_rows, (*row[:-1], texts[-1])]
