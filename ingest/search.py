"""Business keys into the table in which search looks them up."""

from __future__ import annotations

from collections.abc import Sequence

from history import searchkeys
from ingest.ledger import Connection


def index(connection: Connection, keys: Sequence[searchkeys.DayKey]) -> None:
    """Store keys, each once and with its newest day, inside the caller's transaction.

    Sorted, so that writers that insert the same keys at once do not deadlock.
    """
    if keys:
        connection.execute(searchkeys.UPSERT, searchkeys.upsert_values(keys))
