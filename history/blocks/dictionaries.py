"""Dictionaries: what the documents of a kind have in common, so that a block need not say it.

A dictionary is named by its content, so one that was changed is not taken for another. Each is in
the table pack_dictionary as long as the database exists, and so in each of its backups.
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

from history.failure.complaints import Complaint

Connection = psycopg.Connection[Any]

BYTES: Final = 112_640
# Fewer documents do not pay for a dictionary.
LEAST_SAMPLES: Final = 100

_READ: Final = "SELECT number, content FROM pack_dictionary WHERE number <> ALL(%s)"
_NEWEST: Final = """
SELECT number FROM pack_dictionary WHERE "table" = %s ORDER BY made_at DESC, number LIMIT 1
"""
_ADD: Final = """
INSERT INTO pack_dictionary (number, "table", content, made_at) VALUES (%s, %s, %s, now())
ON CONFLICT (number) DO UPDATE SET made_at = now()
"""


class Dictionary:
    """One dictionary. number: of its content."""

    def __init__(self, content: bytes) -> None:
        self.number = _number(content)
        self.data = zstandard.ZstdCompressionDict(content)


class _Decompressors(threading.local):
    """Those of one thread, by the number of their dictionary: two threads must not use one."""

    def __init__(self) -> None:
        self.known: dict[int, Callable[[bytes], bytes]] = {}


_OF_THREAD: Final = _Decompressors()


def decompress(dictionary: Dictionary | None, packed: bytes) -> bytes:
    """Raises zstandard.ZstdError."""
    number = 0 if dictionary is None else dictionary.number
    if (call := _OF_THREAD.known.get(number)) is None:
        data = None if dictionary is None else dictionary.data
        # What follows the frame would be its checksum, if nothing says any more that it has one.
        call = partial(
            zstandard.ZstdDecompressor(dict_data=data).decompress, allow_extra_data=False
        )
        _OF_THREAD.known[number] = call
    return call(packed)


class MissingDictionaryError(Complaint, LookupError):
    """The dictionary of a block is not there, or not as it was."""


_known: dict[int, Dictionary] = {}


def get(number: int) -> Dictionary | None:
    """The dictionary with this number, of those that were read; None for 0, which is none. Raises
    MissingDictionaryError."""
    if not number:
        return None
    if (found := _known.get(number)) is None:
        raise MissingDictionaryError(
            f"its dictionary {number} is missing or was changed: restore the table pack_dictionary "
            "from a backup"
        )
    return found


def read(connection: Connection) -> None:
    """Read the dictionaries of a database that this process does not know. One query."""
    with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
        for number, content in cursor.execute(_READ, [list(_known)], binary=True):
            if _number(content) == number:
                _known[number] = Dictionary(content)


def newest(connection: Connection, table: str) -> Dictionary | None:
    """The dictionary that a table's days are packed with; None where it has none yet."""
    read(connection)
    row = connection.execute(_NEWEST, [table]).fetchone()
    return None if row is None else get(row[0])


def train(samples: Sequence[bytes]) -> Dictionary | None:
    """A dictionary for documents like these; None where they are too few or too different."""
    if len(samples) < LEAST_SAMPLES:
        return None
    try:
        trained = zstandard.train_dictionary(BYTES, list(samples))
    except zstandard.ZstdError:
        return None
    return Dictionary(trained.as_bytes())


def keep(connection: Connection, table: str, made: Dictionary) -> None:
    """Store a dictionary, from now on the newest of its table."""
    connection.execute(_ADD, [made.number, table, made.data.as_bytes()])
    _known[made.number] = made


def _number(content: bytes) -> int:
    """The first 31 bits of the SHA-256; the block says with them which dictionary it needs."""
    return int.from_bytes(hashlib.sha256(content).digest()[:4]) >> 1 or 1
