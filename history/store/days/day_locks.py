"""The locks for creating, attaching and dropping the partition of a day. Needs only psycopg.

A lock request has a short timeout and is repeated, because a session that waits for a strong lock
blocks every session behind it.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql

LOCK_TIMEOUT_MS = 100
LOCK_WAIT_S = 10.0
# PostgreSQL cancels an autovacuum for a lock request that has waited for deadlock_timeout (1 s).
AUTOVACUUM_WAIT_MS = 3_000
ADVISORY_SPACE = 0x41_4E_4E_41  # "ANNA": the first key of our advisory locks, one for each day

# Citus' message if a table gets shards while others move. It does not have its own SQLSTATE.
_SHARDS_MOVE = "could not acquire the lock required to colocate"
# Citus' message if it has lost the savepoint of a node. This can happen when it cancels the
# statement on one node because another node refuses a lock.
_LOST_SAVEPOINT = "connection marked as essential"

Connection = psycopg.Connection[Any]
T = TypeVar("T")


def set_short_lock_timeout(connection: Connection, timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
    """Let this transaction wait at most `timeout_ms` for a lock, on each node."""
    connection.execute(
        "SET LOCAL citus.propagate_set_commands TO 'local';"
        f"SET LOCAL lock_timeout = {timeout_ms}".encode()
    )


def exclude_autovacuum(connection: Connection, table: sql.Identifier) -> None:
    """Cancel the autovacuum of a table, and prevent it until the caller's transaction ends.

    Readers and writers of the table are not blocked.

    Raises:
        psycopg.errors.LockNotAvailable: Another session holds a conflicting lock, or the autovacuum
            must not be cancelled because it prevents a wraparound of transaction ids.
    """
    # If the lock is refused, only the inner transaction fails, and its lock_timeout ends with it.
    with connection.transaction():
        row = connection.execute("SELECT current_setting('lock_timeout')").fetchone()
        set_short_lock_timeout(connection, AUTOVACUUM_WAIT_MS)
        lock_table = sql.SQL("LOCK TABLE ONLY {} IN SHARE UPDATE EXCLUSIVE MODE")
        connection.execute(lock_table.format(table))
        connection.execute("SELECT set_config('lock_timeout', %s, true)", [row[0] if row else "0"])


def lock_day(connection: Connection, name: str, timeout_ms: int = LOCK_TIMEOUT_MS) -> None:
    """Lock the partition of one day until the caller's transaction ends.

    Args:
        timeout_ms: How long to wait for this lock and for each later one of the transaction.
    """
    set_short_lock_timeout(connection, timeout_ms)
    connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [ADVISORY_SPACE, name])


@contextmanager
def hold_day_lock(connection: Connection, name: str) -> Iterator[None]:
    """Lock the partition of one day during the `with` block, for this session.

    Other processes that want to create or drop the day wait.
    """
    with override_lock_timeout(connection, LOCK_TIMEOUT_MS):
        connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", [ADVISORY_SPACE, name])
    try:
        yield
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [ADVISORY_SPACE, name])


@contextmanager
def override_lock_timeout(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Set the lock_timeout of the session during the `with` block."""
    row = connection.execute("SELECT current_setting('lock_timeout')").fetchone()
    former_timeout = row[0] if row else "0"
    connection.execute("SELECT set_config('lock_timeout', %s, false)", [str(milliseconds)])
    try:
        yield
    finally:
        connection.execute("SELECT set_config('lock_timeout', %s, false)", [former_timeout])


def retry_lock(attempt: Callable[[], T], wait_s: float) -> T:
    """Call `attempt` until it gets its locks, with pauses, for up to `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    was_refused = False
    while True:
        try:
            return attempt()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            was_refused = True
            if time.monotonic() > deadline:
                raise
        except errors.InternalError_ as error:
            if was_refused and _LOST_SAVEPOINT in str(error):
                raise errors.LockNotAvailable(
                    "a transaction that uses the table stays open"
                ) from error
            if _SHARDS_MOVE not in str(error):
                raise
            if time.monotonic() > deadline:
                raise errors.LockNotAvailable(
                    "shards are being moved to other nodes; run the command again later"
                ) from error
        time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - spread, not secrecy
