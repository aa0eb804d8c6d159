"""Dictionaries: the bytes that snapshots of a kind share, so that blocks need not repeat them.

The number of a dictionary is computed from its content, so a changed dictionary is not taken for
the original. Dictionaries are never removed from the table pack_dictionary. So every backup has all
that its blocks need.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import psycopg
import zstandard
from psycopg.rows import tuple_row

from history.common.explained_errors import ExplainedError

Connection = psycopg.Connection[Any]

DICTIONARY_BYTES: Final = 112_640
# A dictionary that is trained on fewer snapshots does not save enough space.
LEAST_SAMPLES: Final = 100

_READ: Final = "SELECT number, content FROM pack_dictionary WHERE number <> ALL(%s)"
_NEWEST: Final = """
SELECT number FROM pack_dictionary WHERE "table" = %s ORDER BY made_at DESC, number LIMIT 1
"""
_ADD: Final = """
INSERT INTO pack_dictionary (number, "table", content, made_at) VALUES (%s, %s, %s, now())
ON CONFLICT (number) DO UPDATE SET made_at = excluded.made_at
"""


class Dictionary:
    """A compression dictionary. Its number is computed from its content."""

    def __init__(self, content: bytes) -> None:
        self.number = _compute_number(content)
        self.data = zstandard.ZstdCompressionDict(content)


class _Decompressors(threading.local):
    """The decompressors of one thread, by dictionary number. Threads must not share them."""

    def __init__(self) -> None:
        self.by_number: dict[int, Callable[[bytes], bytes]] = {}


_THREAD_DECOMPRESSORS: Final = _Decompressors()


def decompress(dictionary: Dictionary | None, packed: bytes) -> bytes:
    """Decompress the snapshots of a block.

    Raises:
        zstandard.ZstdError: They cannot be decompressed.
    """
    number = 0 if dictionary is None else dictionary.number
    if (decompress_frame := _THREAD_DECOMPRESSORS.by_number.get(number)) is None:
        data = None if dictionary is None else dictionary.data
        # Bytes after the frame mean that the flag for the frame's checksum is damaged. By default,
        # they would be ignored.
        decompress_frame = partial(
            zstandard.ZstdDecompressor(dict_data=data).decompress, allow_extra_data=False
        )
        _THREAD_DECOMPRESSORS.by_number[number] = decompress_frame
    return decompress_frame(packed)


class MissingDictionaryError(ExplainedError, LookupError):
    """Raised when the dictionary of a block is missing or was changed."""


_dictionaries_by_number: dict[int, Dictionary] = {}


def get_dictionary(number: int) -> Dictionary | None:
    """Return the dictionary with this number, or None if the number is 0: no dictionary is needed.

    Raises:
        MissingDictionaryError: `read_new_dictionaries` has not read a dictionary with this number.
    """
    if not number:
        return None
    if (dictionary := _dictionaries_by_number.get(number)) is None:
        raise MissingDictionaryError(
            f"the dictionary {number} is missing or was changed: restore the table pack_dictionary "
            "from a backup"
        )
    return dictionary


def read_new_dictionaries(connection: Connection) -> None:
    """Read the dictionaries of the database that this process does not have yet, in one query."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        for number, content in cursor.execute(_READ, [list(_dictionaries_by_number)], binary=True):
            if _compute_number(content) == number:
                _dictionaries_by_number[number] = Dictionary(content)


def load_newest_dictionary(connection: Connection, table: str) -> Dictionary | None:
    """Return the newest dictionary of a table, or None. New blocks are packed with it."""
    read_new_dictionaries(connection)
    row = connection.execute(_NEWEST, [table]).fetchone()
    return None if row is None else get_dictionary(row[0])


def train_dictionary(samples: Sequence[bytes]) -> Dictionary | None:
    """Train a dictionary on sample snapshots. Return None if they are too few or too different."""
    if len(samples) < LEAST_SAMPLES:
        return None
    try:
        trained = zstandard.train_dictionary(DICTIONARY_BYTES, list(samples))
    except zstandard.ZstdError:
        return None
    return Dictionary(trained.as_bytes())


def store_dictionary(connection: Connection, table: str, dictionary: Dictionary) -> None:
    """Store a dictionary as the newest one of its table."""
    connection.execute(_ADD, [dictionary.number, table, dictionary.data.as_bytes()])
    _dictionaries_by_number[dictionary.number] = dictionary


def _compute_number(content: bytes) -> int:
    """Return the number by which blocks name a dictionary: 31 bits of its SHA-256."""
    return int.from_bytes(hashlib.sha256(content).digest()[:4]) >> 1 or 1
