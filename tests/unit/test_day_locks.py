"""An attempt to lock a day is repeated if it does not get its locks."""

from collections.abc import Callable

import pytest
from psycopg import errors

from history.store.days.day_locks import retry_lock

REFUSED = errors.LockNotAvailable("canceling statement due to lock timeout")
LOST = errors.InternalError_("failure on connection marked as essential: 127.0.0.1:5433")


def make_attempt(*results: Exception | str) -> Callable[[], str]:
    """Return a function that raises or returns these values, one at each call."""
    rest = iter(results)

    def attempt() -> str:
        result = next(rest)
        if isinstance(result, Exception):
            raise result
        return result

    return attempt


def test_attempt_to_lock_a_day_is_repeated_until_it_succeeds() -> None:
    assert retry_lock(make_attempt(REFUSED, errors.DeadlockDetected(), "done"), 5) == "done"


def test_connection_error_of_citus_counts_as_refused_lock_when_it_follows_a_refused_lock() -> None:
    with pytest.raises(errors.LockNotAvailable, match="stays open"):
        retry_lock(make_attempt(REFUSED, LOST, "done"), 5)


def test_connection_error_of_citus_is_raised_unless_it_follows_a_refused_lock() -> None:
    with pytest.raises(errors.InternalError_, match="marked as essential"):
        retry_lock(make_attempt(LOST, "done"), 5)
