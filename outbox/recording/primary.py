"""Makes code that takes snapshots read from the database of the transaction, not from a replica.

A replica has only committed rows. If a router sent the reads to a replica, a snapshot would have
rows as they were before the transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import models, router

_using: ContextVar[str | None] = ContextVar("outbox_using", default=None)


class _PrimaryRouter:
    """A database router that sends reads to the primary database while versions are recorded.

    Django asks this router before the routers of the service.
    """

    def db_for_read(self, model: type[models.Model], **hints: object) -> str | None:
        """Return the database of the transaction in which versions are recorded.

        Return None, so that Django asks the next router, if no versions are being recorded or if
        the model is not written to this database.
        """
        using = _using.get()
        if using is None or router.db_for_write(model, **hints) != using:
            return None
        return using


_primary_router = _PrimaryRouter()


@contextmanager
def read_from_primary(using: str) -> Iterator[None]:
    """Send reads to the database `using` instead of its replicas while the block runs.

    Only reads of models that are written to `using` are affected.
    """
    if _primary_router not in router.routers:  # tests replace the list
        router.routers.insert(0, _primary_router)
    token = _using.set(using)
    try:
        yield
    finally:
        _using.reset(token)
