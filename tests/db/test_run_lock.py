"""The run lock is free after a run, however the run ended."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from history.retention.run_lock import (
    RUN_LOCK,
    NoRunLockError,
    hold_run_lock,
    reconnect,
    retake_lost_lock,
)
from tests.db.partitioned import connect_plainly, count_advisory_locks
from tests.db.test_archive_origin import (
    archive_path,
    archive_rows_of_day,
    make_ids,
    run_for_day,
    store,
)

__all__ = ["archive_path", "store"]
pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def two_pooled_sessions() -> None:
    """Put two sessions into the connection pool.

    Code that closes a connection and connects again then gets a different session.
    """
    barrier = threading.Barrier(2)

    def use() -> None:
        connection.ensure_connection()
        barrier.wait(120)
        connection.close()

    connection.close()
    with ThreadPoolExecutor(2) as pool:
        for item in [pool.submit(use), pool.submit(use)]:
            item.result()


def wait_until_free() -> None:
    """Wait until no session has the run lock.

    The server ends a session only a moment after the client has closed the connection.
    """
    with connect_plainly() as plain:
        plain.execute("SET lock_timeout = '20s'")
        plain.execute("SELECT pg_advisory_lock(%s)", [RUN_LOCK])


def test_run_lock_is_freed_when_access_journal_cannot_be_written(
    store: Any, two_pooled_sessions: None
) -> None:
    with connect_plainly() as plain:
        archive_rows_of_day(store, *make_ids("b", 3))
        plain.execute("ALTER TABLE access_journal RENAME TO taken_away")
        try:
            with pytest.raises(DatabaseError):
                connection.cursor().execute("SELECT 1 FROM access_journal")
            assert run_for_day("restore")[0] == 2
        finally:
            plain.execute("ALTER TABLE taken_away RENAME TO access_journal")
    assert count_advisory_locks() == 0


def test_session_returned_to_the_pool_does_not_keep_the_run_lock(two_pooled_sessions: None) -> None:
    with hold_run_lock():
        connection.close()
    wait_until_free()


def test_run_lock_is_freed_after_broken_transaction() -> None:
    with pytest.raises(DatabaseError), hold_run_lock(), transaction.atomic():
        connection.cursor().execute("SELECT 1 FROM no_such_table")
    wait_until_free()


def test_run_lock_is_freed_in_transaction_that_rolls_back() -> None:
    """Django refuses further statements in such a transaction, but PostgreSQL still accepts
    them."""
    with transaction.atomic(), hold_run_lock():
        transaction.set_rollback(True)
    assert count_advisory_locks() == 0
    with hold_run_lock():
        assert count_advisory_locks() == 1
    assert count_advisory_locks() == 0


def test_lost_run_lock_is_retaken_and_freed_at_end_of_with_statement(
    two_pooled_sessions: None,
) -> None:
    with hold_run_lock():
        retake_lost_lock()
        assert count_advisory_locks() == 1
        connection.connection.close()
        retake_lost_lock()
        assert count_advisory_locks() == 1
        reconnect()
        assert count_advisory_locks() == 1
        with ThreadPoolExecutor(1) as pool:
            attempt = pool.submit(_take_run_lock)
            with pytest.raises(NoRunLockError):
                attempt.result()
    assert count_advisory_locks() == 0


def test_nested_run_lock_is_refused() -> None:
    """The end of the inner block would free the lock of the outer block."""
    with hold_run_lock(), pytest.raises(RuntimeError, match="already"), hold_run_lock():
        pass
    assert count_advisory_locks() == 0


def test_retaking_a_lost_run_lock_does_nothing_outside_of_a_with_statement() -> None:
    retake_lost_lock()
    assert count_advisory_locks() == 0


def _take_run_lock() -> None:
    try:
        with hold_run_lock():
            pass
    finally:
        connection.close()
