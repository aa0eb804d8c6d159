"""Fixtures of the tests about who may do what."""

from tests.db.conftest import own_labels, store

__all__ = ["own_labels", "store"]
