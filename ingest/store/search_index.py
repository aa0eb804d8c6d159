"""Business keys into the table in which search looks them up."""

from __future__ import annotations

from collections.abc import Sequence

from history import search_keys
from ingest.store.ledger import Connection


def index(connection: Connection, keys: Sequence[search_keys.DayKey]) -> None:
    """Store keys, each once and with its newest day, inside the caller's transaction.

    Sorted, so that writers that insert the same keys at once do not deadlock.
    """
    if keys:
        connection.execute(search_keys.UPSERT, search_keys.upsert_values(keys))
