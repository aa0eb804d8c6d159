"""Fixtures of the tests that need the database."""

import pytest

from history import labels
from tests.db.ingested import ingested
from tests.db.installation import in_both, installation
from tests.db.partitioned import move, tables, transactional_db
from tests.db.store import Store

__all__ = ["ingested", "installation", "move", "tables", "transactional_db"]

# What reads children, or several applications at once, and what writes.
IN_BOTH = {
    "test_transaction",
    *("test_fallback", "test_fallback_need_to_know", "test_page_budget", "test_search_moved"),
    *("test_timeline_absence", "test_timeline_application", "test_timeline_newest"),
    *("test_timeline_races", "test_timeline_search", "test_timeline_unchanged", "test_trace"),
}
# Many messages of which none reaches a table; and keys that are others on a cluster.
ONCE = {"test_hostile_among_good", "test_a_child_that_changes_its_application_says_otherwise"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    in_both(metafunc, IN_BOTH, but=ONCE)


@pytest.fixture(autouse=True)
def own_labels() -> None:
    """No test sees the field labels that one before it made: they were rolled back, but are kept
    in memory for some seconds."""
    labels.forget()


@pytest.fixture
def store(db: None) -> Store:
    """The *_aud tables, empty, for tests that fill them; the rows are removed with the test."""
    return Store()
