"""Opens the database connections of the consumer, and opens them again after errors."""

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

import psycopg
from django.conf import settings
from django.db import connection as django_connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from history.store import distribution
from history.store.database import forms, session
from ingest.store.ledger import Connection

logger = logging.getLogger(__name__)


class DatabaseSession:
    """A database connection that is opened at its first use, and again after `close`.

    Only one thread may use it, except that any thread may call `break_connection`.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._open: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The open connection. It is opened at its first use."""
        if self._open is None:
            self._open = self._connect()
            distribution.forget_plain_answer(self._open)
        return self._open

    def break_connection(self) -> None:
        """Break the connection, even while another thread waits for an answer on it.

        PostgreSQL rolls the open transaction back.
        """
        connection = self._open
        if connection is not None and not connection.closed:
            with (
                contextlib.suppress(OSError, psycopg.Error),
                socket.socket(fileno=os.dup(connection.fileno())) as connection_socket,
            ):
                connection_socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        if self._open is not None:
            self._open.close()
            self._open = None


# A writer that has waited this long for a lock terminates the sessions of frozen consumers, which
# may hold the lock.
LOCK_TIMEOUT = "10s"
# Overrides the path that ALTER ROLE may have set.
SEARCH_PATH = "public"


def open_connection(purpose: str = "annals-consume") -> Connection:
    """Open a connection in autocommit mode, in UTC, with settings for writing batches.

    These settings override ALTER ROLE .. SET and the options in DATABASE_URL.

    Args:
        purpose: The application_name of the session.

    Raises:
        psycopg.OperationalError: The database does not answer in time, or refuses the connection.
    """
    url = settings.ANNALS.database_url or ""
    parameters = {
        **session.SESSION,
        "search_path": SEARCH_PATH,
        # No limit: a batch that takes longer than the limit would be repeated for ever.
        "statement_timeout": "0",
        # For how long a consumer that died during a statement can keep its row locks.
        "client_connection_check_interval": "2s",
        # For how long a consumer that froze between two statements can keep its row locks.
        "idle_in_transaction_session_timeout": "10s",
        "lock_timeout": LOCK_TIMEOUT,
        # Repeated rows are compared in a temporary table. With the default of 8 MB, PostgreSQL
        # would write this table to files. It takes the memory only for a batch with repeated rows.
        "temp_buffers": "32MB",
        # For looking up repeated rows, only plans by primary key are left: other plans would read
        # whole days.
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
    }
    url_options = conninfo_to_dict(url).get("options", "")
    conninfo = make_conninfo(
        url,
        dbname=django_connection.settings_dict["NAME"],
        application_name=purpose,
        client_encoding="UTF8",  # COPY sends text as UTF-8, whatever PGCLIENTENCODING says
        connect_timeout=5,
        options=f"{url_options} {session.build_options(parameters)}".strip(),
        # A server that disappears without closing the connection is noticed after 30 seconds.
        keepalives_idle=10,
        keepalives_interval=5,
        keepalives_count=3,
        tcp_user_timeout=30_000,
    )
    connection = psycopg.connect(conninfo, autocommit=True)
    session.remove_time_limit(connection)
    try:
        forms.open_session(connection)
    except psycopg.Error:
        connection.close()
        raise
    return connection


def terminate_frozen(connection: Connection) -> None:
    """Terminate the sessions of consumers that froze during a COPY.

    PostgreSQL does not check timeouts during a COPY, so these sessions would keep their row locks.
    """
    count = connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE usename = current_user AND datname = current_database()"
        " AND application_name LIKE 'annals-%%'"
        " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event = 'ClientRead'"
        " AND query_start < now() - %(timeout)s::interval",
        {"timeout": LOCK_TIMEOUT},
    ).rowcount
    if count:
        logger.warning("terminated %d sessions of consumers that froze during a write", count)


# The settings of a session do not reach the other nodes of a cluster. Without a lock timeout, a
# worker node would wait for ever.
_SET_ON_NODES: Final = (
    "SET LOCAL citus.propagate_set_commands TO 'local';"
    f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}';"
    "SET LOCAL enable_seqscan TO off; SET LOCAL enable_bitmapscan TO off;"
    "SET LOCAL enable_hashjoin TO off; SET LOCAL enable_mergejoin TO off"
)


def apply_settings_on_nodes(connection: Connection) -> None:
    """Apply the settings of the session to the current transaction on each node of a cluster."""
    if distribution.is_distributed(connection):
        connection.execute(_SET_ON_NODES)
