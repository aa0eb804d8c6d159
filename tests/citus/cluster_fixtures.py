"""Fixtures of tests/db with distributed tables, for tests that both folders have."""

from collections.abc import Iterator

import pytest
from django.db import connection

from history.store.catalogue import labels
from tests.citus.cluster import Citus
from tests.db.partitioned import delete_rows, set_clock, tables

__all__ = ["own_labels", "set_clock", "tables", "transactional_db"]


@pytest.fixture
def transactional_db(distributed: Citus) -> Iterator[None]:
    """Empty tables of a distributed installation; changes are committed."""
    delete_rows()
    yield
    delete_rows()
    connection.close()


@pytest.fixture(autouse=True)
def own_labels() -> None:
    labels.forget_catalogue()
