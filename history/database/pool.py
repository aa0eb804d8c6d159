"""Whether a connection that the pool gives works."""

from __future__ import annotations

import select
import time
from typing import Any, Final

import psycopg

# A connection that worked so recently is only looked at on this side. A server that ends it says so
# to the socket; only what ends without a word, as a machine without power, needs a question.
TRUSTED_S: Final = 5.0
_CHECKED: Final = "_annals_checked"


def works(pool: Any, connection: psycopg.Connection[Any]) -> bool:
    """Whether a connection that this pool gave works; it is closed if not. Asks the server only
    where it was idle for TRUSTED_S, or where it sent something."""
    now = time.monotonic()
    try:
        if now - getattr(connection, _CHECKED, -TRUSTED_S) >= TRUSTED_S or _has_news(connection):
            type(pool).check_connection(connection)
    except psycopg.Error:  # also where it was closed on this side
        connection.close()
        return False
    setattr(connection, _CHECKED, now)
    return True


def _has_news(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server sent something, or closed its end, since the last answer."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
