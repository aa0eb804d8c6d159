"""One connection to the database that is opened when it is used, and opened again after a loss."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import psycopg

from history import distribution
from ingest.store.ledger import Connection


class Session:
    """Belongs to one thread. Only cut() may be called from another."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._open: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection; opens one if there is none."""
        if self._open is None:
            self._open = self._connect()
            distribution.forget_plain(self._open)
        return self._open

    def cut(self) -> None:
        """Break the connection while another thread waits on it. The server rolls back what was not
        committed."""
        connection = self._open
        if connection is not None and not connection.closed:
            with (
                contextlib.suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as wire,
            ):
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None
