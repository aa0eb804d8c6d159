"""Business keys into the table in which search looks them up."""

from __future__ import annotations

from collections.abc import Sequence

from history import searchkeys
from ingest.ledger import Connection


def index(connection: Connection, keys: Sequence[tuple[searchkeys.FoundKey, str]]) -> None:
    """Store keys, each with its newest day (ISO), inside the caller's transaction."""
    if keys:
        arrays = zip(*((*key, day) for key, day in keys), strict=True)
        connection.execute(searchkeys.UPSERT, [list(column) for column in arrays])
