"""Writes rows of the journal: in one statement, and without waiting for a lock."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import astuple, fields
from typing import Final

import psycopg
from django.db import Error, connection

from annals.access.journal.entry import Entry
from annals.access.models import JournalEntry
from history.error_text import describe

LOCK_TIMEOUT_MS: Final = 1000
# Both statements go to the server in one message, and are one transaction there.
_INSERT: Final = "SET LOCAL lock_timeout = {timeout}; INSERT INTO {table} ({names}) VALUES {rows}"


class JournalError(RuntimeError):
    """The journal could not be written: nothing may be shown."""


def write(entries: Collection[Entry]) -> None:
    """Add rows; when this returns, they are committed, or they are part of the transaction that
    the caller has opened. Raises JournalError."""
    row = f"({', '.join(['%s'] * len(_NAMES))})"
    statement = _INSERT.format(
        timeout=LOCK_TIMEOUT_MS,
        table=JournalEntry._meta.db_table,
        names=", ".join(_NAMES),
        rows=", ".join([row] * len(entries)),
    )
    values = [value for entry in entries for value in _values(entry)]
    try:
        if connection.errors_occurred:
            # The answer itself had an error of the database; the connection may be broken.
            connection.close_if_unusable_or_obsolete()
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
    except (Error, psycopg.Error) as error:
        raise JournalError(describe(error)) from error


_NAMES: Final = tuple(field.name for field in fields(Entry))
_LENGTHS: Final = {
    field.name: field.max_length for field in JournalEntry._meta.fields if field.name in _NAMES
}


def _values(entry: Entry) -> list[str | int]:
    """The values as PostgreSQL can store them: cut, without NUL and lone surrogates."""
    return [
        value if isinstance(value, int) else str(_storable(value)[: _LENGTHS[name]])
        for name, value in zip(_NAMES, astuple(entry), strict=True)
    ]


def _storable(text: str) -> str:
    return text.replace("\0", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()
