"""Fixtures of the tests that need the database."""

import pytest

from history.store.catalogue import labels
from tests.db.calls import auditor
from tests.db.ingested import ingested
from tests.db.old_service_fixtures import old, own_breaker
from tests.db.partitioned import few_days, plain, set_clock, tables, transactional_db
from tests.db.screens import documents, support
from tests.db.store import Store

__all__ = [
    "auditor",
    "documents",
    "few_days",
    "ingested",
    "old",
    "own_breaker",
    "plain",
    "set_clock",
    "support",
    "tables",
    "transactional_db",
]


@pytest.fixture(autouse=True)
def own_labels() -> None:
    """Forget the field labels of earlier tests.

    Their rows were rolled back, but the process keeps labels in memory for some seconds.
    """
    labels.forget_catalogue()


@pytest.fixture
def store(db: None) -> Store:
    """Return the empty tables of versions; the rows of a test are rolled back at its end."""
    return Store()
