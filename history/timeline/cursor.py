"""The connection to the *_aud tables: PostgreSQL's binary protocol, documents as bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection
from psycopg.adapt import Buffer, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row

from history import deadline
from history.exponents import shortened
from history.nul_text import from_store


class _Document(Loader):
    """The text of a document as bytes: numbers keep their digits."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return shortened(from_store(bytes(data)))


@contextmanager
def cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """As cursors: one."""
    with cursors(1) as (opened,):
        yield opened


@contextmanager
def cursors(count: int) -> Iterator[list[psycopg.Cursor[tuple[Any, ...]]]]:
    """Cursors of Django's own connection with the binary protocol; what is of type text, a
    document, comes as bytes.

    Errors come out as Django's, so that Django drops a broken connection.
    """
    deadline.check()
    connection.ensure_connection()
    # Not connection.cursor(): Django's cursor puts the parameters into the text, so that nothing
    # is ever prepared.
    made = [psycopg.Cursor(connection.connection, row_factory=tuple_row) for _ in range(count)]
    for each in made:
        each.format = Format.BINARY
        each.adapters.register_loader("text", _Document)
    with connection.wrap_database_errors:
        try:
            yield made
        finally:
            for each in made:
                each.close()
