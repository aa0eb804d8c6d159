"""Fixtures of the tests that need the database."""

import pytest

from history.store.catalogue import labels
from tests.db.calls import auditor
from tests.db.ingested import ingested
from tests.db.partitioned import few_days, move, plain, tables, transactional_db
from tests.db.replaced import old, own_breaker
from tests.db.screens import documents, support
from tests.db.store import Store

__all__ = [
    "auditor",
    "documents",
    "few_days",
    "ingested",
    "move",
    "old",
    "own_breaker",
    "plain",
    "support",
    "tables",
    "transactional_db",
]


@pytest.fixture(autouse=True)
def own_labels() -> None:
    """No test sees the field labels that one before it made: they were rolled back, but are kept
    in memory for some seconds."""
    labels.forget_catalogue()


@pytest.fixture
def store(db: None) -> Store:
    """The *_aud tables, empty, for tests that fill them; the rows are removed with the test."""
    return Store()
