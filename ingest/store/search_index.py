"""Writes business keys to the table that search reads."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from history.search_index.keys import KeyRow
from history.search_index.upsert import upsert
from ingest.store.ledger import Connection
from ingest.store.sqlstate import Cause, cause


def index(connection: Connection, keys: Sequence[KeyRow]) -> None:
    """Store keys, each with its newest day, inside the caller's transaction.

    keys: sorted, so that concurrent writers of the same keys do not deadlock.
    """
    if keys:
        upsert(connection, keys)


def index_storable(connection: Connection, keys: Sequence[KeyRow]) -> None:
    """Store keys as index() does, without those that PostgreSQL cannot store."""
    try:
        with connection.transaction():
            index(connection, keys)
    except psycopg.Error as error:
        if cause(error) is not Cause.BATCH:
            raise
        if len(keys) > 1:
            middle = len(keys) // 2
            index_storable(connection, keys[:middle])
            index_storable(connection, keys[middle:])
