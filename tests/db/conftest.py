"""Fixtures of the tests that need the database."""

import time

import pytest

from annals.access.journal import floods
from history import labels
from tests.db.ingested import ingested
from tests.db.partitioned import move, tables, transactional_db
from tests.db.store import Store

__all__ = ["ingested", "move", "tables", "transactional_db"]


@pytest.fixture(autouse=True)
def own_labels() -> None:
    """No test sees the field labels that one before it made: they were rolled back, but are kept
    in memory for some seconds."""
    labels.forget()


@pytest.fixture(autouse=True)
def own_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test has fewer rows in the access journal because of refused requests before it."""
    monkeypatch.setattr(floods.FLOOD, "minute", floods.Minute(time.time(), ends=True))


@pytest.fixture
def store(db: None) -> Store:
    """The *_aud tables, empty, for tests that fill them; the rows are removed with the test."""
    return Store()
