"""Sends a statement to PostgreSQL and waits for its end, for a bounded time.

No setting of the server bounds the wait for a commit, and none a network that hangs.
"""

from __future__ import annotations

import select
import time
from typing import Any, Final

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn

_FAILED: Final = (ExecStatus.FATAL_ERROR, ExecStatus.BAD_RESPONSE)


class NoAnswerError(Exception):
    """The server has not answered in time. The statement may or may not be done."""


def statement(connection: psycopg.Connection[Any], text: str, seconds: float) -> None:
    """Run it, in the transaction of the connection if there is one, else in its own. Raises
    psycopg.Error, and NoAnswerError: then the connection cannot be used any more."""
    if not connection.autocommit and connection.info.transaction_status is TransactionStatus.IDLE:
        connection.execute(
            "SELECT"
        )  # psycopg begins a transaction only with a statement of its own
    end = time.monotonic() + seconds
    wire = connection.pgconn
    wire.send_query(text.encode())
    while wire.flush():
        _wait(wire, select.POLLOUT | select.POLLIN, end)
        wire.consume_input()
    failed: psycopg.Error | None = None
    while True:
        while wire.is_busy():
            _wait(wire, select.POLLIN, end)
            wire.consume_input()
        result = wire.get_result()
        if result is None:
            break
        if result.status in _FAILED:
            failed = error_from_result(result)
    if failed is not None:
        raise failed


def _wait(wire: PGconn, events: int, end: float) -> None:
    left = end - time.monotonic()
    waiter = select.poll()
    waiter.register(wire.socket, events)
    if left <= 0 or not waiter.poll(left * 1000):
        raise NoAnswerError("the database does not answer")
