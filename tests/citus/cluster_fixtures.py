"""Fixtures named as in tests/db, for tests with distributed tables on a cluster."""

from collections.abc import Iterator

import pytest
from django.db import connection

from history.store.catalogue import labels
from tests.citus.cluster import Citus
from tests.db.partitioned import delete_rows, set_clock, tables

__all__ = ["own_labels", "set_clock", "tables", "transactional_db"]


@pytest.fixture
def transactional_db(distributed: Citus) -> Iterator[None]:
    """Delete the rows of distributed tables before and after a test that commits changes."""
    delete_rows()
    yield
    delete_rows()
    connection.close()


@pytest.fixture(autouse=True)
def own_labels() -> None:
    labels.forget_catalogue()
