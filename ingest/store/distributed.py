"""What a transaction of ingest sets in a distributed installation, on each node that it reaches."""

from __future__ import annotations

from typing import Final

from history import distribution
from ingest.store.connect import LOCK_TIMEOUT
from ingest.store.ledger import Connection

# A session has them on its own node only. A worker would wait for a lock for ever, and could read
# a whole day for a few keys.
_EVERYWHERE: Final = (
    "SET LOCAL citus.propagate_set_commands TO 'local';"
    f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}';"
    "SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off;"
    "SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off"
)


def begin(connection: Connection) -> bool:
    """Begin the caller's transaction so that it holds on each node. False in a plain installation,
    where it does nothing."""
    if not distribution.active(connection):
        return False
    connection.execute(_EVERYWHERE)
    return True
