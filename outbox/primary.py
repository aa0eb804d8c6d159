"""Reads the database of the transaction while a service's code makes a snapshot.

A router that sends reads to replicas would have the snapshot show rows as they were before the
transaction, since a replica sees only what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import models, router

_using: ContextVar[str | None] = ContextVar("outbox_using", default=None)


class _Primary:
    """A database router that comes before the routers of the service."""

    def db_for_read(self, model: type[models.Model], **hints: object) -> str | None:
        """Return the database of the transaction, if it is where the model is written."""
        using = _using.get()
        if using is None or router.db_for_write(model, **hints) != using:
            return None
        return using


_primary = _Primary()


@contextmanager
def reading(using: str) -> Iterator[None]:
    """Read models that are written in this database from it, not from its replicas."""
    if _primary not in router.routers:  # tests replace the list
        router.routers.insert(0, _primary)
    token = _using.set(using)
    try:
        yield
    finally:
        _using.reset(token)
