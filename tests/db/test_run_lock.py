"""The lock of the runs is free when the run has ended, however it ended."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from history.partitions.exclusive import RUN_LOCK, NoRunLockError, reconnect, run_lock
from tests.db.partitioned import advisory_locks, raw
from tests.db.test_archive_origin import archive_day, decide, ids, place, store

__all__ = ["place", "store"]
pytestmark = pytest.mark.usefixtures("tables")


@pytest.fixture
def sessions() -> None:
    """Two sessions are in the pool, so that the next one is not the last one."""
    both = threading.Barrier(2)

    def use() -> None:
        connection.ensure_connection()
        both.wait(20)
        connection.close()

    connection.close()
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(use), pool.submit(use)]:
            each.result()


def until_free() -> None:
    """Wait until nobody has the lock: a session that was closed ends a moment later."""
    with raw() as plain:
        plain.execute("SET lock_timeout = '20s'")
        plain.execute("SELECT pg_advisory_lock(%s)", [RUN_LOCK])


def test_a_command_that_the_journal_refuses_frees_the_lock(store: Any, sessions: None) -> None:
    with raw() as plain:
        archive_day(store, *ids("b", 3))
        plain.execute("ALTER TABLE access_journal RENAME TO taken_away")
        try:
            with pytest.raises(DatabaseError):
                connection.cursor().execute("SELECT 1 FROM access_journal")
            assert decide("restore")[0] == 2
        finally:
            plain.execute("ALTER TABLE taken_away RENAME TO access_journal")
    assert advisory_locks() == 0


def test_a_session_that_was_given_back_to_the_pool_keeps_no_lock(sessions: None) -> None:
    with run_lock():
        connection.close()
    until_free()


def test_a_run_that_ends_in_a_broken_transaction_frees_the_lock() -> None:
    with pytest.raises(DatabaseError), run_lock(), transaction.atomic():
        connection.cursor().execute("SELECT 1 FROM no_such_table")
    until_free()


def test_a_run_in_a_transaction_that_will_be_rolled_back_frees_the_lock() -> None:
    """Django takes no statement there, PostgreSQL does."""
    with transaction.atomic(), run_lock():
        transaction.set_rollback(True)
    assert advisory_locks() == 0
    with run_lock():
        assert advisory_locks() == 1
    assert advisory_locks() == 0


def test_a_block_in_another_takes_the_lock_again_and_leaves_it(sessions: None) -> None:
    with run_lock():
        connection.connection.close()
        with run_lock():
            assert advisory_locks() == 1
        assert advisory_locks() == 1
        reconnect()
        assert advisory_locks() == 1
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(_try)
            with pytest.raises(NoRunLockError):
                other.result()
    assert advisory_locks() == 0


def _try() -> None:
    try:
        with run_lock():
            pass
    finally:
        connection.close()
