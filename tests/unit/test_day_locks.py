"""An attempt that does not get its locks is repeated."""

from collections.abc import Callable

import pytest
from psycopg import errors

from history.store.days.day_locks import retry_lock

REFUSED = errors.LockNotAvailable("canceling statement due to lock timeout")
LOST = errors.InternalError_("failure on connection marked as essential: 127.0.0.1:5433")


def make_attempt(*results: Exception | str) -> Callable[[], str]:
    """Return a function that raises or returns these in turn."""
    rest = iter(results)

    def attempt() -> str:
        result = next(rest)
        if isinstance(result, Exception):
            raise result
        return result

    return attempt


def test_attempt_is_repeated_until_it_gets_its_locks() -> None:
    assert retry_lock(make_attempt(REFUSED, errors.DeadlockDetected(), "done"), 5) == "done"


def test_savepoint_that_citus_lost_after_a_refusal_is_a_lock_that_is_not_given() -> None:
    with pytest.raises(errors.LockNotAvailable, match="stays open"):
        retry_lock(make_attempt(REFUSED, LOST, "done"), 5)


def test_node_that_is_lost_without_a_refusal_is_an_error() -> None:
    with pytest.raises(errors.InternalError_, match="marked as essential"):
        retry_lock(make_attempt(LOST, "done"), 5)
