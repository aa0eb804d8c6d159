"""Fixtures of the tests that need the database."""

import pytest

from tests.db.store import Store


@pytest.fixture
def store(db: None) -> Store:
    """The *_aud tables, empty, to be filled by hand; what is written goes with the test."""
    return Store()
