"""Fixtures of the tests about who may do what."""

from tests.db.conftest import own_labels, own_minute, store
from tests.processes import server

__all__ = ["own_labels", "own_minute", "server", "store"]
