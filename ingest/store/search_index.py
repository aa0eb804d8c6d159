"""Writes business keys to the table that search reads."""

from __future__ import annotations

from collections.abc import Sequence

from history.search_index import keys as search_keys
from ingest.store.ledger import Connection


def index(connection: Connection, keys: Sequence[search_keys.KeyRow]) -> None:
    """Store keys, each with its newest day, inside the caller's transaction.

    keys: sorted, so that concurrent writers of the same keys do not deadlock.
    """
    if keys:
        connection.execute(search_keys.UPSERT, search_keys.upsert_values(keys))
